package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// queueing is a router whose workers of 100 tokens a step are busy above so many
// steps.
func queueing(steps float64, change ...func(*router.Config)) router.Config {
	c := router.Config{Seed: 1, QueueThreshold: &steps}
	for _, f := range change {
		f(&c)
	}
	return c
}

func hundred(c *engine.Card) { c.MaxBatchedTokens = 100 }

// arrivals collects what becomes of submitted requests, in order.
type arrivals struct {
	*house
	mu       sync.Mutex // the router may tell from a goroutine of its own
	names    []string
	bookings map[string]*router.Booking
	errs     map[string]error
}

func (h *house) arrivals() *arrivals {
	return &arrivals{house: h, bookings: map[string]*router.Booking{}, errs: map[string]error{}}
}

func (a *arrivals) submit(ctx context.Context, q router.Query) {
	if q.Model == "" {
		q.Model = "m"
	}
	a.router.Submit(ctx, &q, func(b *router.Booking, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.names = append(a.names, q.ID)
		if a.bookings[q.ID] != nil || a.errs[q.ID] != nil {
			a.t.Errorf("%s is told twice", q.ID)
		}
		a.bookings[q.ID], a.errs[q.ID] = b, err
	})
}

// expect says who has been told since the last call.
func (a *arrivals) expect(when string, want ...string) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.names, want) {
		a.t.Errorf("%s: told %v, want %v", when, a.names, want)
	}
	a.names = nil
}

// Requests wait while their only worker is busy, and leave in their order when it
// is not, whatever makes it so.
func TestWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(1))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		a := h.arrivals()
		ctx := t.Context()
		a.submit(ctx, router.Query{ID: "exact", Tokens: count(0, 100)})
		a.submit(ctx, router.Query{ID: "over", Tokens: count(1000, 1)}) // 100 is not above 100
		a.expect("first", "exact", "over")
		a.submit(ctx, router.Query{ID: "first", Tokens: count(2000, 90)})
		a.submit(ctx, router.Query{ID: "second", Tokens: count(3000, 90)})
		time.Sleep(time.Second)
		a.submit(ctx, router.Query{ID: "jumps", Tokens: count(4000, 90), Priority: 5})
		a.submit(ctx, router.Query{ID: "strict", Tokens: count(5000, 90), StrictPriority: 1})
		a.expect("while busy")
		if stats := h.router.Queues(); len(stats) != 1 || stats[0].Model != "m" || stats[0].Classes[0].Requests != 4 || stats[0].Classes[0].Tokens != 360 {
			t.Errorf("%+v", stats)
		}
		time.Sleep(2 * time.Second)
		a.bookings["exact"].Prefilled()
		a.expect("prefilled", "strict", "jumps") // after the first of them there are 91
		if d := a.bookings["strict"].Decision(); d.Queue != 2*time.Second {
			t.Errorf("waited %v, want 2s", d.Queue)
		}
		a.bookings["over"].Release()
		a.expect("released")
		a.bookings["strict"].Prefilled()
		a.bookings["jumps"].Prefilled()
		a.expect("both prefilled", "first", "second")
		for _, b := range a.bookings {
			b.Release()
		}
		if c := h.router.Counters(); c.Parked != 4 || c.Decisions != 6 || h.router.Queues()[0].Classes[0].Requests != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// A newcomer of a class that waits does not pass those who came before, though
// its own target has room; background work does not wait at all.
func TestNobodyPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(1))
		defer h.fleet.Close()
		h.join(1, card(hundred, func(c *engine.Card) { c.Taints = []string{"big"} }))
		h.join(2, card(hundred))
		a := h.arrivals()
		ctx := t.Context()
		for i, id := range []uint64{1, 1} {
			a.submit(ctx, router.Query{ID: fmt.Sprint("load", i), Tokens: count(uint32(1000*i), 80), PinWorker: id})
		}
		a.expect("load", "load0", "load1")
		a.submit(ctx, router.Query{ID: "big", Tokens: count(5000, 8), Require: []string{"big"}})
		a.submit(ctx, router.Query{ID: "any", Tokens: count(6000, 8)})
		a.submit(ctx, router.Query{ID: "pinned there", Tokens: count(7000, 8), PinWorker: 2}) // a lane of its own
		a.submit(ctx, router.Query{ID: "background", Tokens: count(8000, 8), Background: true})
		a.expect("while the first worker is busy", "pinned there", "background")
		a.bookings["load0"].Release()
		a.expect("with room on the first", "big", "any")
		// Whoever asks for what nobody has is told at once.
		a.submit(ctx, router.Query{ID: "huge", Require: []string{"huge"}})
		a.expect("impossible", "huge")
		if engine.KindOf(a.errs["huge"]) != engine.Unavailable {
			t.Errorf("got %v", a.errs["huge"])
		}
	})
}

// Who stands in the way of others lets them go when it leaves.
func TestLeaveTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(0))
		defer h.fleet.Close()
		h.join(1, card(hundred, func(c *engine.Card) { c.Taints = []string{"big"} }))
		h.join(2, card(hundred))
		a := h.arrivals()
		a.submit(t.Context(), router.Query{ID: "load", Tokens: count(0, 80), PinWorker: 1})
		ctx, leave := context.WithCancelCause(t.Context())
		a.submit(ctx, router.Query{ID: "big", Tokens: count(5000, 8), Require: []string{"big"}})
		a.submit(t.Context(), router.Query{ID: "any", Tokens: count(6000, 8)})
		a.expect("parked", "load")
		leave(engine.ErrClientGone)
		synctest.Wait()
		a.expect("one has left", "big", "any")
		if engine.KindOf(a.errs["big"]) != engine.Cancelled || a.errs["any"] != nil || a.bookings["any"].Decision().Target.Worker != 2 {
			t.Errorf("%v, %v", a.errs["big"], a.errs["any"])
		}
		// What its client is told follows from the cause.
		for cause, kind := range map[error]engine.ErrorKind{
			engine.ErrQueueTimeout: engine.ResourceExhausted, engine.ErrDeadline: engine.DeadlineExceeded, engine.ErrShutdown: engine.Unavailable,
		} {
			ctx, leave := context.WithCancelCause(t.Context())
			a.submit(ctx, router.Query{ID: cause.Error(), Tokens: count(7000, 8)})
			leave(cause)
			synctest.Wait()
			if err := a.errs[cause.Error()]; engine.KindOf(err) != kind || !errors.Is(err, cause) {
				t.Errorf("%v: got %v, want %s", cause, err, kind)
			}
		}
	})
}

// A request waits no longer than it may, and is told when to come again.
func TestQueueTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(0, func(c *router.Config) { c.QueueTimeout = 10 * time.Second }))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		running, stop := context.WithCancel(t.Context())
		defer stop()
		go h.router.Run(running)
		b := h.route(router.Query{Model: "m", Tokens: count(0, 80)})
		start := time.Now()
		_, err := h.router.Route(t.Context(), &router.Query{Model: "m", Tokens: count(500, 80)})
		if waited := time.Since(start); waited < 10*time.Second || waited > 11*time.Second {
			t.Errorf("waited %v", waited)
		}
		if engine.KindOf(err) != engine.ResourceExhausted || !errors.Is(err, engine.ErrQueueTimeout) {
			t.Errorf("got %v", err)
		}
		b.Release()
		h.route(router.Query{Model: "m", Tokens: count(500, 80)}).Release()
		if c := h.router.Counters(); c.QueueTimeouts != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// The limits of a class are told as they are.
func TestQueueIsFull(t *testing.T) {
	file, err := router.ParsePolicyFile([]byte(`
default_policy_family: chat
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: chat-all, policy_family: chat, cache_bucket: all, quantum: 10, prefill_busy_threshold: 0, request_queue_limit_per_worker: 1}
  - {name: nightly, quantum: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, router.Config{PolicyFile: file})
		defer h.fleet.Close()
		h.join(1, card(hundred))
		a := h.arrivals()
		for i := range 3 {
			a.submit(t.Context(), router.Query{ID: fmt.Sprint(i), Tokens: count(uint32(100*i), 8)})
		}
		a.expect("one runs, one waits", "0", "2")
		rejection, ok := errors.AsType[*router.QueueRejection](a.errs["2"])
		if !ok || *rejection != (router.QueueRejection{Class: "chat-all", Kind: router.RequestLimit, Current: 1, Limit: 1}) {
			t.Errorf("got %v", a.errs["2"])
		}
		details, err := json.Marshal(rejection.ClientDetails())
		if err != nil || string(details) != `{"policy_class":"chat-all","limit_kind":"requests","current":1,"limit":1}` {
			t.Errorf("clients are told %s, %v", details, err)
		}
		a.submit(t.Context(), router.Query{ID: "night", Class: "nightly", Tokens: count(5000, 8)})
		a.expect("a class without threshold", "night")
		a.bookings["0"].Release()
		a.expect("the other still has to be computed")
		a.bookings["night"].Prefilled()
		a.expect("room", "1")
	})
}

// Workers that come or go let those who wait go.
func TestFleetChangesWhileOneWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(0))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		running, stop := context.WithCancel(t.Context())
		defer stop()
		go h.router.Run(running)
		h.route(router.Query{Model: "m", Tokens: count(0, 80)})
		var told atomic.Pointer[router.Booking]
		h.router.Submit(t.Context(), &router.Query{Model: "m", Tokens: count(500, 80)}, func(b *router.Booking, err error) { told.Store(b) })
		synctest.Wait()
		if told.Load() != nil {
			t.Fatal("did not wait")
		}
		h.join(2, card(hundred))
		synctest.Wait()
		if b := told.Load(); b == nil || b.Decision().Target.Worker != 2 {
			t.Fatal("a new worker did not help")
		}
		// The last ones leave: those who wait are told.
		failed := make(chan error, 1)
		h.router.Submit(t.Context(), &router.Query{Model: "m", Tokens: count(900, 80)}, func(_ *router.Booking, err error) { failed <- err })
		h.fleet.Remove(1)
		h.fleet.Remove(2)
		synctest.Wait()
		select {
		case err := <-failed:
			if engine.KindOf(err) != engine.NotFound {
				t.Errorf("got %v", err)
			}
		default:
			t.Error("still waits for workers that are gone")
		}
	})
}

// What was stored while a request waited counts when it leaves, and its place
// among those who wait does not change by it.
func TestOverlapIsLookedUpAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(0, func(c *router.Config) { c.QueueOrder = router.WSPT }))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		a := h.arrivals()
		long := count(0, 80)
		a.submit(t.Context(), router.Query{ID: "load", Tokens: count(9000, 8)})
		a.submit(t.Context(), router.Query{ID: "long", Tokens: long})
		a.submit(t.Context(), router.Query{ID: "short", Tokens: count(5000, 20)})
		time.Sleep(11 * time.Second)
		h.caches(1, 1, kv.TierDevice, long)
		a.expect("parked", "load")
		a.bookings["load"].Release()
		a.expect("the shorter one first, as it was when they came", "short")
		a.bookings["short"].Release()
		a.expect("then the other", "long")
		if d := a.bookings["long"].Decision(); d.Overlap != 20 {
			t.Errorf("%+v, want what was stored meanwhile", d)
		}
	})
}

// A policy that takes its time does not let newcomers of the class slip in while
// one that waited is on its way out, and one that panics fails one request.
func TestPoliciesWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slowly{}
		h := newHouse(t, queueing(0, func(c *router.Config) { c.Policy = p }))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		a := h.arrivals()
		a.submit(t.Context(), router.Query{ID: "load", Tokens: count(9000, 8)})
		a.submit(t.Context(), router.Query{ID: "waits", Tokens: count(8000, 8)})
		p.meanwhile = func() { // it is asked about the one that has waited
			p.meanwhile = nil
			a.submit(t.Context(), router.Query{ID: "newcomer", Tokens: count(7000, 8)})
		}
		a.bookings["load"].Release()
		a.expect("the newcomer stays behind", "load", "waits")
		p.meanwhile = func() { p.meanwhile = nil; panic("a fault of the policy's") }
		a.bookings["waits"].Release()
		a.expect("the policy panics", "newcomer")
		if err := a.errs["newcomer"]; engine.KindOf(err) != engine.Internal {
			t.Errorf("got %v", err)
		}
		a.submit(t.Context(), router.Query{ID: "next", Tokens: count(6000, 8)})
		a.expect("and nothing is left of it", "next")
		a.bookings["next"].Release()
		if l := h.router.Loads()[0]; l.Requests != 0 || l.PrefillTokens != 0 {
			t.Errorf("%+v", l)
		}
	})
}

type slowly struct{ meanwhile func() }

func (p *slowly) Pick(context.Context, *router.Query, []router.Candidate) (int, error) {
	if p.meanwhile != nil {
		p.meanwhile()
	}
	return 0, nil
}

// The clients of 100,000 requests leave, each for itself: nothing is left.
func TestEverybodyLeaves(t *testing.T) {
	const n = 100_000
	h := newHouse(t, queueing(0))
	defer h.fleet.Close()
	h.join(1, card(hundred))
	h.route(router.Query{Model: "m", Tokens: count(0, 80)})
	goroutines := runtime.NumGoroutine()
	leaveAll(t, h, n)
	if got := h.router.Queues()[0].Classes[0]; got.Requests != 0 || got.Tokens != 0 || got.CachedTokens != 0 {
		t.Errorf("%+v", got)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 2 {
		t.Errorf("%d goroutines are left", more)
	}
}

func leaveAll(t *testing.T, h *house, n int64) {
	var told, cancelled, collected atomic.Int64
	toldAll, collectedAll := make(chan struct{}), make(chan struct{})
	leave := make([]context.CancelFunc, n)
	for i := range leave {
		ctx, cancel := context.WithCancel(context.Background())
		leave[i] = cancel
		q := &router.Query{Model: "m", Tokens: count(500, 8), Priority: float64(i % 7)}
		runtime.AddCleanup(q, func(int) {
			if collected.Add(1) == n {
				close(collectedAll)
			}
		}, 0)
		h.router.Submit(ctx, q, func(_ *router.Booking, err error) {
			if engine.KindOf(err) == engine.Cancelled {
				cancelled.Add(1)
			}
			if told.Add(1) == n {
				close(toldAll)
			}
		})
	}
	if got := h.router.Queues()[0].Classes[0].Requests; got != int(n) {
		t.Fatalf("%d wait", got)
	}
	for _, f := range leave {
		f()
	}
	<-toldAll
	if cancelled.Load() != n {
		t.Errorf("%d of %d were cancelled", cancelled.Load(), n)
	}
	timeout := time.After(time.Minute) // the race detector makes it slow
	for {
		runtime.GC()
		select {
		case <-collectedAll:
			return
		case <-timeout:
			t.Errorf("only %d of %d queries can be collected", collected.Load(), n)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Where prefills are predicted, a request that waits is let go as time passes,
// though nobody tells of anything.
func TestWaitForPredictedPrefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(1, func(c *router.Config) { c.PrefillModel = second{} }))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		running, stop := context.WithCancel(t.Context())
		defer stop()
		go h.router.Run(running)
		h.route(router.Query{Model: "m", Tokens: count(0, 200)})
		start := time.Now()
		h.route(router.Query{Model: "m", Tokens: count(500, 80)})
		if waited := time.Since(start); waited < 500*time.Millisecond || waited > 600*time.Millisecond {
			t.Errorf("waited %v for half of it", waited)
		}
	})
}

// second is a model by which every prompt takes a second.
type second struct{}

func (second) Predict(_, _, _ int) (time.Duration, bool) { return time.Second, true }

// Two pools of one model, with blocks of different size, are one place to wait
// for: a request has room if either has.
func TestWaitForEitherPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(1))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		h.join(2, card(hundred, func(c *engine.Card) { c.BlockSize = 32 }))
		a := h.arrivals()
		a.submit(t.Context(), router.Query{ID: "one", Tokens: count(0, 150), PinWorker: 1})
		a.submit(t.Context(), router.Query{ID: "two", Tokens: count(1000, 150)})
		a.submit(t.Context(), router.Query{ID: "waits", Tokens: count(2000, 10)})
		a.expect("both are busy", "one", "two")
		if d := a.bookings["two"].Decision(); d.Target.Worker != 2 || d.Blocks != 5 {
			t.Errorf("%+v", d)
		}
		a.bookings["two"].Prefilled()
		a.expect("the other pool has room", "waits")
		if d := a.bookings["waits"].Decision(); d.Target.Worker != 2 {
			t.Errorf("%+v", d)
		}
	})
}

// Workers that restart, policies that panic, clients that leave and time that runs
// out, all at once: each request is told once, and nothing of any is left.
func TestQueueInTrouble(t *testing.T) {
	p := &moody{}
	h := newHouse(t, queueing(0, func(c *router.Config) { c.Policy, c.QueueTimeout = p, 50*time.Millisecond }))
	defer h.fleet.Close()
	for id := range uint64(3) {
		h.join(id+1, card(hundred))
	}
	running, stop := context.WithCancel(t.Context())
	defer stop()
	go h.router.Run(running)
	var clients, bookings sync.WaitGroup
	var kinds sync.Map
	for client := range 8 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(client)))
			for range 150 {
				ctx, cancel := context.WithCancel(t.Context())
				q := &router.Query{
					Model: "m", Tokens: count(random.Uint32N(1000)*100, 1+random.IntN(60)),
					Priority: float64(random.IntN(3)), StrictPriority: random.Uint32N(2),
				}
				if random.IntN(4) == 0 {
					q.PinWorker = 1 + random.Uint64N(3)
				}
				leaves, prefills := random.IntN(4) == 0, random.IntN(2) == 0
				var told atomic.Int64
				done := make(chan struct{})
				h.router.Submit(ctx, q, func(b *router.Booking, err error) {
					if told.Add(1) > 1 || (b == nil) == (err == nil) {
						t.Errorf("told %d times: %v, %v", told.Load(), b, err)
						return
					}
					if err != nil {
						kinds.Store(engine.KindOf(err), true)
					} else {
						bookings.Go(func() {
							if prefills {
								b.Prefilled()
							}
							runtime.Gosched()
							b.Release()
						})
					}
					close(done)
				})
				if leaves {
					cancel()
				}
				<-done
				cancel()
			}
		})
	}
	clients.Go(func() {
		for epoch := range uint64(40) {
			h.become(2, engine.Status{Epoch: epoch + 2, Revision: 1, State: engine.Ready, Card: card(hundred).Card})
		}
	})
	clients.Wait()
	bookings.Wait()
	for _, c := range h.router.Queues() {
		if s := c.Classes[0]; s.Requests != 0 || s.Tokens != 0 || s.CachedTokens != 0 {
			t.Errorf("left behind: %+v", s)
		}
	}
	for _, l := range h.router.Loads() {
		if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
			t.Errorf("left behind: %+v", l)
		}
	}
	if _, ok := kinds.Load(engine.Internal); !ok {
		t.Error("the policy has not failed once")
	}
	if c := h.router.Counters(); c.Parked == 0 || c.Decisions == 0 {
		t.Errorf("%+v", c)
	}
}

// moody is a policy that now and then panics, errs, or picks what is not there.
type moody struct{ asked atomic.Int64 }

func (p *moody) Pick(_ context.Context, _ *router.Query, c []router.Candidate) (int, error) {
	switch n := p.asked.Add(1); {
	case n%23 == 0:
		panic("bad mood")
	case n%19 == 0:
		return 0, errors.New("bad mood")
	case n%17 == 0:
		return len(c), nil
	default:
		return int(n) % len(c), nil
	}
}

// Tick is wanted when the next thing is due, and not before.
func TestNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(0, func(c *router.Config) { c.QueueTimeout = 5 * time.Second }))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		a, r := h.arrivals(), h.router
		in := func() time.Duration { return time.Until(r.NextTick()) }
		if in() != time.Minute {
			t.Errorf("idle: in %v, want a minute", in())
		}
		a.submit(t.Context(), router.Query{ID: "runs", Tokens: count(0, 8)})
		time.Sleep(time.Second)
		a.submit(t.Context(), router.Query{ID: "waits", Tokens: count(100, 8)})
		time.Sleep(time.Second)
		a.submit(t.Context(), router.Query{ID: "waits too", Tokens: count(200, 8)})
		if in() != 4*time.Second {
			t.Errorf("with one who waits: in %v, want 4s", in())
		}
		time.Sleep(4 * time.Second)
		r.Tick(time.Now())
		a.expect("it has waited too long", "runs", "waits")
		if in() != time.Second {
			t.Errorf("with another: in %v, want 1s", in())
		}
		a.bookings["runs"].Release()
		a.expect("room for the other", "waits too")
		if in() != 54*time.Second {
			t.Errorf("idle again: in %v, want the sweep", in())
		}
	})
}

// A worker that has just said that it is full is nobody to go to, but somebody to
// wait for.
func TestFullWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, queueing(0))
		defer h.fleet.Close()
		h.join(1, card(hundred))
		h.join(2, card(hundred))
		running, stop := context.WithCancel(t.Context())
		defer stop()
		go h.router.Run(running)
		first, second := h.route(router.Query{Model: "m", Tokens: count(0, 8)}), h.route(router.Query{Model: "m", Tokens: count(100, 8)})
		told := make(chan *router.Booking, 1)
		h.router.Submit(t.Context(), &router.Query{Model: "m", Tokens: count(200, 8)}, func(b *router.Booking, err error) {
			if err != nil {
				t.Error(err)
			}
			told <- b
		})
		full := first.Worker()
		full.Inhibit(time.Now(), engine.WorkerOverloaded)
		first.Release()
		time.Sleep(4 * time.Second)
		if len(told) > 0 {
			t.Error("sent on to a worker that is busy, because the other is full")
		}
		second.Worker().Inhibit(time.Now(), engine.WorkerOverloaded)
		if _, err := h.router.Route(t.Context(), &router.Query{Model: "m", Tokens: count(300, 8)}); engine.KindOf(err) != engine.ResourceExhausted {
			t.Errorf("a newcomer while all are full: %v", err)
		}
		time.Sleep(2 * time.Second)
		if b := <-told; b.Worker() != full {
			t.Errorf("went to %v", b.Decision().Target)
		}
	})
}
