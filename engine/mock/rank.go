package mock

import (
	"runtime"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// rank runs one core in real time. Its goroutine lives while there is work and
// no longer, so that an idle engine costs nothing and leaves nothing behind.
type rank struct {
	e    *Engine
	wake chan struct{} // something was submitted
	halt chan struct{} // the pass that is waited for does not count any more

	// passing is held from the planning of a pass that a model computes to its end,
	// and locked before mu.
	passing sync.Mutex

	mu      *sync.Mutex // of all ranks that share a tier
	core    *Core
	journal journal
	hear    func(Report) // or nil
	streams map[*stream]struct{}
	driven  bool          // the goroutine lives
	busy    bool          // a pass has just been made, and the next one follows it
	end     time.Duration // of that pass
}

// slack is how far the engine may lag behind the clock and still catch up by
// shortening its waits.
const slack = 20 * time.Millisecond

func (r *rank) submit(s *stream, q Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.e.refusal(); err != nil {
		return err
	}
	if epoch := s.r.Epoch; epoch != 0 && epoch != r.journal.epoch {
		return engine.Errorf(engine.Stale, "the request is for epoch %d, this is %d", epoch, r.journal.epoch)
	}
	id, err := r.core.Submit(r.e.clock.Now(), q)
	if err != nil {
		return err
	}
	s.core, s.id, s.epoch = r.core, id, r.journal.epoch
	r.streams[s] = struct{}{}
	r.work()
	return nil
}

// work makes sure that somebody does what there is to do. The lock must be held.
func (r *rank) work() {
	if r.driven {
		nudge(r.wake)
		return
	}
	r.driven = true
	if r.e.cfg.Computer != nil {
		r.e.ranks.Go(r.compute)
		return
	}
	r.e.ranks.Go(r.drive)
}

// leave forgets a stream whose consumer has gone, whether it has ended or not. Others
// may have waited for its room, and for nothing else.
func (r *rank) leave(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.core.Cancel(s.id)
	delete(r.streams, s)
	if r.core.waits() {
		r.work()
	}
	r.e.loads.ring()
}

// burst is how many passes without a delay follow each other before those who
// read the answers are woken. Waking a reader costs as much as several passes,
// and with each pass it would be woken for a single token.
const burst = 8

// drive makes passes until nothing is left to do.
func (r *rank) drive() {
	clock := r.e.clock
	var posted readers
	for n := 1; ; n++ {
		res, next, ok := r.pass(clock.Now(), &posted)
		switch {
		case !ok:
			return
		case res.Idle:
			clock.Wait(max(0, next-clock.Now()), r.wake)
			r.e.expireKept()
			continue
		}
		d := res.End - clock.Now()
		if d > 0 {
			posted.wake()
			clock.Wait(d, r.halt)
		}
		for i := range res.Outputs {
			r.deliver(&res.Outputs[i], &posted)
		}
		if d > 0 {
			posted.wake()
		} else if n%burst == 0 {
			posted.wake()
			runtime.Gosched()
		}
		r.e.loads.ring()
	}
}

// readers are the streams that have something new and were not told yet.
type readers []*stream

func (rs *readers) wake() {
	for i, s := range *rs {
		s.told = true
		nudge(s.box.wake)
		(*rs)[i] = nil
	}
	*rs = (*rs)[:0]
}

// pass computes the next pass. If it is idle, all readers have been told, and next is
// when to try again; it is not ok if nothing will come by itself, and the goroutine has
// to end.
func (r *rank) pass(now time.Duration, posted *readers) (res *Result, next time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.halt:
	default:
	}
	start := now
	if r.busy {
		start = max(r.end, now-slack)
	}
	res = r.core.Step(start)
	if res.Idle && start < now {
		r.tell(res.Events, res.Stores)
		res = r.core.Step(now)
	}
	r.tell(res.Events, res.Stores)
	r.e.cfg.Shared.announce()
	if r.busy = !res.Idle; !r.busy {
		posted.wake() // before another goroutine may drive
		next, ok = r.rest()
		return res, next, ok
	}
	r.end = res.End
	return res, 0, true
}

// rest returns when something comes by itself, after a pass without work. If nothing
// will, the goroutine that has made it is to end. The lock must be held.
func (r *rank) rest() (next time.Duration, ok bool) {
	next, r.driven = r.core.NextWake()
	if until, ok := r.e.kept.first(); ok && r.core.waits() && (!r.driven || until < next) {
		next, r.driven = until, true
	}
	return next, r.driven
}

// tell tells of what has happened to the cache.
func (r *rank) tell(events []kv.Event, stores []Store) {
	if len(events) == 0 {
		return
	}
	r.journal.append(events)
	r.report(Report{Events: events, Stores: stores})
	r.e.events.ring()
}

func (r *rank) deliver(o *Output, posted *readers) {
	s := o.Owner.(*stream)
	if o.Err != nil {
		s.box.fail(o.Err)
		return
	}
	if len(o.Tokens) > 0 || o.Finish != engine.Running {
		s.box.post(o)
		if s.told {
			s.told = false
			*posted = append(*posted, s)
		}
	}
	if !o.Cut {
		return
	}
	if s.fault == nil {
		r.e.die(s.epoch, errRestarted)
		return
	}
	s.box.fail(s.fault)
}

// reset drops the core and everything in it. Streams that run end with err.
func (r *rank) reset(epoch uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.streams {
		s.box.fail(err)
		r.e.disappoint(s)
	}
	clear(r.streams)
	for _, id := range r.e.kept.forget(r) { // under the lock: the next life may keep something at once
		r.e.unmeet(id)
	}
	if now := r.e.clock.Now(); r.e.closed.Load() {
		r.core.Close(now) // others go on with what is shared
		r.core = NewCore(r.e.cfg.Args.untiered())
	} else {
		r.core = r.core.Restart(now)
	}
	r.busy = false
	r.journal.restart(epoch)
	r.report(Report{Fresh: true})
	nudge(r.halt)
	nudge(r.wake)
}

// read tells a reader of events what is new.
func (r *rank) read(at *reader) []kv.Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell(r.core.news())
	return r.journal.read(at, func() []kv.Event { return r.core.Stored() })
}

func (r *rank) load() engine.RankLoad {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.core.Load()
	l.Rank = r.journal.rank
	return l
}
