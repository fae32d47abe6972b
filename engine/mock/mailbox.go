package mock

import (
	"sync"

	"github.com/dynago/dynago/engine"
)

// maxDeltas is how many deltas wait for a consumer before they are merged.
const maxDeltas = 64

// mailbox stands between the engine, which never waits, and the one consumer of
// a stream, which may be slow. Deltas that do not fit are merged into the last
// one, so that a slow consumer costs the bytes of its ids and nothing else.
type mailbox struct {
	wake chan struct{} // has a value when there is something new

	mu     sync.Mutex
	ids    []uint32 // of all waiting deltas
	ends   []int    // where each delta ends in ids
	end    end
	closed bool // nothing further is taken
}

// end is how a stream ends.
type end struct {
	done      bool
	err       error
	finish    engine.Finish
	matched   uint32
	generated int
	cached    int // known with the first delta
	pinned    int // with the last one
	toPin     int
}

// post adds what a pass gave. The ids are copied. Whoever posts wakes the
// consumer, when it sees fit.
func (b *mailbox) post(o *Output) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.end.cached = o.Cached
	b.ids = append(b.ids, o.Tokens...)
	switch n := len(b.ends); {
	case len(o.Tokens) == 0:
	case n < maxDeltas:
		b.ends = append(b.ends, len(b.ids))
	default:
		b.ends[n-1] = len(b.ids)
	}
	b.end.generated = o.Generated
	if o.Finish != engine.Running {
		b.end.done, b.end.finish, b.end.matched = true, o.Finish, o.Matched
		b.end.pinned, b.end.toPin = o.Pinned, o.ToPin
		b.closed = true
	}
}

// fail ends the stream with an error, after what is waiting.
func (b *mailbox) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.end.done, b.end.err, b.closed = true, err, true
	nudge(b.wake)
}

// take hands everything that waits to the consumer. The ids are its own from
// now on; the room in ends is exchanged for what the consumer is done with.
func (b *mailbox) take(spare []int) (ids []uint32, ends []int, e end) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids, ends = b.ids, b.ends
	b.ids, b.ends = nil, spare[:0]
	return ids, ends, b.end
}
