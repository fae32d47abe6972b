package router

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// desk decides what it is told to, when it is told to.
type desk struct {
	t        *testing.T
	affinity *affinity
	asked    []*decision // undecided ones
}

type decision struct {
	query *Query
	done  func(*Booking, error)
}

func newDesk(t *testing.T, strict bool) *desk {
	d := &desk{t: t}
	d.affinity = newAffinity(time.Minute, strict, time.Now, func(_ context.Context, q *Query, done func(*Booking, error)) {
		d.asked = append(d.asked, &decision{q, done})
	})
	return d
}

// result is what has become of a request.
type result struct {
	booking *Booking
	err     error
	calls   int
}

func (d *desk) submit(ctx context.Context, q Query) *result {
	got := new(result)
	q.Session.ID = "s"
	d.affinity.submit(ctx, &q, "m", func(b *Booking, err error) {
		got.booking, got.err = b, err
		got.calls++
	})
	return got
}

// next returns the one request that is to be decided about.
func (d *desk) next() *decision {
	d.t.Helper()
	if len(d.asked) != 1 {
		d.t.Fatalf("%d requests are to be decided about, want 1", len(d.asked))
	}
	first := d.asked[0]
	d.asked = nil
	return first
}

func (c *decision) to(worker uint64, rank uint32) {
	c.done(&Booking{decision: Decision{Target: kv.Target{Worker: worker, Rank: rank}}, load: new(load)}, nil)
}

func (g *result) on(t *testing.T, worker uint64, use SessionUse) {
	t.Helper()
	if g.calls != 1 || g.err != nil {
		t.Fatalf("%d answers, error %v", g.calls, g.err)
	}
	if got := g.booking.decision; got.Target.Worker != worker || got.Session != use {
		t.Errorf("on %v, use %d; want worker %d, use %d", got.Target, got.Session, worker, use)
	}
}

func (g *result) failed(t *testing.T, kind engine.ErrorKind) {
	t.Helper()
	if g.calls != 1 || g.booking != nil || engine.KindOf(g.err) != kind {
		t.Errorf("%d answers, %v, %v; want %s", g.calls, g.booking, g.err, kind)
	}
}

func TestFirstRequestsBindOnce(t *testing.T) {
	d := newDesk(t, false)
	first, second, third := d.submit(t.Context(), Query{}), d.submit(t.Context(), Query{}), d.submit(t.Context(), Query{})
	d.next().to(4, 1)
	first.on(t, 4, SessionBound)
	if len(d.asked) != 2 || second.calls+third.calls > 0 {
		t.Fatalf("%d go on", len(d.asked))
	}
	for _, c := range d.asked {
		if q := c.query; q.PinWorker != 4 || *q.PinRank != 1 || !q.follows {
			t.Errorf("%+v is not where the first one is", q)
		}
		c.to(4, 1)
	}
	second.on(t, 4, SessionFollowed)
	third.on(t, 4, SessionFollowed)
}

func TestFailedFirstRequest(t *testing.T) {
	d := newDesk(t, false)
	first, second, third := d.submit(t.Context(), Query{}), d.submit(t.Context(), Query{}), d.submit(t.Context(), Query{})
	d.next().done(nil, engine.Errorf(engine.ResourceExhausted, "no"))
	first.failed(t, engine.ResourceExhausted)
	d.next().to(2, 0) // the second chooses now, and the third waits for it
	second.on(t, 2, SessionBound)
	d.next().to(2, 0)
	third.on(t, 2, SessionFollowed)
}

func TestImpatientSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, false)
		first := d.submit(t.Context(), Query{})
		ctx, cancel := context.WithCancelCause(t.Context())
		second := d.submit(ctx, Query{})
		third := d.submit(t.Context(), Query{})
		cancel(engine.ErrClientGone)
		synctest.Wait()
		second.failed(t, engine.Cancelled)
		choice := d.next()
		choice.to(1, 0)
		d.next().to(1, 0)
		first.on(t, 1, SessionBound)
		third.on(t, 1, SessionFollowed)
		if second.calls != 1 {
			t.Error("one that had gone was answered again")
		}
	})
}

// A thousand waiters of a session whose requests all fail fail one after the
// other, and not each on the stack of the one before.
func TestAllFail(t *testing.T) {
	d := newDesk(t, false)
	depth, deepest := 0, 0
	d.affinity.decide = func(_ context.Context, q *Query, done func(*Booking, error)) {
		if d.asked == nil {
			d.asked = []*decision{{q, done}}
			return
		}
		depth++
		deepest = max(deepest, depth)
		done(nil, engine.Errorf(engine.Unavailable, "no"))
		depth--
	}
	var all []*result
	for range 1000 {
		all = append(all, d.submit(t.Context(), Query{}))
	}
	d.asked[0].done(nil, engine.Errorf(engine.Unavailable, "no"))
	for _, g := range all {
		g.failed(t, engine.Unavailable)
	}
	if deepest != 1 {
		t.Errorf("%d decisions inside each other", deepest)
	}
	if c := d.affinity.table.stats(); c.Bindings != 0 {
		t.Errorf("%+v", c)
	}
}

func TestBoundTargetIsLost(t *testing.T) {
	d := newDesk(t, false)
	d.submit(t.Context(), Query{})
	d.next().to(3, 0)
	second := d.submit(t.Context(), Query{})
	d.next().done(nil, &engine.Error{Kind: engine.Unavailable, Worker: 3})
	if q := d.asked[0].query; q.pinned() || q.follows {
		t.Errorf("%+v still follows", q)
	}
	d.next().to(5, 0)
	second.on(t, 5, SessionBound)
	third := d.submit(t.Context(), Query{})
	if q := d.asked[0].query; q.PinWorker != 5 {
		t.Errorf("the session is bound to %d", q.PinWorker)
	}
	d.next().to(5, 0)
	third.on(t, 5, SessionFollowed)
}

// An error that is not the bound worker's leaves the binding.
func TestErrorThatIsNotTheTargets(t *testing.T) {
	d := newDesk(t, false)
	d.submit(t.Context(), Query{})
	d.next().to(3, 0)
	for _, err := range []error{
		engine.Errorf(engine.ResourceExhausted, "the queue is full"),
		&engine.Error{Kind: engine.InvalidArgument, Param: "router_config_override"},
		context.Canceled,
	} {
		got := d.submit(t.Context(), Query{})
		d.next().done(nil, err)
		got.failed(t, engine.KindOf(err))
	}
	last := d.submit(t.Context(), Query{})
	d.next().to(3, 0)
	last.on(t, 3, SessionFollowed)
	if c := d.affinity.table.stats(); c.Lost != 0 {
		t.Errorf("%+v", c)
	}
}

// A request whose session loses a target again chooses for it, and others wait.
func TestSecondLoss(t *testing.T) {
	d, unlucky := twoLosses(t)
	last := d.next()
	if q := last.query; q.pinned() || q.follows {
		t.Fatalf("%+v still follows", q)
	}
	other := d.submit(t.Context(), Query{})
	last.to(6, 0)
	unlucky.on(t, 6, SessionBound)
	if q := d.next().query; q.PinWorker != 6 || other.calls > 0 {
		t.Errorf("the session is bound to %d", q.PinWorker)
	}
}

// One under which others have replaced its session's target twice goes anywhere, as
// long as anybody can serve it, and the session with it unless it is bound by then.
func TestLossOfEveryTarget(t *testing.T) {
	for _, c := range []struct {
		then uint64
		use  SessionUse
	}{{7, SessionUnbound}, {6, SessionFollowed}} {
		d := newDesk(t, false)
		d.submit(t.Context(), Query{})
		d.next().to(3, 0)
		unlucky := d.submit(t.Context(), Query{})
		lost := d.next()
		for _, step := range [][2]uint64{{3, 5}, {5, c.then}} {
			d.submit(t.Context(), Query{})
			d.next().done(nil, &engine.Error{Kind: engine.Unavailable, Worker: step[0]})
			d.next().to(step[1], 0)
			lost.done(nil, &engine.Error{Kind: engine.Unavailable, Worker: step[0]})
			lost = d.next()
		}
		if q := lost.query; q.pinned() || q.follows {
			t.Fatalf("%+v still follows", q)
		}
		lost.to(6, 0)
		unlucky.on(t, 6, c.use)
		d.submit(t.Context(), Query{})
		if q := d.next().query; q.PinWorker != c.then {
			t.Errorf("the session is bound to %d, want %d", q.PinWorker, c.then)
		}
	}
}

// If nobody can serve it then, it fails for that reason.
func TestSecondLossOfTheLast(t *testing.T) {
	d, unlucky := twoLosses(t)
	d.next().done(nil, engine.Errorf(engine.ResourceExhausted, "all are full"))
	unlucky.failed(t, engine.ResourceExhausted)
	d.submit(t.Context(), Query{})
	if q := d.next().query; q.pinned() {
		t.Errorf("the session is still bound to %d", q.PinWorker)
	}
}

// twoLosses returns a request that has lost two targets, and is to be decided
// about again.
func twoLosses(t *testing.T) (*desk, *result) {
	d := newDesk(t, false)
	d.submit(t.Context(), Query{})
	d.next().to(3, 0)
	unlucky, other := d.submit(t.Context(), Query{}), d.submit(t.Context(), Query{})
	both := d.asked
	d.asked = nil
	both[1].done(nil, &engine.Error{Kind: engine.Unavailable, Worker: 3})
	d.next().to(5, 0)
	other.on(t, 5, SessionBound)
	both[0].done(nil, &engine.Error{Kind: engine.Unavailable, Worker: 3})
	if q := d.asked[0].query; q.PinWorker != 5 {
		t.Fatalf("it does not follow the other: %+v", q)
	}
	d.next().done(nil, &engine.Error{Kind: engine.Unavailable, Worker: 5})
	if unlucky.calls != 0 {
		t.Fatal("it has failed because its session has lost two workers")
	}
	return d, unlucky
}

func TestPinOvertakesSelection(t *testing.T) {
	d := newDesk(t, false)
	first := d.submit(t.Context(), Query{})
	second := d.submit(t.Context(), Query{})
	slow := d.next()
	pinned := d.submit(t.Context(), Query{PinWorker: 8})
	d.next().to(8, 2)
	pinned.on(t, 8, SessionBound)
	if q := d.asked[0].query; q.PinWorker != 8 || *q.PinRank != 2 {
		t.Errorf("who waited goes to %d", q.PinWorker)
	}
	d.next().to(8, 2)
	second.on(t, 8, SessionFollowed)
	slow.to(1, 0) // it is where it is, and its session is not
	first.on(t, 1, SessionBound)
	fourth := d.submit(t.Context(), Query{})
	d.next().to(8, 2)
	fourth.on(t, 8, SessionFollowed)
}

// A pin without a rank means the one that the session knows there.
func TestPinTakesTheRankOfItsSession(t *testing.T) {
	d := newDesk(t, false)
	d.submit(t.Context(), Query{})
	d.next().to(8, 3)
	d.submit(t.Context(), Query{PinWorker: 8})
	if q := d.next().query; q.PinRank == nil || *q.PinRank != 3 || q.follows {
		t.Errorf("%+v", q)
	}
	d.submit(t.Context(), Query{PinWorker: 9})
	if q := d.next().query; q.PinRank != nil {
		t.Errorf("rank %d of another worker", *q.PinRank)
	}
	d.submit(t.Context(), Query{PinWorker: 8, PinRank: new(uint32(1))})
	if q := d.next().query; *q.PinRank != 1 {
		t.Errorf("rank %d, not the one asked for", *q.PinRank)
	}
}

func TestNoRoomForASession(t *testing.T) {
	for _, strict := range []bool{false, true} {
		d := newDesk(t, strict)
		d.affinity.table.limit = 0
		got := d.submit(t.Context(), Query{})
		if strict {
			got.failed(t, engine.ResourceExhausted)
			continue
		}
		d.next().to(2, 0)
		got.on(t, 2, SessionUnbound)
		if got.booking.lease != nil {
			t.Error("there is a lease of nothing")
		}
	}
}

// A lease keeps a session for longer than it may be idle, and the reaper needs
// nobody who asks.
func TestLeasesAndReaper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, false)
		g := d.submit(t.Context(), Query{})
		d.next().to(1, 0)
		bindings := func() int { return d.affinity.table.stats().Bindings }
		time.Sleep(time.Hour)
		if d.affinity.tick(time.Now()); bindings() != 1 {
			t.Fatalf("%d bindings", bindings())
		}
		if next, some := d.affinity.next(); some {
			t.Errorf("there is nothing to end in %v", time.Until(next))
		}
		g.booking.lease.end(true)
		if next, _ := d.affinity.next(); time.Until(next) != time.Minute {
			t.Errorf("next look in %v", time.Until(next))
		}
		time.Sleep(time.Minute - 1)
		if d.affinity.tick(time.Now()); bindings() != 1 {
			t.Error("it expired early")
		}
		if next, _ := d.affinity.next(); time.Until(next) != reapEvery {
			t.Errorf("next look in %v", time.Until(next))
		}
		time.Sleep(reapEvery)
		if d.affinity.tick(time.Now()); bindings() != 0 {
			t.Error("nobody has looked")
		}
	})
}
