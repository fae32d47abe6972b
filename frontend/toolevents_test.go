package frontend_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/toolevents"
)

// toolRows keep what tools are told to have done.
type toolRows struct {
	mu   sync.Mutex
	rows []*trace.Record
}

func (r *toolRows) publish(row *trace.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row)
}

// recording makes a server record tools.
func (r *toolRows) recording(c *frontend.Config) {
	c.Tracing = &frontend.Tracing{Publish: r.publish, Tools: &toolevents.Intake{Publish: r.publish, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
}

const toolEvent = `{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":5,"session_id":"s","tool":{"tool_call_id":"c","tool_class":"bash","status":"ok"}}`

func TestToolEvents(t *testing.T) {
	var told toolRows
	s := start(t, newFake(), told.recording, withKeys(t, "sk-one team-a\n"))
	key := []string{"Authorization", "Bearer sk-one"}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, toolEvent); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, body string
		header     []string
		status     int
		says       string
		rows       int
	}{
		{"one", toolEvent, nil, 202, `{"accepted":1,"dropped":0}`, 1},
		{"several", "[" + toolEvent + "," + toolEvent + ",7]", []string{"Content-Type", "application/json; charset=utf-8"}, 202, `{"accepted":2,"dropped":1}`, 2},
		{"lines", toolEvent + "\n" + toolEvent + "\n{}\n", []string{"Content-Type", "application/x-ndjson"}, 202, `{"accepted":2,"dropped":1}`, 2},
		{"compressed", packed.String(), []string{"Content-Encoding", "gzip"}, 202, `{"accepted":1,"dropped":0}`, 1},
		{"none that is good", "{}", nil, 202, `{"accepted":0,"dropped":1}`, 0},
		{"no JSON", "hello", nil, 400, "not valid JSON", 0},
		{"empty", "", nil, 400, "is empty", 0},
		{"torn", "[" + toolEvent, nil, 400, "begins an array", 0},
		{"too many", strings.Repeat(toolEvent+"\n", 1001), nil, 413, "at most 1000", 0},
		{"too large", strings.Repeat(" ", 4<<20) + toolEvent, nil, 413, "4 MB", 0},
		{"a form", "a=b", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "application/x-ndjson", 0},
		{"another key", toolEvent, []string{"Authorization", "Bearer sk-two"}, 401, "API key", 0},
	} {
		told.rows = nil
		got := s.do("POST", "/v1/agent/tool_events", tc.body, append(key[:2:2], tc.header...)...)
		if got.status != tc.status || !strings.Contains(got.body, tc.says) || len(told.rows) != tc.rows {
			t.Errorf("%s: %d %.200s, %d rows", tc.name, got.status, got.body, len(told.rows))
		}
		for _, row := range told.rows {
			if row.Source != trace.SourceHarness || row.Tool.Status != "succeeded" || row.Agent.SessionID != "s" {
				t.Errorf("%s: %+v", tc.name, row)
			}
		}
	}
	if got := s.do("GET", "/v1/agent/tool_events", "", key...); got.status != 405 || got.header.Get("Allow") != "POST" {
		t.Errorf("GET: %d", got.status)
	}
}

// Who sends all of a body that is too long, and only then reads, is told so.
func TestToolEventsTooLong(t *testing.T) {
	var told toolRows
	s := start(t, newFake(), told.recording)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const length = 20 << 20
	fmt.Fprintf(conn, "POST /v1/agent/tool_events HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", length)
	if _, err := conn.Write(bytes.Repeat([]byte(" "), length)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// Compressed nothing does not become much.
func TestToolEventsBomb(t *testing.T) {
	var told toolRows
	s := start(t, newFake(), told.recording)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(bytes.Repeat([]byte(" "), 8<<20)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	if got := s.do("POST", "/v1/agent/tool_events", packed.String(), "Content-Encoding", "gzip"); got.status != 413 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Where tools are not recorded there is no such route, so that a harness that tells of
// them learns it.
func TestToolEventsOff(t *testing.T) {
	for name, change := range map[string]func(*frontend.Config){
		"no trace": func(*frontend.Config) {},
		"no tools": func(c *frontend.Config) { c.Tracing = &frontend.Tracing{Publish: func(*trace.Record) {}} },
	} {
		s := start(t, newFake(), change)
		if got := s.do("POST", "/v1/agent/tool_events", toolEvent); got.status != 404 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if strings.Contains(s.do("GET", "/openapi.json", "").body, "tool_events") {
			t.Errorf("%s: the route is told of", name)
		}
	}
}

// What is told of events is true: those that are taken fit their schema.
func TestToolEventsDescribed(t *testing.T) {
	var told toolRows
	var page struct {
		Paths      map[string]any
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal([]byte(start(t, newFake(), told.recording).do("GET", "/openapi.json", "").body), &page); err != nil {
		t.Fatal(err)
	}
	if page.Paths["/v1/agent/tool_events"] == nil {
		t.Fatal("the route is not told of")
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("event.json", page.Components.Schemas["ToolEvent"]); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("event.json")
	if err != nil {
		t.Fatal(err)
	}
	for event, good := range map[string]bool{
		toolEvent: true, strings.Replace(toolEvent, `"session_id":"s"`, `"agent_context":{"session_id":"s"}`, 1): true,
		strings.Replace(toolEvent, "tool_end", "request_end", 1): false, strings.Replace(toolEvent, `"ok"`, `"fine"`, 1): false,
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(event))
		if err != nil {
			t.Fatal(err)
		}
		_, refused := toolevents.Decode([]byte(event))
		if err := schema.Validate(v); (err == nil) != good || (refused == nil) != good {
			t.Errorf("%s: %v, %v", event, err, refused)
		}
	}
}
