package frontend_test

import (
	"context"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

// While the server drains, what runs goes on, what is new is refused, and
// health says so.
func TestDrain(t *testing.T) {
	more := make(chan struct{})
	backend := newFake()
	backend.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(beginning(), func(yield func(chat.Event, error) bool) {
			<-more
			for _, e := range helloEvents()[3:] {
				yield(e, nil)
			}
		})
	}
	s := start(t, backend)
	resp := s.open("POST", "/v1/chat/completions", strings.NewReader(askStream))
	defer resp.Body.Close()

	drained := make(chan int)
	go func() { drained <- s.Drain(context.Background()) }()
	eventually(t, func() bool { return s.do("GET", "/health", "").status == 503 }, func() string { return "health does not tell" })
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/health", "", 503, `{"status":"not_ready","stage":"draining","message":"Service is not ready"}`},
		{"GET", "/live", "", 200, `"live"`},
		{"GET", "/ready", "", 503, `"draining"`},
		{"GET", "/metrics", "", 200, "dynamo_frontend_active_requests"},
		{"POST", "/v1/chat/completions", ask, 503, "Service is not ready"},
		{"POST", "/v1/chat/completions", askStream, 503, "Service is not ready"},
		{"POST", "/tokenize", `{"model":"demo","prompt":"x"}`, 503, "Service is not ready"},
	} {
		a := s.do(c.method, c.path, c.body)
		if a.status != c.status || !strings.Contains(a.body, c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.status, a.body)
		}
		if c.status == 503 && c.method == "POST" && a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: no Retry-After", c.path)
		}
	}
	select {
	case <-drained:
		t.Fatal("drained although a stream runs")
	default:
	}
	close(more)
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") || strings.Contains(string(body), "error") {
		t.Errorf("%s %v", body, err)
	}
	if cut := <-drained; cut != 0 {
		t.Errorf("%d requests were cut", cut)
	}
}

// When time is up the rest is cut, and told so.
func TestDrainCuts(t *testing.T) {
	backend, causes := untilCancelled(beginning())
	s := start(t, backend)
	resp := s.open("POST", "/v1/chat/completions", strings.NewReader(askStream))
	defer resp.Body.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if cut := s.Drain(ctx); cut != 1 {
		t.Errorf("%d requests were cut, want 1", cut)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %v", took)
	}
	if cause := <-causes; cause != engine.ErrShutdown {
		t.Errorf("cause: %v", cause)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(body), "\"status\":503}\n\ndata: [DONE]\n\n") {
		t.Errorf("%s %v", body, err)
	}
}

func TestServeAfterDrain(t *testing.T) {
	s := start(t, newFake())
	s.do("GET", "/live", "")
	s.Drain(context.Background())
	if resp, err := s.http.Get(s.url + "/live"); err == nil {
		resp.Body.Close()
		t.Error("the listener is still open")
	}
}
