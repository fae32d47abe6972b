package kvevent

import "github.com/dynago/dynago/kv"

// ringEvents is how many of its newest events a publisher keeps for routers
// that missed some.
const ringEvents = 1024

// ring keeps the newest events of a sequence that counts from 1 without holes.
// The zero value is empty.
type ring struct {
	events []RouterEvent
	last   uint64
	clear  uint64 // number of the newest clear that is kept, or 0
}

// push adds the next event.
func (r *ring) push(e RouterEvent) {
	if len(r.events) < ringEvents {
		r.events = append(r.events, e)
	} else {
		r.events[(e.ID-1)%ringEvents] = e
	}
	r.last = e.ID
	if e.Event.Kind == kv.Cleared && e.Residency == ResidencyUntold {
		r.clear = e.ID
	}
}

// first is the number of the oldest event kept, or one that no event has yet.
func (r *ring) first() uint64 { return r.last + 1 - uint64(len(r.events)) }

// since returns the events from number from on, which are all kept, without
// those before the newest clear among them.
func (r *ring) since(from uint64) []RouterEvent {
	from = max(from, r.clear)
	out := make([]RouterEvent, 0, r.last+1-from)
	for id := from; id <= r.last; id++ {
		out = append(out, r.events[(id-1)%ringEvents])
	}
	return out
}
