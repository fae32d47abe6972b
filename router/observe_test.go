package router_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

// seer looks at what there was to choose from.
type seer struct {
	n           int
	some, all   []router.Row
	taken, of   int
	times, late int
}

func (s *seer) Routed(_ *router.Decision, w *router.Work) {
	s.some, s.taken = w.Best(s.n)
	s.all, s.of = w.Best(w.Candidates)
	s.times++
}

func (s *seer) Ended(*router.Outcome) { s.late++ }

// The best are the cheapest in their order, with the one taken among them, as
// Explain has them.
func TestBest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &seer{n: rapid.IntRange(1, 6).Draw(rt, "n")}
		tuning := router.DefaultTuning()
		tuning.Temperature = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(rt, "temperature")
		mode := rapid.SampledFrom([]router.Mode{router.KV, router.Random, router.RoundRobin}).Draw(rt, "mode")
		h := newHouse(t, router.Config{Seed: 1, Mode: mode, Tuning: &tuning, Observer: s})
		defer h.fleet.Close()
		for id := range rapid.Uint64Range(1, 8).Draw(rt, "workers") {
			h.join(id+1, card())
			for n := range rapid.IntRange(0, 2).Draw(rt, "running") {
				defer h.route(router.Query{Model: "m", PinWorker: id + 1, Tokens: count(uint32(100*id)+uint32(10*n), 1+8*n)}).Release()
			}
		}
		q := router.Query{Model: "m", Tokens: count(5000, 40)}
		rows, err := h.router.Explain(t.Context(), &q)
		if err != nil {
			rt.Fatal(err)
		}
		before := s.times
		b := h.route(q)
		defer b.Release()
		if s.times != before+1 {
			rt.Fatalf("told %d times of one decision", s.times-before)
		}
		slices.SortStableFunc(rows, func(a, b router.Row) int {
			return cmp.Compare(a.Cost*float64(a.BlockSize), b.Cost*float64(b.BlockSize))
		})
		target := b.Decision().Target
		if len(s.all) != len(rows) || s.all[s.of].Target != target {
			rt.Fatalf("of all %d the one at %d was taken", len(s.all), s.of)
		}
		for i, row := range s.all {
			if row.Target != rows[i].Target || row.Terms != rows[i].Terms || row.Chance != rows[i].Chance {
				rt.Errorf("place %d has %+v, want %+v", i, row, rows[i])
			}
		}
		want := min(s.n, len(rows))
		if len(s.some) != want || s.some[s.taken].Target != target {
			rt.Fatalf("of the best %d the one at %d was taken", len(s.some), s.taken)
		}
		for i, row := range s.some {
			among := i == s.taken && s.of >= want // in the place of the last
			if among && i != want-1 || !among && row.Target != rows[i].Target {
				rt.Errorf("place %d of the best %d has target %v", i, want, row.Target)
			}
		}
		if got, whole := router.Compare(s.some, s.taken).Reason, router.Compare(s.all, s.of).Reason; want > 1 && got != whole {
			rt.Errorf("the best %d say %q, all of them %q", want, got, whole)
		}
	})
}

// Workers are untold if they tell nothing while the router listens.
func TestUntold(t *testing.T) {
	deaf := router.DefaultTuning()
	deaf.IgnoreEvents = true
	for _, tc := range []struct {
		config router.Config
		want   int
	}{{router.Config{}, 2}, {router.Config{Tuning: &deaf}, 0}} {
		h := newHouse(t, tc.config)
		h.join(1, card())
		for id := range uint64(2) {
			h.join(id+2, card(func(c *engine.Card) { c.Features = nil }))
		}
		if n := h.router.Untold(); n != tc.want {
			t.Errorf("%d of three workers are untold, want %d", n, tc.want)
		}
		h.fleet.Close()
	}
}
