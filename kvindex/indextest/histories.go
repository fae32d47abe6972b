package indextest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// Histories is the part of [Run] that looks at many small histories of few
// targets: enough for one of several forms of an implementation.
func Histories(t *testing.T, open func() Index) {
	t.Run("Short", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			p := newPair(open())
			n := drawNarrow(p.model, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") })
			for range 80 {
				s := n.step()
				if err := p.take(s); err != nil {
					t.Fatalf("%v: %v", s, err)
				}
			}
		})
	})
	t.Run("Narrow", func(t *testing.T) {
		for i := range uint64(24 * *scale) {
			check(t, open, *seed+i, func(m *model, d draw) func() []step {
				n := drawNarrow(m, d)
				return func() []step { return []step{n.step()} }
			}, 4000/slow)
		}
	})
}

// fleets compares an index with the model while whole fleets use it.
func fleets(t *testing.T, open func() Index) {
	for _, f := range []struct {
		workers, ranks, prompts, length, steps, times int
	}{
		{1, 1, 20, 300, 1500, 4},
		{8, 1, 40, 200, 3000, 4},
		{4, 8, 40, 60, 4000, 4},
		{200, 1, 60, 100, 6000, 1},
		{1000, 1, 20, 60, 8000, 1},
		{120, 8, 200, 30, 6000, 1},
		{300, 1, 20000, 3, 30000, 1}, // thousands of nodes side by side
	} {
		t.Run(fmt.Sprintf("Fleet%dx%d", f.workers, f.ranks), func(t *testing.T) {
			for i := range uint64(f.times * *scale) {
				check(t, open, *seed+i, func(m *model, d draw) func() []step {
					w := wide{workers: f.workers, ranks: f.ranks, key: spreads[d(len(spreads))], local: spreads[d(len(spreads))], model: m, draw: d}
					return newWide(w, f.prompts, f.length).steps
				}, f.steps/slow)
			}
		})
	}
}

// drawNarrow draws how narrow a world is.
func drawNarrow(m *model, d draw) *narrow {
	return &narrow{
		workers: 1 + d(5), ranks: 1 + d(2),
		keys: 2 + d(40), values: 1 + d(4), run: 1 + d(24), lower: 25 * d(4),
		key: spreads[d(len(spreads))], local: spreads[d(len(spreads))],
		model: m, draw: d,
	}
}

// check replays one history of about the given number of steps. The model makes
// it as it goes, so that it finds what is held.
func check(t *testing.T, open func() Index, seed uint64, start func(*model, draw) func() []step, steps int) {
	t.Helper()
	p := newPair(open())
	next := start(p.model, rand.New(rand.NewPCG(seed, uint64(steps))).IntN)
	var history []step
	hits := 0
	for len(history) < steps {
		for _, s := range next() {
			history = append(history, s)
			if err := p.take(s); err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, len(history), err, report(open, history))
			}
			if s.do == query && len(p.model.match(s.local)) > 0 {
				hits++
			}
		}
	}
	if hits < steps/200 {
		t.Errorf("seed %d: only %d of %d steps found anything, which proves little", seed, hits, steps)
	}
	for target := range p.model.caches {
		p.index.RemoveTarget(target)
	}
	if s := p.index.Stats(); s.Targets != 0 || s.Nodes != 0 || s.Blocks != 0 {
		t.Fatalf("seed %d: left behind %+v", seed, s)
	}
}
