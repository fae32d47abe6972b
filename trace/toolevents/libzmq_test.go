//go:build e2e

package toolevents_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/toolevents"
)

// python runs an example.
func python(t *testing.T, script, variable, value string) {
	t.Helper()
	interpreter := os.Getenv("E2E_PYTHON")
	if interpreter == "" {
		t.Fatal("E2E_PYTHON is not set; start the suites with make zmq")
	}
	cmd := exec.CommandContext(t.Context(), interpreter, "../../examples/toolevents/"+script)
	cmd.Env = append(os.Environ(), variable+"="+value)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// told checks the one row that an example leads to.
func told(t *testing.T, rows []*trace.Record) {
	t.Helper()
	if len(rows) != 1 {
		t.Fatalf("%d rows", len(rows))
	}
	r := rows[0]
	if r.EventType != trace.ToolEnd || r.Agent.SessionID != "bugfix-7" || r.Tool.ID != "call-3" || r.Tool.Class != "run_tests" || r.Tool.Status != "succeeded" || *r.Tool.Duration != float64(*r.Tool.Ended-*r.Tool.Started) || r.EventTime != *r.Tool.Ended {
		t.Errorf("%+v, %+v", r, r.Tool)
	}
}

// What an example sends is taken as it comes out of libzmq and msgpack.
func TestLibzmqExample(t *testing.T) {
	l := new(log)
	logger := slog.New(slog.NewTextHandler(l, nil))
	rec := new(recorder)
	in := &toolevents.Intake{Publish: rec.publish, Log: logger}
	bound := make(chan string, 1)
	go (&toolevents.Listener{Endpoint: "tcp://127.0.0.1:*", Topic: "agent-tool-events", Intake: in, Log: logger, Bound: func(at string) { bound <- at }}).Run(t.Context())
	at := <-bound
	python(t, "over_zmq.py", "DYNAGO_TOOL_EVENTS", at)
	until(t, func() bool { return in.ZMQ().Accepted == 1 })
	if c := in.ZMQ(); c != (toolevents.Counts{Accepted: 1}) {
		t.Errorf("%+v", c)
	}
	told(t, rec.rows)
}

// The other example needs neither.
func TestLibzmqExampleOverHTTP(t *testing.T) {
	rec := new(recorder)
	in := &toolevents.Intake{Publish: rec.publish, Log: slog.New(slog.DiscardHandler)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = in.Body(body)
		}
		if err != nil || r.URL.Path != "/v1/agent/tool_events" {
			http.Error(w, "no", http.StatusBadRequest)
		}
	}))
	defer s.Close()
	python(t, "over_http.py", "DYNAGO_URL", s.URL)
	told(t, rec.rows)
}
