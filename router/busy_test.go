package router

import (
	"context"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// idleRank has nothing to do and 1000 blocks.
func idleRank() strain {
	return strain{decodeBlocks: engine.Unknown, usedBlocks: engine.Unknown, totalBlocks: 1000, perPass: 100}
}

func TestBusyPrefill(t *testing.T) {
	for name, c := range map[string]struct {
		t      Thresholds
		change func(*strain)
		want   bool
	}{
		"none":                      {Thresholds{}, func(s *strain) { s.prefillTokens, s.decodeBlocks = 1e9, 1000 }, false},
		"at the bound":              {Thresholds{ActivePrefillTokens: new(uint64(50))}, func(s *strain) { s.prefillTokens = 50 }, false},
		"above it":                  {Thresholds{ActivePrefillTokens: new(uint64(50))}, func(s *strain) { s.prefillTokens = 51 }, true},
		"bound 0, idle":             {Thresholds{ActivePrefillTokens: new(uint64(0))}, func(s *strain) {}, false},
		"bound 0, something":        {Thresholds{ActivePrefillTokens: new(uint64(0))}, func(s *strain) { s.prefillTokens = 1 }, true},
		"a bound beyond all":        {Thresholds{ActivePrefillTokens: new(uint64(math.MaxUint64))}, func(s *strain) { s.prefillTokens = math.MaxInt64 }, false},
		"fraction, at its floor":    {Thresholds{ActivePrefillTokensFrac: new(1.509)}, func(s *strain) { s.prefillTokens = 150 }, false},
		"fraction, above its floor": {Thresholds{ActivePrefillTokensFrac: new(1.509)}, func(s *strain) { s.prefillTokens = 151 }, true},
		"fraction of the unknown":   {Thresholds{ActivePrefillTokensFrac: new(0.5)}, func(s *strain) { s.perPass, s.prefillTokens = 0, 5_000_000 }, false},
		"and above it":              {Thresholds{ActivePrefillTokensFrac: new(0.5)}, func(s *strain) { s.perPass, s.prefillTokens = 0, 5_000_001 }, true},
		"either will do": {
			Thresholds{ActivePrefillTokens: new(uint64(1000)), ActivePrefillTokensFrac: new(1.0)},
			func(s *strain) { s.prefillTokens = 101 }, true,
		},
	} {
		s := idleRank()
		c.change(&s)
		if got := new(rankState).busy(&c.t, s); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What is told of the blocks in use, step by step: by the books, and by the
// engine. The threshold is 500 of 1000.
func TestBusyLatch(t *testing.T) {
	const never = engine.Unknown
	type step struct {
		decode, used int64
		want         bool
	}
	for name, steps := range map[string][]step{
		"the books set and clear it":            {{400, never, false}, {501, never, true}, {499, never, false}},
		"at the bound it stays":                 {{500, never, false}, {501, never, true}, {500, never, true}, {499, never, false}, {500, never, false}},
		"the engine sets and clears it":         {{never, 501, true}, {never, 500, true}, {never, 0, false}},
		"either sets it, both clear it":         {{501, 10, true}, {10, 600, true}, {10, 500, true}, {10, 499, false}},
		"one at the bound keeps it":             {{600, 600, true}, {500, 0, true}, {0, 500, true}, {499, 499, false}},
		"the engine falls silent":               {{10, 600, true}, {10, never, false}},
		"nothing was ever told":                 {{never, never, false}},
		"full by the books, not for the engine": {{1000, 0, true}, {0, 0, false}},
	} {
		limits := Thresholds{ActiveDecodeBlocks: new(0.5)}
		var r rankState
		for i, step := range steps {
			s := idleRank()
			s.decodeBlocks, s.usedBlocks = step.decode, step.used
			if got := r.busy(&limits, s); got != step.want {
				t.Errorf("%s, step %d: %v", name, i, got)
			}
		}
	}
}

func TestBusyWithoutCapacity(t *testing.T) {
	limits := Thresholds{ActiveDecodeBlocks: new(0.0)}
	var r rankState
	s := idleRank()
	s.decodeBlocks = 1
	if !r.busy(&limits, s) {
		t.Error("one block in use, none allowed")
	}
	s.totalBlocks = 0
	if r.busy(&limits, s) {
		t.Error("nobody knows how many blocks there are")
	}
	limits = Thresholds{ActiveDecodeBlocks: new(0.5)}
	for i, step := range []struct {
		total, decode int64
		want          bool
	}{{1000, 501, true}, {0, 501, false}, {1000, 500, false}} { // what was latched is forgotten
		s.totalBlocks, s.decodeBlocks = step.total, step.decode
		if got := r.busy(&limits, s); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
}

// The latch is what a walk over the whole history says.
func TestBusyLatchProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Thresholds{ActiveDecodeBlocks: new(0.5)}
		signal := rapid.Int64Range(-1, 8)
		var r rankState
		beyond := false
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			s := strain{decodeBlocks: signal.Draw(t, "decode"), usedBlocks: signal.Draw(t, "used"), totalBlocks: 8}
			switch {
			case s.decodeBlocks > 4 || s.usedBlocks > 4:
				beyond = true
			case s.decodeBlocks < 4 && s.usedBlocks < 4:
				beyond = false
			}
			if got := r.busy(&limits, s); got != beyond {
				t.Fatalf("%+v: %v", s, got)
			}
		}
	})
}

// A worker is busy when all of its ranks are, and forgets with its life.
func TestBusyWorker(t *testing.T) {
	m := newMonitor(Thresholds{ActiveDecodeBlocks: new(0.5)})
	card := &engine.Card{Model: "m", DPStart: 4, DPSize: 2}
	life, die := context.WithCancel(context.Background())
	blocks := map[uint32]int64{}
	busy := func(life context.Context) bool {
		return m.busy(7, card, life, func(t kv.Target) strain {
			s := idleRank()
			s.decodeBlocks = blocks[t.Rank]
			return s
		})
	}
	for i, c := range []struct {
		first, second int64
		want          bool
	}{
		{0, 0, false}, {900, 0, false}, {900, 900, true}, {500, 500, true}, {500, 499, false}, {0, 501, false}, {501, 0, false}, {501, 500, false},
	} {
		blocks[4], blocks[5] = c.first, c.second
		if got := busy(life); got != c.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
	blocks[4], blocks[5] = 900, 900
	busy(life)
	blocks[4], blocks[5] = 500, 500 // at the bound: what was latched stays
	if !busy(life) {
		t.Error("it was latched")
	}
	if busy(context.Background()) {
		t.Error("a new life is not latched")
	}
	die()
	m.forget()
	if len(m.ranks) != 2 {
		t.Errorf("%d ranks are remembered, want the two of the new life", len(m.ranks))
	}
}

func TestThresholdsOfModels(t *testing.T) {
	m := newMonitor(Thresholds{})
	if !m.idle() {
		t.Error("nothing is bounded")
	}
	m.models["m"] = Thresholds{ActivePrefillTokens: new(uint64(1))}
	busy := func(model string) bool {
		return m.busy(1, &engine.Card{Model: model}, t.Context(), func(kv.Target) strain { return strain{prefillTokens: 2} })
	}
	if m.idle() || !busy("m") || busy("n") {
		t.Error("the thresholds of one model are another's")
	}
	m.every = Thresholds{ActivePrefillTokens: new(uint64(1))}
	m.models["m"] = Thresholds{}
	if m.idle() || busy("m") || !busy("n") {
		t.Error("a model's own thresholds do not come first")
	}
}

func TestThresholdsWith(t *testing.T) {
	before := Thresholds{ActiveDecodeBlocks: new(0.5), ActivePrefillTokensFrac: new(2.0)}
	after, err := before.with(Thresholds{ActivePrefillTokens: new(uint64(7))}, []string{ThresholdPrefillTokensFrac})
	if err != nil || *after.ActiveDecodeBlocks != 0.5 || *after.ActivePrefillTokens != 7 || after.ActivePrefillTokensFrac != nil {
		t.Errorf("%+v, %v", after, err)
	}
	if after, err = after.with(Thresholds{}, []string{ThresholdDecodeBlocks, ThresholdPrefillTokens}); err != nil || !after.none() {
		t.Errorf("%+v, %v", after, err)
	}
	for want, change := range map[string]struct {
		t     Thresholds
		unset []string
	}{
		"active_decode_blocks_threshold must be between 0.0 and 1.0, got 1.5": {
			t: Thresholds{ActiveDecodeBlocks: new(1.5)},
		},
		"active_decode_blocks_threshold must be between 0.0 and 1.0, got NaN": {
			t: Thresholds{ActiveDecodeBlocks: new(math.NaN())},
		},
		"active_prefill_tokens_threshold_frac must be a finite value greater than or equal to 0.0, got -0.1": {
			t: Thresholds{ActivePrefillTokensFrac: new(-0.1)},
		},
		"active_prefill_tokens_threshold_frac must be a finite value greater than or equal to 0.0, got +Inf": {
			t: Thresholds{ActivePrefillTokensFrac: new(math.Inf(1))},
		},
		`there is no threshold "x": want active_decode_blocks_threshold, active_prefill_tokens_threshold or active_prefill_tokens_threshold_frac`: {
			unset: []string{"x"},
		},
	} {
		_, err := before.with(change.t, change.unset)
		if e, ok := err.(*engine.Error); !ok || e.Kind != engine.InvalidArgument || e.Message != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
