package router

import (
	"time"

	"github.com/dynago/dynago/kv"
)

// line is where one class waits: a shared lane, and one for each target that
// requests are pinned to.
type line[T any] struct {
	class  *Class
	shared lane[T]
	pinned []*lane[T] // none of them empty
	to     map[kv.Target]*lane[T]

	deficit int      // tokens that the class may still spend
	head    *Item[T] // who may go, while a turn is given

	requests, tokens, cached int // of what waits
	rejected                 map[LimitKind]uint64

	moved time.Time     // when somebody went last, or the first came
	pace  time.Duration // mean time between those that went
	paced int           // how many of them the mean is of
}

// push puts a request where it belongs.
func (l *line[T]) push(it *Item[T]) {
	at := &l.shared
	if it.Pinned {
		at = l.laneTo(it.Target)
	}
	at.push(it)
	l.requests++
	l.tokens += it.tokens
	l.cached += it.cached
}

// laneTo returns the lane of a target, made if need be.
func (l *line[T]) laneTo(t kv.Target) *lane[T] {
	at := l.to[t]
	if at != nil {
		return at
	}
	at = &lane[T]{line: l, target: t, place: len(l.pinned)}
	l.pinned = append(l.pinned, at)
	if l.to == nil {
		l.to = make(map[kv.Target]*lane[T])
	}
	l.to[t] = at
	return at
}

// take takes a request out, from wherever it is.
func (l *line[T]) take(it *Item[T]) {
	from := it.lane
	from.take(it)
	l.requests--
	l.tokens -= it.tokens
	l.cached -= it.cached
	if l.requests == 0 {
		l.deficit = 0
	}
	if from == &l.shared || len(from.heap) > 0 {
		return
	}
	last := l.pinned[len(l.pinned)-1]
	l.pinned[from.place], last.place = last, from.place
	l.pinned[len(l.pinned)-1] = nil
	l.pinned = shrunk(l.pinned[:len(l.pinned)-1])
	delete(l.to, from.target)
	if len(l.pinned) == 0 {
		l.to = nil // a map keeps its size
	}
}

// first returns the best head that has room, or nil.
func (l *line[T]) first(d *door[T]) *Item[T] {
	best := l.shared.head(nil, d)
	if d.at != nil {
		if at := l.to[*d.at]; at != nil {
			best = at.head(best, d)
		}
		return best
	}
	for _, at := range l.pinned {
		best = at.head(best, d)
	}
	return best
}

// paceOf is over how many requests the pace is a mean.
const paceOf = 32

// went notes that somebody has gone.
func (l *line[T]) went(now time.Time) {
	l.paced = min(l.paced+1, paceOf)
	l.pace += (max(0, now.Sub(l.moved)) - l.pace) / time.Duration(l.paced)
	l.moved = now
}

// outlook guesses when everybody who waits has gone.
func (l *line[T]) outlook(now time.Time) time.Duration {
	if l.paced == 0 {
		return 0
	}
	return time.Duration(l.requests) * l.pace
}

// lane is a heap of requests whose first goes first.
type lane[T any] struct {
	line   *line[T]
	target kv.Target // of a pinned one
	place  int       // among the pinned lanes
	heap   []*Item[T]
}

// head returns who heads the lane if that has room and goes before best, else
// best, which may be nil.
func (l *lane[T]) head(best *Item[T], d *door[T]) *Item[T] {
	if len(l.heap) == 0 {
		return best
	}
	it := l.heap[0]
	if it.refused == d.drain || best != nil && !it.before(best) {
		return best
	}
	if !d.free(it) {
		it.refused = d.drain
		return best
	}
	return it
}

// before says whether it goes before other.
func (it *Item[T]) before(other *Item[T]) bool {
	if it.strict != other.strict {
		return it.strict > other.strict
	}
	if it.score != other.score {
		return it.score > other.score
	}
	return it.seq < other.seq
}

func (l *lane[T]) push(it *Item[T]) {
	it.lane, it.place = l, len(l.heap)
	l.heap = append(l.heap, it)
	l.up(it)
}

func (l *lane[T]) take(it *Item[T]) {
	last := l.heap[len(l.heap)-1]
	l.heap[len(l.heap)-1] = nil
	l.heap = shrunk(l.heap[:len(l.heap)-1])
	if last != it {
		l.set(it.place, last)
		l.down(last)
		l.up(last)
	}
	it.lane, it.refused = nil, 0
}

func (l *lane[T]) set(place int, it *Item[T]) { l.heap[place], it.place = it, place }

func (l *lane[T]) up(it *Item[T]) {
	for it.place > 0 {
		above := l.heap[(it.place-1)/2]
		if !it.before(above) {
			return
		}
		hole := above.place
		l.set(it.place, above)
		l.set(hole, it)
	}
}

func (l *lane[T]) down(it *Item[T]) {
	for {
		below := 2*it.place + 1
		if below >= len(l.heap) {
			return
		}
		if below+1 < len(l.heap) && l.heap[below+1].before(l.heap[below]) {
			below++
		}
		next := l.heap[below]
		if !next.before(it) {
			return
		}
		l.set(it.place, next)
		l.set(below, it)
	}
}

// shrunk returns s in less memory if it fills little of what it has.
func shrunk[E any](s []E) []E {
	if cap(s) < 64 || len(s) > cap(s)/4 {
		return s
	}
	return append(make([]E, 0, cap(s)/2), s...)
}
