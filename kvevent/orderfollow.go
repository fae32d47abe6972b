package kvevent

import (
	"cmp"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
)

// Limits of a [Follower].
const (
	followBuffer   = 1024
	followAttempts = 8
	followBackoff  = 200 * time.Millisecond
)

// FollowEffects is what a [Follower] does to the world. Its methods are called
// from within those of the Follower, and must not call back.
type FollowEffects interface {
	// Apply makes one event part of the rank's state.
	Apply(e RouterEvent)
	// Clear says that everything applied so far is void.
	Clear(reason kv.GapReason)
	// Rebuild says that what is applied from now on begins with an empty rank,
	// and is not yet all of it.
	Rebuild()
	// Complete says that what was applied is all that the publisher knows.
	Complete()
	// Recover asks the publisher, instead of any other question that is open.
	Recover(q Recovery)
	// Cancel takes the open question back.
	Cancel()
}

// Follower puts the events of one publisher in order, as a router hears them
// from another process of ours: out of order, twice, or not at all. Whoever
// publishes can be asked, so that what is missing is asked for; where nobody
// can, the rank is forgotten at every gap.
//
// It is plain data and not safe for concurrent use; time comes in as an
// argument.
type Follower struct {
	fx          FollowEffects
	worker      uint64
	rank        uint32
	recoverable bool
	stats       FollowStats

	known   bool   // last means something
	last    uint64 // number of the newest event applied
	newest  uint64 // number of the newest event heard of
	pending []RouterEvent

	open     bool // a question is open, or will be asked again
	asked    bool // it is open
	question Recovery
	attempts int
	at       time.Time // when it is asked again
	fenced   bool
}

// FollowStats counts what a [Follower] has seen. It is plain data.
type FollowStats struct {
	Applied, Ignored, Dropped uint64 // events; those dropped found no room
	Gaps, Resets              uint64
	Asked, Failed             uint64 // questions, and those without a useful answer
	Degraded                  uint64 // times that events were applied behind a hole
}

// NewFollower returns a follower that has heard nothing of the rank. A publisher
// is recoverable if it can be asked.
func NewFollower(worker uint64, rank uint32, recoverable bool, fx FollowEffects) *Follower {
	return &Follower{fx: fx, worker: worker, rank: rank, recoverable: recoverable}
}

// Stats returns the counters so far.
func (f *Follower) Stats() FollowStats { return f.stats }

// Fenced says that the publisher has answered for somebody else, and is not
// listened to until it is replaced.
func (f *Follower) Fenced() bool { return f.fenced }

// Last returns the number of the newest event applied; known is false before
// there is one.
func (f *Follower) Last() (last uint64, known bool) { return f.last, f.known }

// Activate begins: a publisher that can be asked is asked for everything before
// it tells something.
func (f *Follower) Activate() {
	if f.recoverable && !f.known && !f.open {
		f.ask(0)
	}
}

// Replaced says that another publisher tells of the rank from now on.
func (f *Follower) Replaced(recoverable bool) {
	f.cancel()
	f.reset(kv.GapRestart)
	f.recoverable, f.fenced, f.known, f.last, f.newest = recoverable, false, false, 0, 0
	f.Activate()
}

// Deadline returns when [Follower.Tick] is to be called, if ever.
func (f *Follower) Deadline() (time.Time, bool) { return f.at, f.open && !f.asked }

// Tick asks again if it is time.
func (f *Follower) Tick(now time.Time) {
	if at, ok := f.Deadline(); ok && !now.Before(at) {
		f.asked = true
		f.stats.Asked++
		f.fx.Recover(f.question)
	}
}

// Live tells of the next event that has come.
func (f *Follower) Live(e RouterEvent) {
	if f.fenced || e.Worker != f.worker || e.Rank != f.rank {
		f.stats.Ignored++
		return
	}
	stale := f.known && e.ID <= f.last
	if !stale {
		f.newest = max(f.newest, e.ID)
	}
	switch {
	case stale:
		f.stats.Ignored++
	case clears(&e) && (f.open || !f.known || e.ID != f.last+1):
		f.cancel()
		f.cleared(&e)
	case f.open:
		f.buffer(e)
	case !f.known && f.recoverable:
		f.buffer(e)
		f.ask(0)
	case !f.known, e.ID == f.last+1:
		if !f.known && e.ID == 1 {
			f.fx.Complete()
		}
		f.advance(&e)
		if len(f.pending) > 0 {
			f.drain()
		}
	case f.recoverable:
		f.stats.Gaps++
		f.reset(kv.GapLost)
		f.known, f.last = false, 0
		f.buffer(e)
		f.ask(0)
	default:
		f.stats.Gaps++
		f.degrade()
		f.advance(&e)
	}
}

// Answered tells of the answer to the open question.
func (f *Follower) Answered(now time.Time, a Answer) {
	if !f.asked {
		return
	}
	f.asked = false
	if told := a.Kind == AnswerEvents || a.Kind == AnswerDump; told && !f.own(&a) {
		f.cancel()
		f.reset(kv.GapLost)
		f.fenced = true
		return
	}
	switch a.Kind {
	case AnswerDump:
		f.open, f.attempts = false, 0
		f.reset(kv.GapLost)
		f.fx.Rebuild()
		for i := range a.Events {
			f.apply(&a.Events[i])
		}
		f.fx.Complete()
		f.known, f.last = true, a.Last
		f.drain()
	case AnswerEvents:
		f.open, f.attempts = false, 0
		f.continued(&a)
	case AnswerDumpFailed:
		f.retry(now, false)
	default:
		f.retry(now, true)
	}
}

// Failed says that the open question has had no answer.
func (f *Follower) Failed(now time.Time) {
	if f.asked {
		f.retry(now, true)
	}
}

// own says whether an answer is of this publisher throughout.
func (f *Follower) own(a *Answer) bool {
	foreign := func(e RouterEvent) bool { return e.Worker != f.worker || e.Rank != f.rank }
	return a.Worker == f.worker && a.Rank == f.rank && !slices.ContainsFunc(a.Events, foreign)
}

// continued applies the events that were asked for.
func (f *Follower) continued(a *Answer) {
	for i := range a.Events {
		e := &a.Events[i]
		switch {
		case f.known && e.ID <= f.last:
		case clears(e):
			f.cleared(e)
		case f.known && e.ID != f.last+1:
			f.degrade()
			f.advance(e)
		default:
			f.advance(e)
		}
	}
	f.known, f.last = true, max(f.last, a.Last)
	f.drain()
}

// retry asks again after a while. Where nobody has answered, what was to go on with
// what has been told is asked for as a whole, and that is void: it is of a while
// ago. When that was done often enough, what has
// been heard meanwhile is all there is; or, if the publisher is there and only
// cannot tell, the next event asks anew.
func (f *Follower) retry(now time.Time, degrade bool) {
	f.stats.Failed++
	f.asked = false
	if degrade && f.question.From > 0 {
		f.reset(kv.GapLost)
		f.known, f.last, f.question.From = false, 0, 0
	}
	if f.attempts++; f.attempts < followAttempts {
		f.at = now.Add(followBackoff << (f.attempts - 1))
		return
	}
	f.open, f.attempts = false, 0
	if !degrade {
		return
	}
	f.sort()
	for i := range f.pending {
		switch e := &f.pending[i]; {
		case f.known && e.ID <= f.last:
		case f.known && e.ID == f.last+1:
			f.advance(e)
		default:
			f.degrade()
			f.advance(e)
		}
	}
	f.pending, f.newest = nil, f.last
}

// drain applies what was heard while a question was open, and asks for what is
// still missing.
func (f *Follower) drain() {
	f.sort()
	for len(f.pending) > 0 && f.pending[0].ID <= f.last+1 {
		if e := &f.pending[0]; e.ID > f.last {
			f.advance(e)
		}
		f.pending = f.pending[1:]
	}
	if f.newest > f.last && f.recoverable {
		f.ask(f.last + 1)
	}
}

func (f *Follower) sort() {
	slices.SortStableFunc(f.pending, func(a, b RouterEvent) int { return cmp.Compare(a.ID, b.ID) })
}

// ask asks for the events from number from on; 0 is everything.
func (f *Follower) ask(from uint64) {
	f.open, f.asked = true, true
	f.question = Recovery{Worker: f.worker, Rank: f.rank, From: from}
	f.stats.Asked++
	f.fx.Recover(f.question)
}

// cancel takes the open question back, and forgets what waits for its answer.
func (f *Follower) cancel() {
	if f.asked {
		f.fx.Cancel()
	}
	f.open, f.asked, f.attempts, f.pending = false, false, 0, nil
}

// buffer keeps an event until the answer comes; the oldest must give way.
func (f *Follower) buffer(e RouterEvent) {
	if len(f.pending) == followBuffer {
		f.pending = slices.Delete(f.pending, 0, 1)
		f.stats.Dropped++
	}
	f.pending = append(f.pending, e)
}

// degrade forgets what lies before a hole that stays.
func (f *Follower) degrade() {
	f.stats.Degraded++
	f.reset(kv.GapLost)
}

func (f *Follower) reset(reason kv.GapReason) {
	f.stats.Resets++
	f.fx.Clear(reason)
}

// cleared applies a clear, before which nothing matters.
func (f *Follower) cleared(e *RouterEvent) {
	f.reset(kv.GapRestart)
	f.fx.Complete()
	f.advance(e)
}

// advance applies the next event.
func (f *Follower) advance(e *RouterEvent) {
	f.apply(e)
	f.known, f.last = true, e.ID
}

func (f *Follower) apply(e *RouterEvent) {
	f.stats.Applied++
	f.fx.Apply(*e)
}

// clears says whether an event leaves nothing of the rank.
func clears(e *RouterEvent) bool {
	return e.Event.Kind == kv.Cleared && e.Residency == ResidencyUntold
}
