package router_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

func session(id string) router.Query {
	return router.Query{Model: "m", Tokens: count(0, 8), Session: router.Session{ID: id}}
}

// In every mode the requests of a session go where its first one went.
func TestSessionStays(t *testing.T) {
	for _, mode := range router.Modes {
		if mode == router.Direct {
			continue
		}
		h := newHouse(t, router.Config{Mode: mode, Seed: 3, SessionTTL: time.Minute})
		for id := range uint64(4) {
			h.join(id+1, card())
		}
		home := map[string]uint64{}
		seen := map[uint64]bool{}
		for turn := range 6 {
			for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				q := session(id)
				if turn%2 == 1 {
					q.Model = "alias"
				}
				b := h.route(q)
				d := b.Decision()
				if turn == 0 {
					home[id] = d.Target.Worker
					seen[d.Target.Worker] = true
				}
				if want := router.SessionBound + router.SessionUse(min(turn, 1)); d.Target.Worker != home[id] || d.Session != want {
					t.Errorf("%s, %s, turn %d: on %d, use %d; want %d, use %d", mode, id, turn, d.Target.Worker, d.Session, home[id], want)
				}
				if turn%3 > 0 {
					b.Release()
				} else {
					defer b.Release()
				}
			}
		}
		if len(seen) < 2 {
			t.Errorf("%s: all sessions are on one worker", mode)
		}
		if c := h.router.Sessions(); c.Bindings != 8 || c.Made != 8 || c.Followed != 40 {
			t.Errorf("%s: %+v", mode, c)
		}
		h.fleet.Close()
	}
}

// Where sessions are bound, a block to compute counts as much as one in use, if
// nobody says otherwise.
func TestBindingScale(t *testing.T) {
	for name, tt := range map[string]struct {
		config router.Config
		cost   float64 // of ten blocks, none of them cached
	}{
		"free":  {router.Config{}, 4*10 + 10},
		"bound": {router.Config{SessionTTL: time.Minute}, 10 + 10},
		"said":  {router.Config{SessionTTL: time.Minute, Tuning: new(router.DefaultTuning())}, 4*10 + 10},
	} {
		h := newHouse(t, tt.config)
		h.join(1, card())
		rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: count(0, 40)})
		if err != nil || rows[0].Cost != tt.cost {
			t.Errorf("%s: %+v, %v; want a cost of %v", name, rows, err, tt.cost)
		}
		h.fleet.Close()
	}
}

// Without a time to live sessions bind nothing.
func TestSessionsAreOff(t *testing.T) {
	h := newHouse(t, router.Config{Mode: router.RoundRobin})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	a, b := h.route(session("a")), h.route(session("a"))
	if a.Decision().Target == b.Decision().Target || a.Decision().Session != router.SessionNone {
		t.Errorf("%+v, %+v", a.Decision(), b.Decision())
	}
	if c := h.router.Sessions(); c != (router.SessionStats{}) {
		t.Errorf("%+v", c)
	}
	if _, bound, _ := h.router.SessionTarget(&router.Query{Model: "m", Session: router.Session{ID: "a"}}); bound {
		t.Error("it is bound")
	}
}

// What makes the bound worker unfit makes the session choose again, and stay with
// the new one.
func TestSessionMovesOn(t *testing.T) {
	type wrench = func(h *house, home uint64, q *router.Query)
	for name, c := range map[string]struct {
		config router.Config
		spoil  wrench
	}{
		"removed":  {spoil: func(h *house, home uint64, _ *router.Query) { h.fleet.Remove(home) }},
		"draining": {spoil: func(h *house, home uint64, _ *router.Query) { h.fleet.Drain(home) }},
		"failed": {spoil: func(h *house, home uint64, _ *router.Query) {
			h.fleet.Worker(home).Inhibit(time.Now(), engine.Disconnected)
		}},
		"overloaded": {spoil: func(h *house, home uint64, _ *router.Query) {
			h.fleet.Worker(home).Inhibit(time.Now(), engine.WorkerOverloaded)
		}},
		"excluded": {spoil: func(_ *house, home uint64, q *router.Query) { q.Exclude = []uint64{home} }},
		"taints": {spoil: func(_ *house, home uint64, q *router.Query) {
			q.Require = []string{map[uint64]string{1: "two", 2: "one"}[home]}
		}},
		"allow": {spoil: func(_ *house, home uint64, q *router.Query) { q.Allow = []uint64{3 - home} }},
		"busy": {
			config: router.Config{Thresholds: router.Thresholds{ActivePrefillTokens: new(uint64)}},
			spoil: func(h *house, home uint64, _ *router.Query) {
				h.route(router.Query{Model: "m", Tokens: count(0, 9), PinWorker: home})
			},
		},
	} {
		c.config.SessionTTL = time.Minute
		h := newHouse(t, c.config)
		h.join(1, card(func(c *engine.Card) { c.Taints = []string{"one"} }))
		h.join(2, card(func(c *engine.Card) { c.Taints = []string{"two"} }))
		first := h.route(session("a"))
		first.Release()
		home := first.Decision().Target.Worker
		q := session("a")
		c.spoil(h, home, &q)
		second := h.route(q)
		if d := second.Decision(); d.Target.Worker == home || d.Session != router.SessionBound {
			t.Errorf("%s: %+v", name, d)
		}
		second.Release()
		third := h.route(session("a"))
		if third.Decision().Target != second.Decision().Target {
			t.Errorf("%s: the session went back", name)
		}
		third.Release()
		if c := h.router.Sessions(); c.Bindings != 1 || c.Lost != 1 {
			t.Errorf("%s: %+v", name, c)
		}
		h.fleet.Close()
	}
}

func TestSessionFollowsPin(t *testing.T) {
	h := newHouse(t, router.Config{Mode: router.Direct, SessionTTL: time.Minute})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card(func(c *engine.Card) { c.DPSize = 2 }))
	q := session("a")
	if _, err := h.router.Route(t.Context(), &q); engine.KindOf(err) != engine.InvalidArgument {
		t.Fatalf("nothing says where it is to go: %v", err)
	}
	q.PinWorker = 1
	first := h.route(q)
	if d := first.Decision(); d.Target.Worker != 1 || d.Session != router.SessionBound {
		t.Errorf("%+v", d)
	}
	first.Release()
	d := h.route(session("a")).Decision() // the session is enough now
	if d.Target.Worker != 1 || d.Session != router.SessionFollowed {
		t.Errorf("%+v", d)
	}
	one := uint32(1)
	q.PinWorker, q.PinRank = 2, &one
	if d := h.route(q).Decision(); d.Target.Worker != 2 || d.Session != router.SessionPinned {
		t.Errorf("%+v", d)
	}
	q.PinRank = nil // which of the two ranks, the session knows
	if d := h.route(q).Decision(); d.Target.Rank != 1 || d.Session != router.SessionFollowed {
		t.Errorf("%+v", d)
	}
	if got, bound, _ := h.router.SessionTarget(&q); !bound || got != (kv.Target{Worker: 2, Rank: 1}) {
		t.Errorf("bound to %v, %v", got, bound)
	}
}

func TestFinalRequestOfASession(t *testing.T) {
	h := newHouse(t, router.Config{SessionTTL: time.Minute})
	defer h.fleet.Close()
	h.join(1, card())
	q := session("a")
	h.route(q).Release()
	q.Session.Final = true
	last := h.route(q)
	if d := last.Decision(); d.Session != router.SessionFollowed || h.router.Sessions().Bindings != 1 {
		t.Errorf("it is not served as any other: %+v", d)
	}
	last.Prefilled()
	last.Release()
	last.Release()
	if c := h.router.Sessions(); c.Bindings != 0 {
		t.Errorf("%+v", c)
	}
}

// The session expires by the router's clock, with nobody asking for it, and not
// while a request runs.
func TestSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{SessionTTL: 10 * time.Second})
		defer h.fleet.Close()
		h.join(1, card())
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go h.router.Run(ctx)
		b := h.route(session("a"))
		time.Sleep(time.Minute)
		if h.router.Sessions().Bindings != 1 {
			t.Error("it expired while a request ran")
		}
		b.Release()
		time.Sleep(9 * time.Second)
		if h.router.Sessions().Bindings != 1 {
			t.Error("it expired early")
		}
		time.Sleep(12 * time.Second) // the reaper comes every ten
		if c := h.router.Sessions(); c.Bindings != 0 || c.Expired != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// Whatever happens to requests and workers at once, in the end no session has a
// request in flight, and each is where its last request was.
func TestSessionsUnderFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{SessionTTL: time.Hour, QueueThreshold: new(0.0)})
		defer h.fleet.Close()
		for id := range uint64(3) {
			h.join(id+1, card(func(c *engine.Card) { c.MaxBatchedTokens = 8 }))
		}
		var work sync.WaitGroup
		for i := range 40 {
			work.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 7))
				for range 25 {
					q := session(string(rune('a' + r.IntN(6))))
					q.Session.Final = r.IntN(20) == 0
					if r.IntN(5) == 0 {
						q.PinWorker = 1 + r.Uint64N(3)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(300))*time.Millisecond)
					b, err := h.router.Route(ctx, &q)
					if err == nil {
						time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
						if r.IntN(10) == 0 {
							b.Worker().Inhibit(time.Now(), engine.Disconnected)
						}
						b.Release()
					}
					cancel()
				}
			})
		}
		for range 20 {
			time.Sleep(20 * time.Millisecond)
			h.become(2, card(func(c *engine.Card) { c.ContextLength = 4 })) // too short for all
			time.Sleep(20 * time.Millisecond)
			h.become(2, card())
		}
		work.Wait()
		for _, l := range h.router.Loads() {
			if l.Requests+l.PrefillTokens+l.ActiveBlocks != 0 {
				t.Errorf("left over: %+v", l)
			}
		}
		c := h.router.Sessions()
		if c.Followed == 0 || c.Moved == 0 || c.Lost == 0 || c.Waited == 0 {
			t.Errorf("not everything happened: %+v", c)
		}
		time.Sleep(fleet.DefaultInhibit) // until the last fault is forgotten
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			h.route(session(id)).Release()
		}
		// Nothing holds a lease, or waits for somebody: all of it expires.
		time.Sleep(2 * time.Hour)
		h.router.Tick(time.Now())
		if c := h.router.Sessions(); c.Bindings != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// What a dispatcher never frees keeps its session for as long as it counts.
func TestForgottenRequestOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{SessionTTL: 10 * time.Second})
		defer h.fleet.Close()
		h.join(1, card())
		q := session("a")
		q.ID = "request"
		b, err := h.router.Book(t.Context(), &q)
		if err != nil {
			t.Fatal(err)
		}
		pass := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(time.Second)
				h.router.Tick(time.Now())
			}
		}
		pass(router.DefaultExpiry - time.Minute)
		if h.router.Sessions().Bindings != 1 {
			t.Error("the session has gone before its request")
		}
		pass(4 * time.Minute)
		if c := h.router.Sessions(); c.Bindings != 0 {
			t.Errorf("%+v", c)
		}
		b.Release() // late, and for nothing

		// Nor does what is forgotten end the lease of what still runs.
		q.ID = "another"
		if b, err = h.router.Book(t.Context(), &q); err != nil {
			t.Fatal(err)
		}
		running := h.route(session("a"))
		pass(router.DefaultExpiry + time.Minute)
		b.Release()
		pass(time.Minute)
		if c := h.router.Sessions(); c.Bindings != 1 {
			t.Errorf("%+v", c)
		}
		running.Release()
	})
}

// slow is a policy that takes its time, and the last candidate.
type slow struct{}

func (slow) Pick(ctx context.Context, _ *router.Query, c []router.Candidate) (int, error) {
	select {
	case <-time.After(time.Second):
		return len(c) - 1, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Of requests that come at once the first one chooses, and the others come after.
func TestFirstRequestsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{Policy: slow{}, SessionTTL: time.Minute})
		defer h.fleet.Close()
		for id := range uint64(3) {
			h.join(id+1, card())
		}
		type answer struct {
			b    *router.Booking
			err  error
			took time.Duration
		}
		answers := make(chan answer)
		start := time.Now()
		ask := func(ctx context.Context) {
			q := session("a")
			b, err := h.router.Route(ctx, &q)
			answers <- answer{b, err, time.Since(start)}
		}
		for range 20 {
			go ask(t.Context())
		}
		synctest.Wait()
		hasty, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		go ask(hasty)
		if a := <-answers; a.took != time.Millisecond || engine.KindOf(a.err) != engine.DeadlineExceeded {
			t.Errorf("one that waited for another: %v after %v", a.err, a.took)
		}
		for range 20 {
			a := <-answers
			if a.err != nil || a.b.Decision().Target.Worker != 3 || a.took != time.Second ||
				a.b.Decision().Session == router.SessionFollowed && a.b.Decision().Queue != time.Second {
				t.Errorf("%v, %v", a.err, a.took)
				continue
			}
			a.b.Release()
		}
		if c := h.router.Sessions(); c.Made != 1 || c.Followed != 19 || c.Waited != 20 {
			t.Errorf("%+v", c)
		}
	})
}

// What is said at start about sessions, legs and load is checked.
func TestValidatePlacing(t *testing.T) {
	bad := router.DefaultConditional()
	bad.ISLRatio = 2
	loads := router.DefaultConditional()
	loads.Policy = router.ByLoad
	for want, c := range map[string]router.Config{
		"router-session-affinity-ttl-secs: got 500ms, want 1s to 8760h0m0s":  {SessionTTL: time.Second / 2},
		"router-session-affinity-ttl-secs: got 8760h0m1s":                    {SessionTTL: 31_536_001 * time.Second},
		"router-conditional-disagg-config: eff_isl_ratio_threshold: got 2":   {Conditional: &bad},
		"router-conditional-disagg-config: policy prefill_load goes by":      {Conditional: &loads},
		"active_decode_blocks_threshold must be between 0.0 and 1.0, got -1": {Thresholds: router.Thresholds{ActiveDecodeBlocks: new(-1.0)}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, c := range []router.Config{
		{SessionTTL: time.Second},
		{SessionTTL: 31_536_000 * time.Second},
		{Conditional: &loads, QueueThreshold: new(1.0)},
	} {
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// A request is not more patient because it waits for the first one of its session
// before it waits for room, and it keeps its place.
func TestPatienceOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(0, func(c *router.Config) {
			c.SessionTTL, c.QueueTimeout = time.Minute, 10*time.Second
		}))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		running, stop := context.WithCancel(t.Context())
		defer stop()
		go h.router.Run(running)
		busy := h.route(router.Query{Model: "m", Tokens: count(0, 80)})
		a := h.arrivals()
		for _, id := range []string{"first", "second", "third"} {
			q := session("s")
			q.ID = id
			a.submit(t.Context(), q)
			time.Sleep(4 * time.Second)
		}
		a.submit(t.Context(), router.Query{ID: "stranger", Tokens: count(500, 80)}) // at 12
		a.expect("at 12", "first")
		time.Sleep(3 * time.Second)
		a.expect("at 15", "second")
		busy.Release()
		a.expect("when there is room", "third")
		if d := a.bookings["third"].Decision(); d.Queue != 7*time.Second {
			t.Errorf("waited %v, want 7s", d.Queue)
		}
		a.bookings["third"].Release()
		synctest.Wait()
		a.expect("after that", "stranger")
	})
}
