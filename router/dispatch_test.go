package router_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// What is settled is booked where everybody else would have to wait.
func TestSettled(t *testing.T) {
	h := newHouse(t, router.Config{QueueThreshold: new(0.0)})
	h.join(1, card(func(c *engine.Card) { c.MaxBatchedTokens = 8 }))
	defer h.route(router.Query{Model: "m", Tokens: count(0, 16)}).Release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pin := router.Query{Model: "m", Tokens: count(50, 16), PinWorker: 1}
	if b, err := h.router.Route(ctx, &pin); err == nil {
		t.Fatalf("a pinned request has not waited: %+v", b.Decision())
	}
	pin.Settled = true
	b, err := h.router.Route(t.Context(), &pin)
	if err != nil {
		t.Fatal(err)
	}
	if l := h.router.Loads()[0]; l.Requests != 2 || l.PrefillTokens != 32 {
		t.Errorf("load %+v", l)
	}
	b.Release()
}

// Who keeps the tokens to himself tells the sequence, and what is left to compute.
func TestSequenceAlone(t *testing.T) {
	h := newHouse(t, router.Config{})
	h.join(1, card())
	prompt := count(0, 18)
	seq := kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, prompt, 4, kv.HashSeed))
	first := h.route(router.Query{Model: "m", Tokens: prompt})
	defer first.Release()
	b := h.route(router.Query{Model: "m", Hashes: &router.Hashes{Seq: seq, Tokens: 18}, Uncached: new(5)})
	if d := b.Decision(); d.CachedTokens != 13 || d.Device != 0 {
		t.Errorf("decision %+v", d)
	}
	if l := h.router.Loads()[0]; l.PrefillTokens != 23 || l.ActiveBlocks != 4 {
		t.Errorf("load %+v; the blocks are those of the prompt before", l)
	}
	b.Release()
	for _, more := range []int{-1, 100} { // absurd ones stay within the prompt
		b := h.route(router.Query{Model: "m", Tokens: count(900, 8), Uncached: &more})
		if got := b.Decision().CachedTokens; got < 0 || got > 8 {
			t.Errorf("%d left to compute: %d of 8 tokens cached", more, got)
		}
		b.Release()
	}
}

// Blocks of an answer that are told of count, and weigh as much as they are told
// to.
func TestOutputBlock(t *testing.T) {
	h := newHouse(t, router.Config{})
	h.join(1, card())
	b := h.route(router.Query{Model: "m", Tokens: count(0, 18), Expected: 8})
	active := func() int { return h.router.Loads()[0].ActiveBlocks }
	if active() != 4 {
		t.Fatalf("%d blocks of the prompt", active())
	}
	b.OutputBlock(new(1.0))
	if active() != 5 {
		t.Errorf("%d blocks with one of the answer, want 5", active())
	}
	b.OutputBlock(nil) // all that was expected is there
	if active() != 0 {
		t.Errorf("%d blocks, want 0: the answer is as long as it was to be", active())
	}
	b.OutputBlock(new(0.5))
	if active() != 4 { // half of seven
		t.Errorf("%d blocks, want 4", active())
	}
	b.Release()
	b.OutputBlock(nil)
	if active() != 0 {
		t.Errorf("%d blocks are left", active())
	}

	off := router.DefaultTuning()
	off.TrackActiveBlocks = false
	h = newHouse(t, router.Config{Tuning: &off})
	h.join(1, card())
	b = h.route(router.Query{Model: "m", Tokens: count(0, 18)})
	b.OutputBlock(nil)
	if got := h.router.Loads()[0].ActiveBlocks; got != 0 {
		t.Errorf("%d blocks count where none should", got)
	}
	b.Release()
}

func TestBooked(t *testing.T) {
	h := newHouse(t, router.Config{})
	h.join(1, card())
	q := router.Query{ID: "a", Model: "m", Tokens: count(0, 4)}
	b, err := h.router.Book(t.Context(), &q)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.router.Booked("a"); err != nil || got != b {
		t.Errorf("booked %p, found %p: %v", b, got, err)
	}
	b.Release()
	if _, err := h.router.Booked("a"); engine.KindOf(err) != engine.NotFound {
		t.Errorf("after its end: %v", err)
	}
}

func TestNeedsCapacity(t *testing.T) {
	file, err := router.ParsePolicyFile([]byte(`
models:
  absolute: {default_policy_family: d, uncached_isl_buckets: [{min_tokens: 0, bucket: all}], policy_classes: [{name: a, policy_family: d, cache_bucket: all, quantum: 1, prefill_busy_threshold: 5}]}
  fraction: {default_policy_family: d, uncached_isl_buckets: [{min_tokens: 0, bucket: all}], policy_classes: [{name: a, policy_family: d, cache_bucket: all, quantum: 1, prefill_busy_threshold_frac: 1.5}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		config router.Config
		want   []bool
	}{
		"no queue":  {router.Config{}, []bool{false, false, false}},
		"threshold": {router.Config{QueueThreshold: new(1.0)}, []bool{true, true, true}},
		"file":      {router.Config{PolicyFile: file}, []bool{false, true, false}},
		"both":      {router.Config{PolicyFile: file, QueueThreshold: new(1.0)}, []bool{false, true, true}},
	} {
		h := newHouse(t, tt.config)
		var got []bool
		for _, model := range []string{"absolute", "fraction", "other"} {
			got = append(got, h.router.NeedsCapacity(model))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// A dump tells an empty index what this one knows.
func TestDump(t *testing.T) {
	h := newHouse(t, router.Config{})
	h.join(1, card())
	h.caches(1, 1, kv.TierHost, count(0, 12))
	blocks := 0
	for e := range h.router.Dump(kv.Target{Worker: 1}) {
		if e.Kind != kv.Stored || e.Tier != kv.TierHost {
			t.Errorf("event %+v", e)
		}
		blocks += len(e.Blocks)
	}
	if blocks != 3 {
		t.Errorf("%d blocks, want 3", blocks)
	}
}

// A forecast is for each of several answers, whose output comes as one number.
func TestForecastOfSeveralAnswers(t *testing.T) {
	tuning := router.DefaultTuning()
	tuning.TrackOutputBlocks = true
	h := newHouse(t, router.Config{Tuning: &tuning})
	defer h.fleet.Close()
	h.join(1, card())
	b := h.route(router.Query{Model: "m", Tokens: count(0, 8), Expected: 8, Choices: 2})
	defer b.Release()
	b.Output(8)
	if got := h.router.Loads()[0].ActiveBlocks; got != 2 { // half of two and two
		t.Errorf("%d blocks, want 2", got)
	}
	b.OutputBlock(new(math.NaN()))                         // as much as was expected
	if got := h.router.Loads()[0].ActiveBlocks; got != 1 { // a quarter of five
		t.Errorf("%d blocks, want 1", got)
	}
}
