package trtllm_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/trtllm"
	fake "github.com/dynago/dynago/internal/fake/trtllm"
	"github.com/dynago/dynago/kv"
)

// A server that tells of its rounds at /metrics alone is read there: its load by
// rank, and what the card lacks otherwise. Rounds that nobody told say nothing.
func TestIterations(t *testing.T) {
	page := make(chan string, 1)
	page <- `[]`
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
		case "/v1/models":
			io.WriteString(w, `{"data":[{"id":"m"}]}`)
		case "/metrics":
			text := <-page
			page <- text
			io.WriteString(w, text)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(h.Close)
	e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: h.URL}, ContextLength: 100, Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	unknown := engine.RankLoad{
		Running: engine.Unknown, Waiting: engine.Unknown, WaitingTokens: engine.Unknown, UsedBlocks: engine.Unknown, TotalBlocks: engine.Unknown,
		PrefixHits: engine.Unknown, PrefixQueries: engine.Unknown, Preemptions: engine.Unknown,
	}
	second := unknown
	second.Rank = 1
	for _, c := range []struct {
		page string
		want []engine.RankLoad // nil: an error
	}{
		{`[]`, []engine.RankLoad{unknown, second}},
		{`[{"numActiveRequests":9},{"numActiveRequests":2,"numQueuedRequests":1,"maxNumActiveRequests":64,"inflightBatchingStats":{"numCtxTokens":33},
			"kvCacheStats":{"maxNumBlocks":100,"usedNumBlocks":25,"tokensPerBlock":32,"reusedBlocks":3,"missedBlocks":1}},
			{"attentionDpRank":7,"numActiveRequests":5}]`, []engine.RankLoad{
			{Running: 2, Waiting: 1, WaitingTokens: 33, UsedBlocks: 25, TotalBlocks: 100, PrefixHits: 96, PrefixQueries: 128, Preemptions: engine.Unknown}, second,
		}},
		{`[]`, []engine.RankLoad{unknown, second}},
		{`[{"attentionDpRank":1,"numActiveRequests":-2,"kvCacheStats":{"usedNumBlocks":-3}}]`, []engine.RankLoad{unknown, second}},
		{`<html>`, nil},
	} {
		<-page
		page <- c.page
		for l, err := range e.Load(t.Context()) {
			if (err == nil) != (c.want != nil) || !slices.Equal(l.Ranks, c.want) {
				t.Errorf("%s: %+v, %v; want %+v", c.page, l.Ranks, err, c.want)
			}
			break
		}
	}
	for s := range e.Card(t.Context()) {
		if c := s.Card; s.State != engine.Ready || c.BlockSize != 32 || c.TotalBlocks != 100 || c.MaxSeqs != 64 || c.DPSize != 2 {
			t.Errorf("%+v", s.Card)
		}
		break
	}
}

// The contract holds for a server without a Prometheus page, too.
func TestLoadOfRounds(t *testing.T) {
	a := attach(t, fake.Config{NoPrometheus: true}, trtllm.Config{}, slow)
	a.ready(t)
	for d, err := range a.Generate(t.Context(), &engine.Request{Model: "m", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 200}}) {
		if err != nil {
			t.Fatal(d, err)
		}
		for l, err := range a.Load(t.Context()) {
			if err != nil || l.Ranks[0].Running != 1 || l.Ranks[0].TotalBlocks != 2048 {
				t.Errorf("%+v, %v", l, err)
			}
			break
		}
		break
	}
}

// Refused credentials end the status: asking again is of no use.
func TestDenied(t *testing.T) {
	a := attach(t, fake.Config{Key: "secret"}, trtllm.Config{})
	n := 0
	for s, err := range a.Card(t.Context()) {
		if n++; engine.KindOf(err) != engine.Denied {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if n != 1 {
		t.Errorf("%d items", n)
	}
}

// A server that says that it goes is draining, and one that is gone is dead.
func TestDraining(t *testing.T) {
	a := attach(t, fake.Config{}, trtllm.Config{})
	before := a.ready(t)
	a.mock.Drain()
	var seen []engine.State
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for s, err := range a.Card(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if seen = append(seen, s.State); s.State == engine.Draining {
			if s.Card == nil || s.Card.Model != before.Model || s.Reason == "" {
				t.Errorf("%+v", s)
			}
			a.http.Close()
		}
		if s.State == engine.Dead {
			break
		}
	}
	if !slices.Equal(seen, []engine.State{engine.Draining, engine.Dead}) {
		t.Errorf("states %v", seen)
	}
}

// Only a server that was there can leave: one that answers the same while it starts
// is loading.
func TestStartingIsNotDraining(t *testing.T) {
	var answer atomic.Int32
	a := attach(t, fake.Config{}, trtllm.Config{})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := int(answer.Load()); status != 0 {
			w.WriteHeader(status)
			return
		}
		a.server.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: h.URL}, ContextLength: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		status int32
		want   engine.State
	}{{503, engine.Loading}, {0, engine.Ready}, {503, engine.Draining}, {500, engine.Loading}, {503, engine.Loading}, {0, engine.Ready}} {
		answer.Store(step.status)
		for s := range e.Card(t.Context()) {
			if s.State != step.want {
				t.Errorf("step %d: %s (%s), want %s", i, s.State, s.Reason, step.want)
			}
			break
		}
	}
}

// An adapter that the operator has not named may be another server's; a server
// whose requests have no place for one can have none.
func TestAdapters(t *testing.T) {
	r := &engine.Request{Model: "m", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}, KV: kv.Directives{Namespace: kv.Namespace{LoRA: "b"}}}
	a := attach(t, fake.Config{}, trtllm.Config{Adapters: []trtllm.Adapter{{Name: "a", ID: 1, Path: "/a"}}})
	if c := a.ready(t); !slices.Equal(c.Adapters, []string{"a"}) || !c.Features.Has(engine.FeatureLoRA) {
		t.Errorf("%+v", c)
	}
	if _, _, err := collect(t.Context(), a, r); engine.KindOf(err) != engine.NotFound {
		t.Errorf("another's adapter: %v", err)
	}
	none := attach(t, fake.Config{}, trtllm.Config{})
	none.ready(t)
	if _, _, err := collect(t.Context(), none, r); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("an adapter where there are none: %v", err)
	}
}

// Cached tokens are as the server counts them, once, and unknown without its word.
func TestQuirk07CachedTokensUnknown(t *testing.T) {
	for body, want := range map[string]int{
		events(one, end, used, "[DONE]"):                                                                          2,
		events(one, end, "[DONE]"):                                                                                -1,
		events(one, end, `{"choices":[],"usage":{"completion_tokens":2}}`):                                        -1,
		events(one, end, `{"choices":[],"usage":{"completion_tokens":2,"prompt_tokens_details":{}}}`):             -1,
		events(one, end, `{"choices":[],"usage":{"prompt_tokens_details":{"cached_tokens":99}}}`):                 3,
		events(one, end, `{"choices":[],"usage":{"prompt_tokens_details":{"cached_tokens":-5}}}`):                 0,
		events(one, end, `{"choices":[],"usage":{"completion_tokens":2,"prompt_tokens_details":null}}`, "[DONE]"): -1,
	} {
		e := stub(t, sse(body))
		_, last, err := collect(t.Context(), e, &engine.Request{TokenIDs: []uint32{1, 2, 3}, Stop: engine.Stop{MaxTokens: 5}})
		if err != nil || (last.Usage.Cached == nil) != (want < 0) || want >= 0 && *last.Usage.Cached != want {
			t.Errorf("%s: %+v, %v; want %d", body, last.Usage, err, want)
		}
	}
}

// A last event that has all ids again changes neither the answer nor its count.
func TestQuirk17AllIDsAgain(t *testing.T) {
	e := stub(t, sse(events(one, end, `{"choices":[{"token_ids":[7,8],"finish_reason":"length"}],"usage":{"completion_tokens":2}}`, "[DONE]")))
	ids, last, err := collect(t.Context(), e, &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 5}})
	if err != nil || !slices.Equal(ids, []uint32{7, 8}) || last.Usage.Output != 2 {
		t.Errorf("%v, %+v, %v", ids, last.Usage, err)
	}
}

// The route that makes a token to see whether the server is well queues like any
// other request: it is no probe.
func TestQuirk23HealthIsNotAskedByGenerating(t *testing.T) {
	a := attach(t, fake.Config{}, trtllm.Config{})
	var made atomic.Int32
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health_generate" || r.URL.Path == "/v1/completions" {
			made.Add(1)
		}
		a.server.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: h.URL}, ContextLength: 100, LoadEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for range e.Card(t.Context()) {
		break
	}
	n := 0
	for range e.Load(t.Context()) {
		if n++; n == 3 {
			break
		}
	}
	if made.Load() > 0 {
		t.Errorf("%d tokens were made for nobody", made.Load())
	}
}

func sse(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, body)
	}
}

// manyRanks is an engine of several ranks behind one server.
func manyRanks(a *mock.Args) { a.DPSize = 4 }

// The rounds of each rank are told apart.
func TestRoundsOfRanks(t *testing.T) {
	a := attach(t, fake.Config{NoPrometheus: true}, trtllm.Config{Ranks: 4}, manyRanks)
	a.ready(t)
	for l, err := range a.Load(t.Context()) {
		told := 0
		for i, r := range l.Ranks {
			if r.Rank != uint32(i) {
				t.Errorf("rank %d at place %d", r.Rank, i)
			}
			if r.TotalBlocks == 2048 {
				told++
			}
		}
		if err != nil || len(l.Ranks) != 4 || told == 0 {
			t.Errorf("%+v, %v", l, err)
		}
		break
	}
}

// Silence is told from death.
func TestSilenceIsNotDeath(t *testing.T) {
	a := attach(t, fake.Config{}, trtllm.Config{})
	enginetest.Silence(t, a.server, func(t *testing.T, url string) engine.Engine {
		e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: url}, ContextLength: 100})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	})
}
