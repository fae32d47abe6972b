package trtllm_test

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/trtllm"
	fake "github.com/dynago/dynago/internal/fake/trtllm"
	"github.com/dynago/dynago/kv"
)

// Entries of /metrics are told once, and whoever reads them takes them from the
// operator; /health_generate queues like a request. Neither is ever asked.
func TestQuirk18TakesNothingAway(t *testing.T) {
	a := attach(t, fake.Config{EventBuffer: 1000}, trtllm.Config{})
	var mu sync.Mutex
	var asked []string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.Path)
		mu.Unlock()
		a.server.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: h.URL}, ContextLength: 100})
	if err != nil {
		t.Fatal(err)
	}
	for s := range e.Card(t.Context()) {
		if s.State != engine.Ready || s.Card.Features.Has(engine.FeatureEvents) {
			t.Errorf("%+v", s)
		}
		break
	}
	for _, err := range e.Load(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	if _, _, err := collect(t.Context(), e, &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 3}}); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/metrics", "/perf_metrics", "/health_generate", "/kv_cache_events"} {
		if slices.Contains(asked, path) {
			t.Errorf("%s was asked, by one who does not own it: %q", path, asked)
		}
	}
	if !slices.Contains(asked, "/health") || !slices.Contains(asked, "/prometheus/metrics") {
		t.Errorf("asked %q", asked)
	}
}

// The server tells each event once, so it is asked by one reader alone, however
// many there are here: each of them gets all.
func TestQuirk18OneReaderOfEvents(t *testing.T) {
	a := attach(t, fake.Config{EventBuffer: 1000}, trtllm.Config{Events: true})
	a.ready(t)
	if _, _, err := collect(t.Context(), a, &engine.Request{TokenIDs: make([]uint32, 40), Stop: engine.Stop{MaxTokens: 1}}); err != nil {
		t.Fatal(err)
	}
	stored := func() (blocks int) {
		until(t, a, func(b kv.Batch) bool {
			for _, e := range b.Events {
				blocks += len(e.Blocks)
			}
			return blocks > 0
		})
		return blocks
	}
	if first, second := stored(), stored(); first != 1 || second != 1 {
		t.Errorf("one reader was told of %d blocks and another of %d, want 1 each", first, second)
	}
}

// One member that the server does not know is a 400 with its name, so that the
// bodies of TestBodies are known to be clean.
func TestQuirk15TheFakeIsStrict(t *testing.T) {
	for _, old := range []bool{false, true} {
		a := attach(t, fake.Config{Old: old}, trtllm.Config{})
		c, err := httpapi.New(httpapi.Config{URL: a.http.URL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		for body, want := range map[string]bool{
			`{"model":"m","prompt":[1],"max_tokens":2}`:                                true,
			`{"model":"m","prompt":[1],"max_tokens":2,"cache_salt":"x"}`:               false,
			`{"model":"m","prompt":[1],"max_tokens":2,"request_id":"x"}`:               false,
			`{"model":"m","prompt":[1],"max_tokens":2,"priority":0.5}`:                 !old,
			`{"model":"m","prompt":[1],"max_tokens":2,"priority":3}`:                   false,
			`{"model":"m","prompt":[1],"stream_options":{"include_usage":true}}`:       false,
			`{"model":"m","prompt":[1],"max_tokens":1,"disaggregated_params":{"a":1}}`: false,
			`{"model":"m","prompt":[1],"max_tokens":2,"thinking_token_budget":10}`:     !old,
			`{"model":"m","prompt":[],"max_tokens":2}`:                                 false,
			`{"model":"m","prompt":[1],"max_tokens":1,"disaggregated_params":{"a":1}`:  false,
		} {
			_, err := c.Post(t.Context(), "/v1/completions", nil, []byte(body))
			if (err == nil) != want || err != nil && engine.KindOf(err) != engine.InvalidArgument {
				t.Errorf("old %v: %s: %v, want it taken: %v", old, body, err, want)
			}
		}
	}
}

// A probability of none is passed on as it is, whichever floor it has. Those that
// do not match the ids are no answer.
func TestQuirk33LogprobFloors(t *testing.T) {
	ask := func(logprobs string) (list []engine.Logprob, err error) {
		e := stub(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, events(`{"choices":[{"token_ids":[7,8],"finish_reason":"length","logprobs":`+logprobs+`}]}`))
		})
		k := 2
		for d, err := range e.Generate(t.Context(), &engine.Request{TokenIDs: []uint32{1}, Logprobs: &k, Stop: engine.Stop{MaxTokens: 2}}) {
			if err != nil {
				return nil, err
			}
			list = append(list, d.Logprobs...)
		}
		return list, nil
	}
	got, err := ask(`{"token_logprobs":[-9999,null],"top_logprobs":[{"a":-0.5,"b":-9999},{}]}`)
	if err != nil || len(got) != 2 || got[0].ID != 7 || got[0].Logprob != -9999 || got[0].Rank != 2 || got[1].ID != 8 || !math.IsInf(got[1].Logprob, -1) || got[1].Rank != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{`null`, `{}`, `{"token_logprobs":[-1]}`} {
		if got, err := ask(bad); err == nil || engine.KindOf(err) != engine.Internal {
			t.Errorf("%s: %+v, %v", bad, got, err)
		}
	}
}

// What a server's program is, is asked for once: the description is long. After
// the server was away it may be another program.
func TestDescribedOnce(t *testing.T) {
	a := attach(t, fake.Config{}, trtllm.Config{})
	var described, down atomic.Int32
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi.json" {
			described.Add(1)
		}
		if down.Load() > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		a.server.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: h.URL}, ContextLength: 100})
	if err != nil {
		t.Fatal(err)
	}
	look := func(want engine.State, times int32) {
		t.Helper()
		for s := range e.Card(t.Context()) {
			if s.State != want || described.Load() != times {
				t.Errorf("%s (%s) and described %d times, want %s and %d", s.State, s.Reason, described.Load(), want, times)
			}
			return
		}
	}
	look(engine.Ready, 1)
	look(engine.Ready, 1)
	down.Store(1)
	look(engine.Draining, 1)
	down.Store(0)
	look(engine.Ready, 2)
	look(engine.Ready, 2)
	a.server.Restart()
	look(engine.Ready, 2) // seen just now, and asked for with the next look
	look(engine.Ready, 3)
}
