package router_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// minimumOverlap keeps who has some of the prompt on the device.
type minimumOverlap struct{ blocks int }

func (minimumOverlap) Inputs() router.Inputs { return router.CacheInputs }

func (f minimumOverlap) Keep(_ context.Context, _ *router.Query, c *router.Candidate) (bool, error) {
	return c.Device >= f.blocks, nil
}

// uncachedBlocks costs what there is to compute.
type uncachedBlocks struct{}

func (uncachedBlocks) Inputs() router.Inputs { return router.CacheInputs }

func (uncachedBlocks) Score(_ context.Context, q *router.Query, c *router.Candidate) (float64, error) {
	blocks := (len(q.Tokens) + c.BlockSize - 1) / c.BlockSize
	return float64(blocks - c.Device), nil
}

// toolsStay picks the largest overlap after a tool has answered, and else the
// least cost.
type toolsStay struct{}

func (toolsStay) Inputs() router.Inputs { return router.CacheInputs }

func (toolsStay) Pick(_ context.Context, q *router.Query, rows []router.Candidate) (int, error) {
	best := 0
	for i, c := range rows {
		if q.Session.Input == router.ToolInput && c.Device > rows[best].Device ||
			q.Session.Input != router.ToolInput && c.Cost < rows[best].Cost {
			best = i
		}
	}
	return best, nil
}

// part is any part that a test wants.
type part struct {
	inputs router.Inputs
	keep   func(*router.Candidate) (bool, error)
	score  func(*router.Candidate) (float64, error)
	pick   func([]router.Candidate) (int, error)
}

func (p part) Inputs() router.Inputs { return p.inputs }

func (p part) Keep(_ context.Context, _ *router.Query, c *router.Candidate) (bool, error) {
	return p.keep(c)
}

func (p part) Score(_ context.Context, _ *router.Query, c *router.Candidate) (float64, error) {
	return p.score(c)
}

func (p part) Pick(_ context.Context, _ *router.Query, c []router.Candidate) (int, error) {
	return p.pick(c)
}

// four candidates: some cached, much cached and busy, idle, and in between.
func four() []router.Candidate {
	return []router.Candidate{
		{Target: kv.Target{Worker: 1}, BlockSize: 16, Device: 4, Requests: 2, Cost: 10, Preference: 1},
		{Target: kv.Target{Worker: 2}, BlockSize: 16, Device: 9, Requests: 9, Cost: 20, Preference: 1},
		{Target: kv.Target{Worker: 3}, BlockSize: 16, Device: 0, Requests: 0, Cost: 12, Preference: 2},
		{Target: kv.Target{Worker: 4}, BlockSize: 16, Device: 2, Requests: 5, Cost: 11, Preference: 0.5},
	}
}

func TestCompose(t *testing.T) {
	tools := router.Session{Input: router.ToolInput}
	for _, c := range []struct {
		name    string
		parts   router.Parts
		session router.Session
		want    int
	}{
		{name: "the router's own cost", want: 0},
		{name: "filter by overlap", parts: router.Parts{Filters: []router.Filter{minimumOverlap{5}}}, want: 1},
		{name: "all filters must keep", want: 3, parts: router.Parts{
			Filters: []router.Filter{minimumOverlap{1}, part{keep: func(c *router.Candidate) (bool, error) { return c.Target.Worker > 2, nil }}},
		}},
		{name: "score by active requests", parts: router.Parts{Scorers: []router.Scorer{router.ActiveRequests{}}}, want: 2},
		{name: "stacked scorers", want: 0, parts: router.Parts{
			Scorers: []router.Scorer{router.ActiveRequests{}, uncachedBlocks{}}, // 2+6, 9+1, 0+10, 5+8
		}},
		{name: "picker, user turn", parts: router.Parts{Picker: toolsStay{}, Scorers: []router.Scorer{router.ActiveRequests{}}}, want: 2},
		{name: "picker, tool result", parts: router.Parts{Picker: toolsStay{}}, session: tools, want: 1},
		{name: "picker behind a filter", session: tools, want: 0, parts: router.Parts{
			Picker: toolsStay{}, Filters: []router.Filter{part{inputs: router.LoadInputs, keep: func(c *router.Candidate) (bool, error) { return c.Requests < 9, nil }}},
		}},
		{name: "score by preference", want: 3, parts: router.Parts{
			Scorers: []router.Scorer{part{inputs: router.RoutingInputs, score: func(c *router.Candidate) (float64, error) { return c.Preference, nil }}},
		}},
		{name: "what nobody asks for is not there", want: 2, parts: router.Parts{
			Scorers: []router.Scorer{part{score: func(c *router.Candidate) (float64, error) {
				return float64(c.Device+c.Requests) + c.Cost + math.Abs(float64(c.Target.Worker)-3), nil
			}}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := &router.Query{Tokens: make([]uint32, 160), Session: c.session}
			got, err := router.Compose(c.parts).Pick(context.Background(), q, four())
			if err != nil || got != c.want {
				t.Errorf("got %d, %v, want %d", got, err, c.want)
			}
		})
	}
}

func TestComposeFaults(t *testing.T) {
	broken := errors.New("no idea")
	score := func(x float64, err error) router.Parts {
		return router.Parts{Scorers: []router.Scorer{part{score: func(*router.Candidate) (float64, error) { return x, err }}}}
	}
	pick := func(i int, err error) router.Parts {
		return router.Parts{Picker: part{pick: func([]router.Candidate) (int, error) { return i, err }}}
	}
	for _, c := range []struct {
		name  string
		parts router.Parts
		kind  engine.ErrorKind
		says  string
	}{
		{"nobody left", router.Parts{Filters: []router.Filter{minimumOverlap{10}}}, engine.Unavailable, "leave none of the 4 workers"},
		{"filter fails", router.Parts{Filters: []router.Filter{part{keep: func(*router.Candidate) (bool, error) { return false, broken }}}}, engine.Internal, "no idea"},
		{"scorer fails", score(0, broken), engine.Internal, "no idea"},
		{"no number", score(math.NaN(), nil), engine.Internal, "cost NaN on 1/0"},
		{"no finite number", score(math.Inf(-1), nil), engine.Internal, "cost -Inf on 1/0"},
		{"picker fails", pick(0, broken), engine.Internal, "no idea"},
		{"row below", pick(-1, nil), engine.Internal, "picked row -1 of 4"},
		{"row above", pick(4, nil), engine.Internal, "picked row 4 of 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := router.Compose(c.parts).Pick(context.Background(), new(router.Query), four())
			if engine.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v with %q", err, c.kind, c.says)
			}
		})
	}
}

// With all inputs a part sees all there is of a candidate, and with none what it is.
func TestInputs(t *testing.T) {
	whole := router.Candidate{
		Target: kv.Target{Worker: 1, Rank: 2}, Worker: new(fleet.Worker), BlockSize: 3, OnCPU: true,
		Device: 4, Host: 5, Disk: 6, Shared: 7,
		PrefillTokens: 8, ActiveBlocks: 9, Requests: 10, LastPick: 11, TotalBlocks: 12, DecodeBlocks: 13,
		Preference: 14, Cost: 15,
	}
	for v, i := reflect.ValueOf(whole), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Fatalf("the test leaves out %s", v.Type().Field(i).Name)
		}
	}
	for inputs, want := range map[router.Inputs]router.Candidate{
		router.CacheInputs | router.LoadInputs | router.RoutingInputs | router.CostInputs: whole,
		router.NoInputs:   {Target: whole.Target, Worker: whole.Worker, BlockSize: 3, OnCPU: true},
		router.CostInputs: {Target: whole.Target, Worker: whole.Worker, BlockSize: 3, OnCPU: true, Cost: 15},
	} {
		p := router.Compose(router.Parts{
			Filters: []router.Filter{part{inputs: inputs, keep: func(c *router.Candidate) (bool, error) {
				if *c != want {
					t.Errorf("inputs %b: seen %+v, want %+v", inputs, *c, want)
				}
				return true, nil
			}}},
			Scorers: []router.Scorer{part{score: func(*router.Candidate) (float64, error) { return 0, nil }}},
		})
		if _, err := p.Pick(context.Background(), new(router.Query), []router.Candidate{whole}); err != nil {
			t.Error(err)
		}
	}
}

// A policy that fails leaves nothing in the books.
func TestComposeFaultBooksNothing(t *testing.T) {
	h := newHouse(t, router.Config{Policy: router.Compose(router.Parts{
		Scorers: []router.Scorer{part{score: func(*router.Candidate) (float64, error) { return math.Inf(1), nil }}},
	})})
	defer h.fleet.Close()
	h.join(1, card())
	_, err := h.router.Route(context.Background(), &router.Query{ID: "r", Model: "m", Tokens: count(0, 10)})
	if engine.KindOf(err) != engine.Internal {
		t.Errorf("got %v, want an internal error", err)
	}
	if n := h.router.BookedTargets(); n != 0 {
		t.Errorf("%d targets are booked, want none", n)
	}
}

// Parts are asked for one request at a time, whoever asks, and also after one of
// them has panicked.
func TestComposeOneAtATime(t *testing.T) {
	var inside atomic.Int64
	p := router.Compose(router.Parts{Scorers: []router.Scorer{part{inputs: router.LoadInputs, score: func(c *router.Candidate) (float64, error) {
		defer inside.Add(-1)
		if inside.Add(1) > 1 {
			return 0, errors.New("two at a time")
		}
		runtime.Gosched()
		if c.Requests == 99 {
			panic("no idea")
		}
		return 0, nil
	}}}})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was hidden")
			}
		}()
		p.Pick(context.Background(), new(router.Query), []router.Candidate{{Requests: 99}}) //nolint:errcheck // it panics
	}()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if _, err := p.Pick(context.Background(), new(router.Query), four()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// Of equal costs each has its chance, and of others only the least.
func TestComposeTies(t *testing.T) {
	p := router.Compose(router.Parts{Scorers: []router.Scorer{router.ActiveRequests{}}, Seed: 7})
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 6).Draw(t, "requests")
		c := make([]router.Candidate, len(requests))
		least := requests[0]
		for i, n := range requests {
			c[i] = router.Candidate{Target: kv.Target{Worker: uint64(i)}, BlockSize: 1, Requests: n}
			least = min(least, n)
		}
		seen := map[int]bool{}
		for range 200 {
			i, err := p.Pick(context.Background(), new(router.Query), c)
			if err != nil {
				t.Fatal(err)
			}
			seen[i] = true
		}
		for i, n := range requests {
			if seen[i] != (n == least) {
				t.Fatalf("worker %d of %v: picked is %v", i, requests, seen[i])
			}
		}
	})
}
