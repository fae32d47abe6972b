package kvevent

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// hold keeps a live message until the replay is over, and says whether it is a
// new one.
func (o *Order) hold(now time.Time, m Message) bool {
	n := len(o.held)
	switch {
	case o.known(m.Seq) && o.applied(m), o.holds(m):
		o.stats.Duplicates++
		return false
	case o.known(m.Seq), n > 0 && m.Seq <= o.held[n-1].Seq:
		// It is of another life than what was applied or held so far.
		o.drop()
		o.keep(m)
		o.mixed(now)
	case o.spilled, n >= o.config.HeldMessages, n > 0 && o.heldBytes+len(m.Payload) > o.config.HeldBytes:
		o.spilled = true
		o.stats.Spilled++
	default:
		o.keep(m)
	}
	return true
}

// holds says whether m is among the messages held, which ascend.
func (o *Order) holds(m Message) bool {
	i, ok := slices.BinarySearchFunc(o.held, m.Seq, func(h Message, seq uint64) int { return cmp.Compare(h.Seq, seq) })
	return ok && bytes.Equal(o.held[i].Payload, m.Payload)
}

func (o *Order) keep(m Message) {
	m.Payload = bytes.Clone(m.Payload)
	o.held = append(o.held, m)
	o.heldBytes += len(m.Payload)
}

// unhold lets go of the oldest message held.
func (o *Order) unhold() {
	o.heldBytes -= len(o.held[0].Payload)
	o.held[0] = Message{}
	if o.held = o.held[1:]; len(o.held) == 0 {
		o.held = nil
	}
}

// drop lets go of all messages held.
func (o *Order) drop() {
	o.held, o.heldBytes, o.spilled = nil, 0, false
}
