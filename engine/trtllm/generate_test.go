package trtllm_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/trtllm"
	fake "github.com/dynago/dynago/internal/fake/trtllm"
)

const (
	one  = `{"choices":[{"index":0,"text":"","token_ids":[7],"finish_reason":null}]}`
	end  = `{"choices":[{"index":0,"text":"","token_ids":[8],"finish_reason":"length"}]}`
	used = `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":2}}}`
)

// events writes them as the server does.
func events(list ...string) string {
	return "data: " + strings.Join(list, "\n\ndata: ") + "\n\n"
}

// Streams that no server should send end as what they are, never as an answer
// that is not there.
func TestHostileStreams(t *testing.T) {
	long := fmt.Sprintf(`{"choices":[{"token_ids":[7],"text":%q}]}`, strings.Repeat("x", 8<<20))
	for name, c := range map[string]struct {
		kind, body string
		ids        []uint32
		err        engine.ErrorKind
		cached     int // -1: unknown
	}{
		"whole":            {"", events(one, end, used, "[DONE]"), []uint32{7, 8}, "", 2},
		"CRLF":             {"", strings.ReplaceAll(events(one, end, used, "[DONE]"), "\n", "\r\n"), []uint32{7, 8}, "", 2},
		"comments":         {"", ": ping\n\n" + events(one) + ": ping\n" + events(end, used), []uint32{7, 8}, "", 2},
		"done twice":       {"", events(one, end, used, "[DONE]", "[DONE]", one), []uint32{7, 8}, "", 2},
		"no usage":         {"", events(one, end, "[DONE]"), []uint32{7, 8}, "", -1},
		"no done":          {"", events(one, end), []uint32{7, 8}, "", -1},
		"tokens after end": {"", events(one, end, one, used), []uint32{7, 8}, "", 2},
		"a long line":      {"", events(long, end, used), []uint32{7, 8}, "", 2},
		"no end":           {"", events(one, "[DONE]"), []uint32{7}, engine.StreamIncomplete, 0},
		"nothing":          {"", "", nil, engine.StreamIncomplete, 0},
		"cut":              {"", events(one) + `data: {"choices":[{"tok`, []uint32{7}, engine.StreamIncomplete, 0},
		"no JSON":          {"", events(one, "oops"), []uint32{7}, engine.Internal, 0},
		"failure inside":   {"", events(one, `{"object":"error","message":"boom","type":"InternalServerError","code":500}`), []uint32{7}, engine.Internal, 0},
		"refusal inside":   {"", events(`{"error":{"message":"no","code":400}}`), nil, engine.InvalidArgument, 0},
		"cancelled":        {"", events(one, `{"choices":[{"token_ids":[],"finish_reason":"cancelled"}]}`), []uint32{7}, engine.EngineShutdown, 0},
		"timeout":          {"", events(one, `{"choices":[{"token_ids":[],"finish_reason":"timeout"}]}`), []uint32{7}, engine.ResponseTimeout, 0},
		"a page":           {"text/html", "<html>", nil, engine.Internal, 0},
		"no stream":        {"application/json", end, nil, engine.Internal, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := stub(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				if c.kind != "" {
					w.Header().Set("Content-Type", c.kind)
				}
				io.WriteString(w, c.body)
			})
			ids, last, err := collect(t.Context(), e, &engine.Request{Model: "m", TokenIDs: []uint32{1, 2, 3}, Stop: engine.Stop{MaxTokens: 5}})
			if !slices.Equal(ids, c.ids) || (c.err == "") != (err == nil) || err != nil && engine.KindOf(err) != c.err {
				t.Fatalf("%v, %v; want %v, %q", ids, err, c.ids, c.err)
			}
			if c.err != "" {
				return
			}
			if u := last.Usage; u.Output != 2 || (u.Cached == nil) != (c.cached < 0) || u.Cached != nil && *u.Cached != c.cached {
				t.Errorf("usage %+v", u)
			}
		})
	}
}

func TestRefusedByTheServer(t *testing.T) {
	for status, want := range map[int]engine.ErrorKind{
		400: engine.InvalidArgument, 401: engine.Denied, 404: engine.NotFound, 429: engine.WorkerOverloaded, 500: engine.Internal, 503: engine.Unavailable,
	} {
		e := stub(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"object":"error","message":"because","type":"x","param":null,"code":%d}`, status)
		})
		_, _, err := collect(t.Context(), e, &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}})
		if err == nil || engine.KindOf(err) != want || !strings.Contains(err.Error(), "because") {
			t.Errorf("%d: %v, want %s with the server's text", status, err, want)
		}
	}
}

// Whatever the server says of its end, an id that is to be hidden is, and is
// counted; one that is to be seen is, and is named.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		chunk   string
		ids     []uint32
		finish  engine.Finish
		matched []uint32
		output  int
		data    string
	}{
		"listed":           {`"token_ids":[7,50],"finish_reason":"stop","stop_reason":50`, []uint32{7, 50}, engine.FinishStop, []uint32{50}, 2, ""},
		"listed, cut off":  {`"token_ids":[7],"finish_reason":"stop","stop_reason":50`, []uint32{7, 50}, engine.FinishStop, []uint32{50}, 2, ""},
		"listed, alone":    {`"token_ids":[],"finish_reason":"stop","stop_reason":50`, []uint32{50}, engine.FinishStop, []uint32{50}, 1, ""},
		"hidden, told":     {`"token_ids":[7,2],"finish_reason":"stop","stop_reason":2`, []uint32{7}, engine.FinishEOS, nil, 2, ""},
		"hidden, not told": {`"token_ids":[7,2],"finish_reason":"stop","stop_reason":null`, []uint32{7}, engine.FinishEOS, nil, 2, ""},
		"hidden, cut off":  {`"token_ids":[7],"finish_reason":"stop","stop_reason":null`, []uint32{7}, engine.FinishEOS, nil, 1, ""},
		"hidden, told too": {`"token_ids":[7],"finish_reason":"stop","stop_reason":2`, []uint32{7}, engine.FinishEOS, nil, 2, ""},
		"a text":           {`"token_ids":[7],"finish_reason":"stop","stop_reason":"x"`, []uint32{7}, engine.FinishEOS, nil, 1, ""},
		"hidden, counted":  {`"token_ids":[7],"finish_reason":"stop","stop_reason":null`, []uint32{7}, engine.FinishEOS, nil, 2, ""},
		"length":           {`"token_ids":[7,2],"finish_reason":"length","stop_reason":null`, []uint32{7, 2}, engine.FinishLength, nil, 2, ""},
		"unheard of":       {`"token_ids":[7],"finish_reason":"repetition"`, []uint32{7}, engine.FinishStop, nil, 1, `{"finish_reason":"repetition"}`},
	} {
		t.Run(name, func(t *testing.T) {
			e := stub(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, events(`{"choices":[{`+c.chunk+`}]}`, fmt.Sprintf(`{"choices":[],"usage":{"completion_tokens":%d}}`, c.output)))
			})
			ids, last, err := collect(t.Context(), e, &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 9, IDs: []uint32{50}, Hidden: []uint32{2}}})
			if err != nil || !slices.Equal(ids, c.ids) || last.Finish != c.finish || !slices.Equal(last.MatchedIDs, c.matched) || last.Usage.Output != c.output || string(last.EngineData) != c.data {
				t.Errorf("%v, %+v, %v", ids, last, err)
			}
		})
	}
}

// An id that the server has cut off counts, whether or not the server counts it, and
// is not taken for the one before it.
func TestCutIDsCount(t *testing.T) {
	for _, c := range []struct {
		chunks []string
		ids    []uint32
		output int
	}{
		{[]string{one, `{"choices":[{"token_ids":[],"finish_reason":"stop","stop_reason":50}]}`}, []uint32{7, 50}, 2},
		{[]string{one, `{"choices":[{"token_ids":[],"finish_reason":"stop","stop_reason":2}]}`}, []uint32{7}, 2},
		{[]string{one, `{"choices":[{"token_ids":[50]}]}`, `{"choices":[{"token_ids":[],"finish_reason":"stop","stop_reason":50}]}`}, []uint32{7, 50}, 2},
	} {
		e := stub(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, events(c.chunks...))
		})
		ids, last, err := collect(t.Context(), e, &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 9, IDs: []uint32{50}, Hidden: []uint32{2}}})
		if err != nil || !slices.Equal(ids, c.ids) || last.Usage.Output != c.output {
			t.Errorf("%q: %v, %+v, %v", c.chunks, ids, last.Usage, err)
		}
	}
}

// The id that ends an answer comes once, is named and has its probability, whatever
// the server does with it.
func TestStopIDsOfTheServer(t *testing.T) {
	a := attach(t, fake.Config{}, trtllm.Config{})
	a.ready(t)
	probe := &engine.Request{Model: "m", TokenIDs: []uint32{5, 6}, Stop: engine.Stop{MaxTokens: 30}}
	all, _, err := collect(t.Context(), a, probe)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(all, all[20]) // the first of its kind
	for name, r := range map[string]*engine.Request{
		"plain":           {Stop: engine.Stop{IDs: []uint32{all[at]}}},
		"the chosen one":  {Stop: engine.Stop{IDs: []uint32{all[at]}}, Logprobs: p(0)},
		"with logprobs":   {Stop: engine.Stop{IDs: []uint32{all[at]}}, Logprobs: p(1)},
		"not too early":   {Stop: engine.Stop{IDs: []uint32{all[at]}, MinTokens: 1}},
		"hidden":          {Stop: engine.Stop{Hidden: []uint32{all[at]}}},
		"hidden logprobs": {Stop: engine.Stop{Hidden: []uint32{all[at]}}, Logprobs: p(1)},
	} {
		r.Model, r.TokenIDs, r.Stop.MaxTokens = "m", probe.TokenIDs, 30
		kept := len(r.Stop.IDs) > 0 && (r.Logprobs != nil || r.Stop.MinTokens > 0)
		want := all[:at+1]
		if len(r.Stop.Hidden) > 0 {
			want = all[:at]
		}
		var got []uint32
		var last engine.Delta
		for d, err := range a.Generate(t.Context(), r) {
			if err != nil {
				t.Fatal(name, err)
			}
			if r.Logprobs != nil && len(d.Logprobs) != len(d.TokenIDs) {
				t.Errorf("%s: %d log probabilities for %d ids", name, len(d.Logprobs), len(d.TokenIDs))
			}
			got, last = append(got, d.TokenIDs...), d
		}
		if _, told := asked(t, a)["include_stop_str_in_output"]; told != kept {
			t.Errorf("%s: the server was told to keep the id that ends: %v, want %v", name, told, kept)
		}
		if !slices.Equal(got, want) || last.Usage.Output != at+1 {
			t.Errorf("%s: %v, %+v; want %v and %d", name, got, last.Usage, want, at+1)
		}
	}
}

// A connection that is lost behind the end of an answer takes nothing of it away;
// before the end the rest may be made elsewhere.
func TestLostConnection(t *testing.T) {
	for _, ended := range []bool{true, false} {
		e := stub(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, events(one))
			if ended {
				io.WriteString(w, events(end))
			}
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		ids, last, err := collect(t.Context(), e, &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 2}})
		if ended && (err != nil || len(ids) != 2 || last.Finish != engine.FinishLength) {
			t.Errorf("behind the end: %v, %+v, %v", ids, last, err)
		}
		if !ended && (len(ids) != 1 || engine.KindOf(err).Retry() != engine.RetryMigrate) {
			t.Errorf("before the end: %v, %v", ids, err)
		}
	}
}

// The trace goes along with a request.
func TestHeaders(t *testing.T) {
	var got http.Header
	e := stub(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, events(end))
	})
	_, _, err := collect(t.Context(), e, &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}, Trace: engine.Trace{Parent: "00-a-b-01", State: "k=v"}})
	if err != nil || got.Get("traceparent") != "00-a-b-01" || got.Get("tracestate") != "k=v" {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzStream(f *testing.F) {
	f.Add(events(one, end, used, "[DONE]"))
	f.Add(events(one, `{"object":"error","message":"boom"}`))
	f.Add(`data: {"choices":[{"token_ids":[2],"finish_reason":"stop","stop_reason":[]}]}` + "\n\n")
	body := make(chan string, 1)
	e := stub(f, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, <-body)
	})
	f.Fuzz(func(t *testing.T, stream string) {
		body <- stream
		k, ends := 1, 0
		for d, err := range e.Generate(t.Context(), &engine.Request{TokenIDs: []uint32{1}, Logprobs: &k, Stop: engine.Stop{MaxTokens: 9, Hidden: []uint32{2}}}) {
			if ends > 0 {
				t.Fatal("an item after the end")
			}
			if err != nil || d.Finish != "" {
				ends++
			}
			if err == nil && len(d.Logprobs) != len(d.TokenIDs) {
				t.Fatalf("%d log probabilities for %d ids", len(d.Logprobs), len(d.TokenIDs))
			}
		}
		if ends != 1 {
			t.Fatalf("%d ends", ends)
		}
	})
}

// asked returns the members of the last body that a server was sent.
func asked(t *testing.T, a *attached) map[string]json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(a.server.Last(), &m); err != nil {
		t.Fatal(err)
	}
	return m
}
