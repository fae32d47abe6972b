package trtllm_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/trtllm"
	fake "github.com/dynago/dynago/internal/fake/trtllm"
	"github.com/dynago/dynago/kv"
)

// until reads events until it has seen enough, or fails the test after 30 s.
func until(t *testing.T, a *attached, enough func(kv.Batch) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for b, err := range a.Events(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if enough(b) {
			return
		}
	}
	t.Fatal("not seen within 30 s")
}

// What the server caches is told by the hashes that requests are looked up by.
func TestEvents(t *testing.T) {
	a := attach(t, fake.Config{EventBuffer: 32768}, trtllm.Config{Events: true})
	if c := a.ready(t); !c.Features.Has(engine.FeatureEvents) || c.BlockSize != 32 || c.TotalBlocks != 2048 {
		t.Fatalf("card %+v", c)
	}
	r := &engine.Request{Stop: engine.Stop{MaxTokens: 40}}
	for i := range uint32(100) {
		r.TokenIDs = append(r.TokenIDs, 100+i)
	}
	ids, _, err := collect(t.Context(), a, r)
	if err != nil {
		t.Fatal(err)
	}
	// The block of the last id is not full: 140 tokens, of which the last is not
	// computed, have 4 whole blocks.
	want := kv.AppendLocalHashes(nil, append(slices.Clone(r.TokenIDs), ids...), 32, kv.Namespace{}.Seed())[:4]
	var got []kv.LocalHash
	until(t, a, func(b kv.Batch) bool {
		for _, e := range b.Events {
			for _, block := range e.Blocks {
				got = append(got, block.Local)
			}
		}
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
}

// Folded, the events are what the server's cache holds, evictions included.
func TestEventsFold(t *testing.T) {
	a := attach(t, fake.Config{EventBuffer: 32768}, trtllm.Config{Events: true}, func(a *mock.Args) { a.NumGPUBlocks = 40 })
	a.ready(t)
	work := func() {
		for i := range uint32(60) {
			r := &engine.Request{Stop: engine.Stop{MaxTokens: 1 + int(i%7)*20}}
			for j := range 33 + i*5%300 {
				r.TokenIDs = append(r.TokenIDs, 100+i%4*1000+j*(1+j/150*(i%3)))
			}
			if _, _, err := collect(t.Context(), a, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, want, removed := map[kv.EngineHash]kv.LocalHash{}, map[kv.EngineHash]kv.LocalHash{}, 0
	worked := false
	until(t, a, func(b kv.Batch) bool {
		if !worked { // somebody listens
			worked = true
			work()
			for b, err := range a.mock.Events(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				fold(want, b)
				if b.Snapshot == kv.SnapshotEnd {
					break
				}
			}
		}
		for _, e := range b.Events {
			if e.Kind == kv.Removed {
				removed += len(e.Blocks)
			}
		}
		fold(got, b)
		return maps.Equal(got, want)
	})
	if removed == 0 || len(got) == 0 {
		t.Errorf("%d blocks, %d removed: nothing was tested", len(got), removed)
	}
}

func fold(view map[kv.EngineHash]kv.LocalHash, b kv.Batch) {
	if b.Gap != "" {
		clear(view)
	}
	for _, e := range b.Events {
		for _, block := range e.Blocks {
			switch e.Kind {
			case kv.Stored:
				view[block.Engine] = block.Local
			case kv.Removed:
				delete(view, block.Engine)
			}
		}
	}
}

// A buffer that has overflowed leaves a hole in the numbers, which voids the
// rank; so does another life of the server.
func TestQuirk19LostEvents(t *testing.T) {
	a := attach(t, fake.Config{EventBuffer: 3}, trtllm.Config{Events: true})
	a.ready(t)
	step := 0
	ask := func() {
		step++
		r := &engine.Request{Stop: engine.Stop{MaxTokens: 1}}
		for i := range uint32(32*8 + 1) {
			r.TokenIDs = append(r.TokenIDs, uint32(step)*1000+i)
		}
		for range 8 {
			r.TokenIDs[0]++
			if _, _, err := collect(t.Context(), a, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask()
	seen := 0
	until(t, a, func(b kv.Batch) bool {
		if b.Gap == kv.GapLost {
			return true
		}
		if seen += len(b.Events); seen > 0 {
			ask() // far more than fits until it is asked again
		}
		return false
	})
}

// The epoch is another one exactly when the process is, be it that it says when
// it began or that its count of requests falls.
func TestEpochs(t *testing.T) {
	page := make(chan string, 1)
	page <- ""
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
		case "/v1/models":
			io.WriteString(w, `{"data":[{"id":"m"}]}`)
		case "/prometheus/metrics":
			text := <-page
			page <- text
			io.WriteString(w, text)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(h.Close)
	e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: h.URL}, ContextLength: 100})
	if err != nil {
		t.Fatal(err)
	}
	epoch := func(text string) uint64 {
		t.Helper()
		<-page
		page <- text
		for s, err := range e.Card(t.Context()) { // each begins with a question
			if err != nil || s.State != engine.Ready {
				t.Fatalf("%+v, %v", s, err)
			}
			return s.Epoch
		}
		t.Fatal("no status")
		return 0
	}
	last := epoch("")
	for _, c := range []struct {
		page    string
		another bool
	}{
		{"process_start_time_seconds 100\n", false}, // it tells from now on
		{"process_start_time_seconds 100\n", false},
		{"process_start_time_seconds 101\n", true},
		{`trtllm_request_success_total{a="}"} 7` + "\n", false},
		{`trtllm_request_success_total{a="}"} 9` + "\n", false},
		{`trtllm_request_success_total{a="}"} 2` + "\n", true},
	} {
		now := epoch(c.page)
		if (now != last) != c.another {
			t.Errorf("%q: epoch %d after %d", c.page, now, last)
		}
		last = now
	}
}

// A gauge that is not there is unknown, and so is everything of a server that
// tells nothing or has several ranks.
func TestLoadUnknown(t *testing.T) {
	for _, c := range []struct {
		page  string // "": there is none
		ranks uint32
		want  []string // running, waiting, used, total
	}{
		{"trtllm_num_requests_running{m=\"}\"} 2\ntrtllm_num_requests_waiting 1\ntrtllm_kv_cache_utilization 0.25\ntrtllm_kv_cache_max_blocks 100\n", 1, []string{"2 1 25 100"}},
		{"trtllm_num_requests_running NaN\ntrtllm_num_requests_waiting 1\ntrtllm_kv_cache_max_blocks 100\n# EOF\n", 1, []string{"-1 1 -1 100"}},
		{"trtllm_num_requests_running +Inf\ntrtllm_kv_cache_utilization 0.5\noops\n", 1, []string{"-1 -1 -1 -1"}},
		{"", 1, []string{"-1 -1 -1 -1"}},
		{"trtllm_num_requests_running 2\n", 2, []string{"-1 -1 -1 -1", "-1 -1 -1 -1"}},
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.page == "" {
				http.NotFound(w, r)
				return
			}
			io.WriteString(w, c.page)
		}))
		t.Cleanup(h.Close)
		e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: h.URL}, Ranks: c.ranks})
		if err != nil {
			t.Fatal(err)
		}
		for l, err := range e.Load(t.Context()) {
			var got []string
			for _, r := range l.Ranks {
				got = append(got, fmt.Sprint(r.Running, r.Waiting, r.UsedBlocks, r.TotalBlocks))
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%q: %q, %v, want %q", c.page, got, err, c.want)
			}
			break
		}
	}
}

// A server that can never serve says why, and one that may do so yet waits.
func TestNotReady(t *testing.T) {
	for name, c := range map[string]struct {
		model   string
		context uint32
		state   engine.State
		reason  string
	}{
		"another model": {"other", 100, engine.Failed, "no model other"},
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, `{"data":[{"id":"m"}]}`)
			}))
			t.Cleanup(h.Close)
			e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: h.URL}, Model: c.model, ContextLength: c.context})
			if err != nil {
				t.Fatal(err)
			}
			for s := range e.Card(t.Context()) {
				if s.State != c.state || !strings.Contains(s.Reason, c.reason) || s.Card != nil {
					t.Errorf("%+v, want %s for %q", s, c.state, c.reason)
				}
				break
			}
		})
	}
}

// What the server does not tell is left open for who knows the model's files, and
// bounds no request.
func TestNoContextLength(t *testing.T) {
	e, err := trtllm.New(trtllm.Config{Config: attach(t, fake.Config{}, trtllm.Config{}).config(), Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	for s, err := range e.Card(t.Context()) {
		if err != nil || s.State != engine.Ready || s.Card == nil || s.Card.ContextLength != 0 {
			t.Errorf("%+v, %v", s, err)
		}
		break
	}
	for _, err := range e.Generate(t.Context(), &engine.Request{ID: "1-1", Model: "m", TokenIDs: make([]uint32, 5000), Stop: engine.Stop{MaxTokens: 4}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The server notices late that a client has gone; the client is free at once.
func TestAbortIsLate(t *testing.T) {
	const latency = time.Second
	a := attach(t, fake.Config{AbortLatency: latency}, trtllm.Config{}, slow, func(a *mock.Args) { a.DecodeMS = 20 })
	a.ready(t)
	var left time.Time
	for _, err := range a.Generate(t.Context(), &engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1000}}) {
		if err != nil {
			t.Fatal(err)
		}
		left = time.Now()
		break
	}
	if d := time.Since(left); d > latency/2 {
		t.Errorf("leaving took %v", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for l, err := range a.mock.Load(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if l.Ranks[0].Running == 0 {
			if d := time.Since(left); d < latency {
				t.Errorf("the server was free after %v, want at least %v", d, latency)
			}
			return
		}
	}
	t.Error("the server is not free within 5 s")
}

// Most builds answer with their events only when nothing has happened for two
// seconds, and lose them with a reader who has left by then.
func TestQuirk18EventsAreWaitedFor(t *testing.T) {
	a := attach(t, fake.Config{EventBuffer: 32768, Quiet: 2100 * time.Millisecond}, trtllm.Config{Events: true})
	a.ready(t)
	ids := make([]uint32, 100)
	if _, _, err := collect(t.Context(), a, &engine.Request{TokenIDs: ids, Stop: engine.Stop{MaxTokens: 1}}); err != nil {
		t.Fatal(err)
	}
	until(t, a, func(b kv.Batch) bool {
		if b.Gap == kv.GapLost {
			t.Fatalf("lost: %+v", b)
		}
		return len(b.Events) > 0
	})
}

// Such builds tell of their rounds in the same way, and not while they work: they
// are asked once, and then the load is unknown.
func TestLoadThatIsNotTold(t *testing.T) {
	a := attach(t, fake.Config{NoPrometheus: true, Quiet: 10 * time.Second}, trtllm.Config{})
	a.ready(t)
	n := 0
	began := time.Now()
	for l, err := range a.Load(t.Context()) {
		if err != nil || len(l.Ranks) != 1 || l.Ranks[0].Running != engine.Unknown {
			t.Errorf("%+v, %v", l, err)
		}
		if n++; n == 5 {
			break
		}
	}
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("five readings took %v", d)
	}
}
