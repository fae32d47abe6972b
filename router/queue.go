package router

import (
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Queue holds requests until there is room for them, and says which goes next.
// It is plain data: it knows no clock, takes no lock, and learns from functions
// it is given whether a request has room.
//
// Each class of a [Profile] waits in a line of its own. In a line the higher
// strict tier goes first, then the higher score, then who came first; keys are
// fixed when a request is parked. Nobody passes the head of a line, except that
// requests pinned to one target wait in a lane of it, and lanes block neither
// each other nor the rest. Between lines a deficit round robin shares what is
// computed, in tokens that are not cached: see [Queue.Ready].
type Queue[T any] struct {
	epoch  time.Time
	lines  []line[T] // by the class's place in the profile
	cursor int       // the line whose turn is next
	carry  int       // the line that went last and goes on while it can pay, or -1
	pushed uint64    // all time: the order of coming
	drains uint64    // all time: names a drain
	parked int
}

// Item is one request in a queue, and the handle to take it out again. What the
// exported fields say when it is parked is what counts; to change them later
// changes nothing. An item may be parked again after it has left.
type Item[T any] struct {
	Value T
	Class *Class // one of the queue's profile
	// Pinned says that Target is the only one that will do.
	Pinned bool
	Target kv.Target
	// Priority is in seconds of earlier arrival; below 0 is 0. A higher
	// StrictPriority goes first whatever the others' Priority.
	Priority       float64
	StrictPriority uint32
	Arrived        time.Time
	Tokens         int // of the prompt
	Cached         int // of them, where most are cached among the targets that will do

	// What it ranks by, and what it counts for.
	strict               uint32
	score                float64
	seq                  uint64
	tokens, cached, cost int

	lane    *lane[T] // nil: not parked
	place   int      // in the lane
	refused uint64   // the drain in which it had no room
}

// NewQueue makes an empty queue for the classes of a profile. Arrivals are
// counted from epoch on.
func NewQueue[T any](p *Profile, epoch time.Time) *Queue[T] {
	q := &Queue[T]{epoch: epoch, lines: make([]line[T], len(p.Classes)), carry: -1}
	for i, c := range p.Classes {
		l := &q.lines[i]
		l.class, l.shared.line, l.rejected = c, l, make(map[LimitKind]uint64)
	}
	return q
}

// Push parks a request. The limits of its class count for so many workers; they
// are compared with what waits already, so the request that crosses one is
// taken. If a limit is reached, the error is of kind resource_exhausted and
// wraps a [*QueueRejection].
//
// A newcomer must be pushed, and Ready asked, if its class has a backlog; it may
// go without if there is none and it has room.
func (q *Queue[T]) Push(it *Item[T], workers int, now time.Time) error {
	l := q.line(it.Class)
	if it.Parked() {
		panic("router: the request is parked already")
	}
	if err := l.rejection(workers); err != nil {
		l.rejected[err.Kind]++
		return &engine.Error{Kind: engine.ResourceExhausted, Op: "queue", Err: err, RetryAfter: l.outlook(now)}
	}
	q.pushed++
	it.seq = q.pushed
	it.tokens = max(0, it.Tokens)
	it.cached = min(max(0, it.Cached), it.tokens)
	it.cost = max(1, it.tokens-it.cached)
	it.strict = it.StrictPriority
	it.score = it.Class.Order.score(it.Priority, it.Arrived.Sub(q.epoch), it.cost)
	if l.requests == 0 {
		l.moved = now
	}
	l.push(it)
	q.parked++
	return nil
}

// Remove takes out a request whose client has left, and says whether it was in
// this queue.
func (q *Queue[T]) Remove(it *Item[T]) bool {
	if !it.Parked() {
		return false
	}
	l := it.lane.line
	if place := l.class.place; place >= len(q.lines) || l != &q.lines[place] {
		return false
	}
	l.take(it)
	q.parked--
	return true
}

// Ready yields the requests that have room, each taken out before it is yielded,
// until none is left that has. free says whether there is a target for a head
// that is not busy; it must not change the queue. It is asked anew after each
// request, because where that one went is busier now. A head that had no room is
// not asked about again in the same loop: what goes makes nothing freer. The loop
// may change the queue.
//
// A class pays for each request what is not cached of it, at least one token,
// and is given its quantum when its turn comes. The one that went last goes on
// while its credit lasts. A class with nothing that has room is given nothing,
// and loses its credit when nobody is left in it. If nobody can pay, all that
// have room are given as many turns at once as it takes for the first to pay,
// and the next turn is that of the class behind it: classes that are passed over
// so may be a turn behind, every second time at worst. Hence, before a request
// that heads its class and has room, whose price is n quanta of its class, at
// most
//
//	m + (3 + n + n/2)·q
//
// tokens of another class go, of which q is the quantum and m the highest price.
func (q *Queue[T]) Ready(now time.Time, free func(*Item[T]) bool) iter.Seq[*Item[T]] {
	return q.leave(now, door[T]{free: free})
}

// ReadyAt is [Queue.Ready] where nothing but the target has become freer, and
// nobody but those who may go there has come, since a loop ended with none left
// that had room: it asks for requests that are pinned nowhere or to it.
func (q *Queue[T]) ReadyAt(now time.Time, target kv.Target, free func(*Item[T]) bool) iter.Seq[*Item[T]] {
	return q.leave(now, door[T]{at: &target, free: free})
}

// door says where there may be room.
type door[T any] struct {
	at    *kv.Target // nil: anywhere
	free  func(*Item[T]) bool
	drain uint64
}

// leave yields those who have room at the door.
func (q *Queue[T]) leave(now time.Time, d door[T]) iter.Seq[*Item[T]] {
	return func(yield func(*Item[T]) bool) {
		q.drains++
		d.drain = q.drains
		for q.parked > 0 {
			it := q.next(&d)
			if it == nil {
				return
			}
			l := it.lane.line
			l.take(it)
			l.went(now)
			q.parked--
			if !yield(it) {
				return
			}
		}
	}
}

// Backlog says how many requests of a class are parked.
func (q *Queue[T]) Backlog(c *Class) int { return q.line(c).requests }

// Len returns how many requests are parked.
func (q *Queue[T]) Len() int { return q.parked }

// Outlook guesses how long it takes until everybody has gone who is parked in a
// class now: their number times the mean time between the last of them that
// went. It is 0 where nobody waits or nobody has gone yet.
func (q *Queue[T]) Outlook(c *Class, now time.Time) time.Duration { return q.line(c).outlook(now) }

// Parked says whether the request is in a queue.
func (it *Item[T]) Parked() bool { return it.lane != nil }

// line returns where a class waits.
func (q *Queue[T]) line(c *Class) *line[T] {
	if c.place >= len(q.lines) || q.lines[c.place].class != c {
		panic(fmt.Sprintf("router: class %s is not of this queue's profile", c.Name))
	}
	return &q.lines[c.place]
}

// QueueStats tell of one class of a queue.
type QueueStats struct {
	Class string
	// What is parked: requests, and of their prompts all tokens and those that
	// were cached somewhere when they were parked.
	Requests, Tokens, CachedTokens int
	Rejected                       map[LimitKind]uint64 // all time
}

// Stats returns what is parked in each class, in the order of the profile.
func (q *Queue[T]) Stats() []QueueStats {
	stats := make([]QueueStats, len(q.lines))
	for i := range q.lines {
		l := &q.lines[i]
		stats[i] = QueueStats{
			Class: l.class.Name, Requests: l.requests, Tokens: l.tokens, CachedTokens: l.cached,
			Rejected: maps.Clone(l.rejected),
		}
	}
	return stats
}
