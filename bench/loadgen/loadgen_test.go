package loadgen_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/bench/loadgen"
)

// request is what the double below understands of a chat.
type request struct {
	Messages      []struct{ Role, Content string }
	MaxTokens     int `json:"max_tokens"`
	Seed          int
	Stream        bool
	IgnoreEOS     bool `json:"ignore_eos"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (r *request) token(i int) string { return fmt.Sprintf("w%d-%d ", r.Seed, i) }

// double is a chat server that answers with as many tokens as it may, and that
// an option makes misbehave.
type double struct {
	served  atomic.Int64
	answers func(w http.ResponseWriter, r *request, n int64) bool // true: it has answered
}

func (d *double) start(t *testing.T) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"acme/double"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, h *http.Request) {
		var r request
		if err := json.NewDecoder(h.Body).Decode(&r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if n := d.served.Add(1); d.answers != nil && d.answers(w, &r, n) {
			return
		}
		if r.Stream {
			writeStream(w, &r, r.MaxTokens)
			fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", r.MaxTokens)
			return
		}
		var text strings.Builder
		for i := range r.MaxTokens {
			text.WriteString(r.token(i))
		}
		fmt.Fprintf(w, `{"choices":[{"message":{"content":%q},"finish_reason":"length"}],"usage":{"completion_tokens":%d}}`, text.String(), r.MaxTokens)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// writeStream writes n token chunks, the last with a finish reason if it is the
// answer's last.
func writeStream(w http.ResponseWriter, r *request, n int) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range n {
		finish := "null"
		if i == r.MaxTokens-1 {
			finish = `"length"`
		}
		fmt.Fprintf(w, ": comment\n\ndata: {\"choices\":[{\"delta\":{\"content\":%q},\"finish_reason\":%s}],\"usage\":null}\n\n", r.token(i), finish)
		http.NewResponseController(w).Flush()
	}
}

func config(url string, mode loadgen.Mode) loadgen.Config {
	return loadgen.Config{
		URL: url, Mode: mode, Concurrency: 3, Requests: 20, PromptWords: 5, LongWords: 50,
		MaxTokens: 8, Prompts: 6, Seed: 1, HangAfter: 10 * time.Second,
	}
}

func run(t *testing.T, c loadgen.Config) loadgen.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	result, err := loadgen.Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestLoad(t *testing.T) {
	for _, mode := range []loadgen.Mode{loadgen.Unary, loadgen.Stream} {
		t.Run(string(mode), func(t *testing.T) {
			var d double
			got := run(t, config(d.start(t), mode))
			if got.Requests != 20 || got.Tokens != 160 || got.Failures() != 0 || d.served.Load() != 20 {
				t.Errorf("result %+v with %d served, want 20 requests of 8 tokens each", got, d.served.Load())
			}
			if got.Model != "acme/double" {
				t.Errorf("model %q, want the server's first", got.Model)
			}
			if got.Whole.Count != 20 || got.Whole.P50 <= 0 {
				t.Errorf("latency %+v, want 20 samples", got.Whole)
			}
			if mode == loadgen.Stream && (got.Events != 20*9 || got.FirstEvent.Count != 20 || got.Gap.Count != 20*8) {
				t.Errorf("%d events, first %+v, gaps %+v; want 9 a stream", got.Events, got.FirstEvent, got.Gap)
			}
		})
	}
}

func TestDurationEndsTheLoad(t *testing.T) {
	var d double
	c := config(d.start(t), loadgen.Unary)
	c.Requests, c.Duration = 0, time.Millisecond
	if got := run(t, c); got.Requests != int(d.served.Load()) || got.Requests == 0 {
		t.Errorf("%d requests counted, %d served; want all and at least one", got.Requests, d.served.Load())
	}
}

func TestSecondServerIsAskedInTurn(t *testing.T) {
	var first, second double
	c := config(first.start(t), loadgen.Unary)
	c.Against = second.start(t)
	got := run(t, c)
	if first.served.Load() != 20 || second.served.Load() != 20 {
		t.Errorf("served %d and %d, want 20 each", first.served.Load(), second.served.Load())
	}
	if got.Requests != 20 || got.Against == nil || got.Against.Count != 20 {
		t.Errorf("result %+v, want 20 answers of each server, apart", got)
	}
}

func TestRequestsCarryWhatWasAskedFor(t *testing.T) {
	var mu sync.Mutex
	prompts := map[string]bool{}
	d := double{answers: func(_ http.ResponseWriter, r *request, _ int64) bool {
		mu.Lock()
		defer mu.Unlock()
		prompts[r.Messages[0].Content] = true
		if len(strings.Fields(r.Messages[0].Content)) != 5 || !r.IgnoreEOS || !r.StreamOptions.IncludeUsage || r.Seed != 1 {
			t.Errorf("request %+v", r)
		}
		return false
	}}
	c := config(d.start(t), loadgen.Stream)
	c.IgnoreEOS = true
	run(t, c)
	if len(prompts) != 6 {
		t.Errorf("%d different prompts, want 6", len(prompts))
	}
}

// TestBadAnswersAreNotDone lets the tenth request go wrong in each way.
func TestBadAnswersAreNotDone(t *testing.T) {
	tests := []struct {
		name   string
		stream bool
		answer func(http.ResponseWriter, *request)
		reason string
	}{
		{"status", false, func(w http.ResponseWriter, _ *request) {
			http.Error(w, `{"error":"all busy"}`, http.StatusServiceUnavailable)
		}, `status 503: {"error":"all busy"}`},
		{"not JSON", false, func(w http.ResponseWriter, _ *request) { fmt.Fprint(w, "hello") }, "answer: "},
		{"no finish", false, func(w http.ResponseWriter, _ *request) {
			fmt.Fprint(w, `{"choices":[{"message":{}}],"usage":{}}`)
		}, "answer: no finish_reason"},
		{"error in stream", true, func(w http.ResponseWriter, r *request) {
			writeStream(w, r, 3)
			fmt.Fprint(w, "data: {\"error\":{\"message\":\"engine died\"}}\n\ndata: [DONE]\n\n")
		}, "error in stream: engine died"},
		{"stream without done", true, func(w http.ResponseWriter, r *request) { writeStream(w, r, 8) }, "unexpected EOF"},
		{"done without finish", true, func(w http.ResponseWriter, r *request) {
			writeStream(w, r, 3)
			fmt.Fprint(w, "data: [DONE]\n\n")
		}, "stream: [DONE] without a finish_reason"},
		{"connection cut", true, func(w http.ResponseWriter, r *request) {
			writeStream(w, r, 3)
			panic(http.ErrAbortHandler)
		}, "unexpected EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := double{answers: func(w http.ResponseWriter, r *request, n int64) bool {
				if n == 10 {
					tt.answer(w, r)
				}
				return n == 10
			}}
			mode := loadgen.Unary
			if tt.stream {
				mode = loadgen.Stream
			}
			got := run(t, config(d.start(t), mode))
			if got.Requests != 19 || got.Failures() != 1 {
				t.Fatalf("%d done, failed %v; want 19 and one failure", got.Requests, got.Failed)
			}
			for reason := range got.Failed {
				if !strings.HasPrefix(reason, tt.reason) {
					t.Errorf("reason %q, want %q", reason, tt.reason)
				}
			}
		})
	}
}

func TestHungAnswerIsCountedAndDropped(t *testing.T) {
	release := make(chan struct{})
	d := double{answers: func(_ http.ResponseWriter, _ *request, n int64) bool {
		if n == 10 {
			<-release
		}
		return n == 10
	}}
	c := config(d.start(t), loadgen.Unary)
	t.Cleanup(func() { close(release) })
	c.HangAfter = 300 * time.Millisecond
	if got := run(t, c); got.Hung != 1 || got.Requests != 19 {
		t.Errorf("hung %d, done %d, failed %v; want 1 and 19", got.Hung, got.Requests, got.Failed)
	}
}

func TestHold(t *testing.T) {
	var gone sync.WaitGroup
	gone.Add(20)
	silent := make(chan struct{})
	d := double{answers: func(w http.ResponseWriter, r *request, _ int64) bool {
		defer gone.Done()
		writeStream(w, r, 1)
		<-silent
		return true
	}}
	release := make(chan struct{})
	c := config(d.start(t), loadgen.Hold)
	c.Concurrency, c.Release = 20, release
	var held loadgen.Result
	c.Held = func(r loadgen.Result) {
		held = r
		close(release)
	}
	got := run(t, c)
	close(silent)
	gone.Wait()
	if held.Open != 20 || got.Open != 20 || got.Failures() != 0 || got.FirstEvent.Count != 20 {
		t.Errorf("held %d, at the end %+v; want 20 open streams", held.Open, got)
	}
}

func TestHoldTellsOfStreamsThatEnd(t *testing.T) {
	release := make(chan struct{})
	var d double // ends every stream at once
	c := config(d.start(t), loadgen.Hold)
	c.Release = release
	c.Held = func(loadgen.Result) { close(release) }
	if got := run(t, c); got.Open+got.Failures() != 3 {
		t.Errorf("open %d, failed %v; want every stream accounted for", got.Open, got.Failed)
	}
}

func TestSoak(t *testing.T) {
	var d double
	c := config(d.start(t), loadgen.Soak)
	c.Requests, c.AbortShare = 400, 0.25
	got := run(t, c)
	if got.Wrong != 0 || got.Hung != 0 || got.Failures() != 0 {
		t.Errorf("result %+v, want nothing wrong", got)
	}
	if got.Requests+got.Aborted != 400 || got.Aborted < 40 || got.Aborted > 160 {
		t.Errorf("%d done and %d aborted, want 400 in all and about a quarter aborted", got.Requests, got.Aborted)
	}
}

func TestSoakFindsWrongAnswers(t *testing.T) {
	d := double{answers: func(_ http.ResponseWriter, r *request, n int64) bool {
		if n%10 == 0 {
			r.Seed++ // another answer than the first time
		}
		return false
	}}
	c := config(d.start(t), loadgen.Soak)
	c.Requests = 200
	got := run(t, c)
	if got.Wrong < 15 || got.Wrong > 21 || got.Requests != 200 {
		t.Errorf("%d wrong of %d, want each tenth of 200", got.Wrong, got.Requests)
	}
	if !strings.Contains(got.FirstWrong, "first answer was 8 tokens") {
		t.Errorf("example %q, want both answers shown", got.FirstWrong)
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	tests := []struct {
		change func(*loadgen.Config)
		want   string
	}{
		{func(c *loadgen.Config) { c.Mode = "burst" }, `mode "burst": want unary, stream, hold or soak`},
		{func(c *loadgen.Config) { c.Concurrency = 0 }, "concurrency 0"},
		{func(c *loadgen.Config) { c.MaxTokens = 0 }, "max tokens 0"},
		{func(c *loadgen.Config) { c.PromptWords = 0 }, "prompt words 0"},
		{func(c *loadgen.Config) { c.AbortShare = 2 }, "abort share 2"},
		{func(c *loadgen.Config) { c.HangAfter = 0 }, "hang after 0s"},
		{func(c *loadgen.Config) { c.Requests = 0 }, "has no end"},
		{func(c *loadgen.Config) { c.Mode = loadgen.Hold }, "has no end"},
		{func(c *loadgen.Config) { c.Mode, c.Prompts = loadgen.Soak, 0 }, "soak: 0 prompts"},
		{func(c *loadgen.Config) { c.URL = "https://127.0.0.1" }, "want http://host:port"},
	}
	for _, tt := range tests {
		c := config("http://127.0.0.1:1", loadgen.Unary)
		tt.change(&c)
		if _, err := loadgen.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

// Requests of one conversation begin with the same messages and end with one of
// their own; another load with the same seed repeats what has the same number.
func TestConversations(t *testing.T) {
	type seen struct{ past, message string }
	var mu sync.Mutex
	var asked []seen
	d := double{answers: func(_ http.ResponseWriter, r *request, _ int64) bool {
		mu.Lock()
		defer mu.Unlock()
		last := len(r.Messages) - 1
		past, bytes := fmt.Sprint(r.Messages[:last]), 0
		for i, m := range r.Messages[:last] {
			bytes += len(m.Content)
			want := []string{"assistant", "user"}[i%2]
			if i == 0 {
				want = "system"
			}
			if m.Role != want {
				t.Errorf("message %d of %d is of %q, want %q", i, last+1, m.Role, want)
			}
		}
		if bytes < 30_000 || bytes > 30_100 || len(r.Messages[last].Content) != 5000 || r.Messages[last].Role != "user" {
			t.Errorf("%d bytes of past, %d of message by %q; want 30000 and 5000 by the user", bytes, len(r.Messages[last].Content), r.Messages[last].Role)
		}
		asked = append(asked, seen{past, r.Messages[last].Content})
		return false
	}}
	c := config(d.start(t), loadgen.Stream)
	c.Prompts, c.Requests, c.Concurrency = 0, 4, 1
	c.HistoryBytes, c.MessageBytes, c.Conversations = 30_000, 5000, 2
	run(t, c)
	c.First, c.Requests = 2, 2
	run(t, c)

	if len(asked) != 6 {
		t.Fatalf("%d requests came, want 6", len(asked))
	}
	for i, a := range asked {
		for k, b := range asked[:i] {
			again := i >= 4 && k == i-2
			if (a.past == b.past) != (i%2 == k%2) || (a.message == b.message) != again {
				t.Errorf("requests %d and %d: same past %v, same message %v", i, k, a.past == b.past, a.message == b.message)
			}
		}
	}
}

func TestUsageOfPrompts(t *testing.T) {
	d := double{answers: func(w http.ResponseWriter, _ *request, n int64) bool {
		fmt.Fprintf(w, `{"choices":[{"message":{"content":"a"},"finish_reason":"length"}],`+
			`"usage":{"completion_tokens":1,"prompt_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}`, 100*n, 10*n)
		return true
	}}
	c := config(d.start(t), loadgen.Unary)
	c.Requests = 3
	got := run(t, c)
	if want := (loadgen.Range{Min: 100, Max: 300, Mean: 200}); got.PromptTokens != want {
		t.Errorf("prompts %+v, want %+v", got.PromptTokens, want)
	}
	if want := (loadgen.Range{Min: 10, Max: 30, Mean: 20}); got.CachedTokens != want {
		t.Errorf("cached %+v, want %+v", got.CachedTokens, want)
	}
}
