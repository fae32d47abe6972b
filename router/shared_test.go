package router_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// store is a shared cache that answers what a test says.
type store struct {
	mu     sync.Mutex
	asked  []string
	ranges []kv.Span
	err    error
	takes  time.Duration

	meanwhile func()
}

func (s *store) Check(ctx context.Context, tokens []uint32, blockSize int) ([]kv.Span, error) {
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprint(len(tokens), "/", blockSize))
	s.mu.Unlock()
	if s.meanwhile != nil {
		s.meanwhile()
	}
	select {
	case <-time.After(s.takes):
		return s.ranges, s.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// spans makes ranges of their ends.
func spans(ends ...int) (out []kv.Span) {
	for i := 0; i < len(ends); i += 2 {
		out = append(out, kv.Span{Start: ends[i], End: ends[i+1]})
	}
	return out
}

// Blocks in a cache beside the workers count by their weight, where they lie
// beyond what a worker has itself.
func TestSharedCache(t *testing.T) {
	tuning := router.Unscaled()
	tuning.SharedCacheMultiplier = 0.5
	s := &store{}
	h := newHouse(t, router.Config{Tuning: &tuning, Shared: s})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	p := count(0, 42)
	h.caches(2, 1, kv.TierDevice, p[:16])
	for _, tc := range []struct {
		name   string
		ranges []kv.Span
		err    error
		shared [2]int
		errors uint64
	}{
		{"nothing", nil, nil, [2]int{0, 0}, 0},
		{"all", spans(0, 10), nil, [2]int{10, 6}, 0},
		{"behind a hole", spans(5, 8), nil, [2]int{3, 3}, 0},
		{"in pieces", spans(0, 2, 3, 5, 5, 6, 9, 10), nil, [2]int{6, 3}, 0},
		{"no answer", spans(0, 10), errors.New("away"), [2]int{0, 0}, 1},
		{"beyond the prompt", spans(0, 11), nil, [2]int{0, 0}, 1},
		{"before the prompt", spans(-1, 2), nil, [2]int{0, 0}, 1},
		{"empty", spans(2, 2), nil, [2]int{0, 0}, 1},
		{"overlapping", spans(0, 3, 2, 4), nil, [2]int{0, 0}, 1},
		{"in disorder", spans(4, 6, 0, 2), nil, [2]int{0, 0}, 1},
	} {
		s.ranges, s.err, s.asked = tc.ranges, tc.err, nil
		before := h.router.Counters().SharedErrors
		rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p})
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{rows[0].Shared, rows[1].Shared}; got != tc.shared || h.router.Counters().SharedErrors-before != tc.errors {
			t.Errorf("%s: %v shared blocks and %d errors, want %v and %d", tc.name, got, h.router.Counters().SharedErrors-before, tc.shared, tc.errors)
		}
		if want := 10.5 + 10 - 0.5*float64(tc.shared[0]); rows[0].Cost != want {
			t.Errorf("%s: cost %v, want %v", tc.name, rows[0].Cost, want)
		}
		if len(s.asked) != 1 || s.asked[0] != "42/4" {
			t.Errorf("%s: asked %v", tc.name, s.asked)
		}
	}
}

// Who does not share with others is not looked up, nor where it would not count.
func TestSharedCacheIsNotAsked(t *testing.T) {
	tuning := router.DefaultTuning()
	tuning.SharedCacheMultiplier = 0.5
	s := &store{ranges: spans(0, 1)}
	h := newHouse(t, router.Config{Tuning: &tuning, Shared: s})
	defer h.fleet.Close()
	h.join(1, card())
	zero := 0.0
	for _, q := range []router.Query{
		{Namespace: kv.Namespace{Salt: "tenant"}},
		{Namespace: kv.Namespace{LoRA: "adapter"}},
		{Overrides: &router.Overrides{SharedCacheMultiplier: &zero}},
	} {
		q.Model, q.Tokens = "m", count(0, 40)
		if rows, err := h.router.Explain(t.Context(), &q); err != nil || rows[0].Shared != 0 {
			t.Errorf("%+v, %v", rows, err)
		}
	}
	if len(s.asked) != 0 {
		t.Errorf("asked %v", s.asked)
	}
}

// A worker that leaves while somebody looks is not among the candidates.
func TestGoneWhileLooking(t *testing.T) {
	tuning := router.DefaultTuning()
	tuning.SharedCacheMultiplier = 1
	s := &store{}
	h := newHouse(t, router.Config{Tuning: &tuning, Shared: s})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	s.meanwhile = func() { h.fleet.Remove(1) }
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: count(0, 40)})
	if err != nil || len(rows) != 1 || rows[0].Target.Worker != 2 {
		t.Errorf("%+v, %v", rows, err)
	}
}

// All pools are looked up at once, and a client that leaves does not wait.
func TestSharedCacheTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tuning := router.DefaultTuning()
		tuning.SharedCacheMultiplier = 1
		s := &store{ranges: spans(0, 2), takes: time.Second}
		h := newHouse(t, router.Config{Tuning: &tuning, Shared: s})
		defer h.fleet.Close()
		for id, size := range []uint32{4, 8, 16} {
			h.join(uint64(id+1), card(func(c *engine.Card) { c.BlockSize = size }))
		}
		q := router.Query{Model: "m", Tokens: count(0, 40)}
		start := time.Now()
		b := h.route(q)
		if took := time.Since(start); took != time.Second {
			t.Errorf("three pools took %v", took)
		}
		b.Release()
		ctx, cancel := context.WithTimeoutCause(context.Background(), 10*time.Millisecond, engine.ErrClientGone)
		defer cancel()
		start = time.Now()
		b, err := h.router.Route(ctx, &q)
		if took := time.Since(start); engine.KindOf(err) != engine.Cancelled || took != 10*time.Millisecond {
			t.Errorf("booked %v, %v after %v", b != nil, err, took)
		}
		if c := h.router.Counters(); c.SharedErrors != 0 {
			t.Errorf("who left counts as an error: %+v", c)
		}
		if l := h.router.Loads(); l[0].Requests+l[1].Requests+l[2].Requests != 0 {
			t.Errorf("%+v", l)
		}
	})
}
