package kvcache

import "time"

// Retention says how much longer than others a block is worth keeping.
type Retention struct {
	// Priority is 0..100; more than [Neutral] is kept longer. Larger numbers
	// count as 100.
	Priority uint8
	// TTL is how long the priority holds once the block has fallen idle, anew
	// each time; 0 = for ever. After that the block is neutral.
	TTL time.Duration
	// Floor is for a priority that comes from the whole request and not from a
	// range of tokens: it raises what a block has and never lowers it, so that a
	// reader of little importance does not demote a prefix that others share.
	Floor bool
}

// note is what only blocks with a wish have.
type note struct {
	priority uint8  // Neutral if nothing was asked
	epoch    uint32 // of the latest record
	ttl      time.Duration
	until    time.Duration // deadline of the priority of an idle block; 0 = none
	pin      int32         // first pinning, or none
	locks    [2]int32      // of each kind: the own pin and that of each child with locks
	at       int32         // in expiry
	turn     int64         // of an entry in expiry, for equal deadlines
}

// noteFor returns the note of a block, which gets one if it has none.
func (k *keeper) noteFor(i int32) *note {
	if k.blocks[i].flags&noted != 0 {
		return k.notes.at(k.noteOf[i])
	}
	k.wish()
	if len(k.noteOf) < len(k.blocks) {
		k.noteOf = append(k.noteOf, make([]int32, len(k.blocks)-len(k.noteOf))...)
	}
	id := k.notes.take()
	k.noteOf[i] = id
	k.blocks[i].flags |= noted
	n := k.notes.at(id)
	*n = note{priority: Neutral, pin: none, at: none}
	return n
}

// dropNote drops a block's priority and pins.
func (k *keeper) dropNote(i int32) {
	b := &k.blocks[i]
	if b.flags&noted == 0 {
		return
	}
	k.unpin(i, func(*pinning) bool { return true })
	id := k.noteOf[i]
	if at := k.notes.at(id).at; at != none {
		k.expiry.remove(at)
	}
	k.notes.give(id)
	b.flags &^= noted
}

func (k *keeper) priority(i int32) uint8 {
	if k.blocks[i].flags&noted == 0 {
		return Neutral
	}
	return k.notes.at(k.noteOf[i]).priority
}

// retain gives a published block a retention, and an idle one its new place, at
// the end of the queue.
func (k *keeper) retain(i int32, r Retention) {
	r.Priority = min(r.Priority, MaxPriority)
	if r.Priority == Neutral {
		r.TTL = 0
	}
	if had := k.priority(i); r.Floor && r.Priority <= had || r.Priority == Neutral && had == Neutral {
		return
	}
	n := k.noteFor(i)
	n.priority, n.ttl, n.until = r.Priority, max(r.TTL, 0), 0
	if k.blocks[i].state == Inactive {
		k.startTTL(i, n)
		if k.kind.byPriority() {
			k.refile(i)
		}
	}
	k.tidy(i)
}

// startTTL begins the time for which an idle block's priority holds.
func (k *keeper) startTTL(i int32, n *note) {
	if n.ttl > 0 && n.priority != Neutral {
		k.turn++
		n.until, n.turn = k.after(n.ttl), k.turn
		k.due(i, n, n.until)
	}
}

// due puts a block where its note will be looked at by then.
func (k *keeper) due(i int32, n *note, at time.Duration) {
	k.expiry.schedule(item{int64(at), n.turn, i}, n.at)
}

// expire looks at the note that comes up first. What is due ends, and a block
// that has thereby lost its place goes to the end of the queue where it now
// belongs. If nothing was due so early, the note is looked at again when it is.
func (k *keeper) expire() {
	x := k.expiry.remove(0)
	i := x.id
	n := k.notes.at(k.noteOf[i])
	if next := k.nextDue(n); next == 0 || int64(next) > x.key {
		if next > 0 {
			k.due(i, n, next)
		}
		return
	}
	before, wasHard := k.pinOf(i)
	k.unpin(i, func(p *pinning) bool { return p.until <= k.now })
	faded := n.until > 0 && n.until <= k.now
	if faded {
		n.priority, n.ttl, n.until = Neutral, 0, 0
	}
	k.expired++
	if next := k.nextDue(n); next > 0 {
		k.due(i, n, next)
	}
	after, isHard := k.pinOf(i)
	k.tidy(i)
	if k.blocks[i].state == Inactive && (before != after || wasHard != isHard || faded && after == 0 && k.kind.byPriority()) {
		k.refile(i)
	}
}

// nextDue returns the earliest deadline of a note, or 0.
func (k *keeper) nextDue(n *note) time.Duration {
	next := n.until
	for p := n.pin; p != none; {
		x := k.pinnings.at(p)
		if next == 0 || x.until < next {
			next = x.until
		}
		p = x.next
	}
	return next
}

// tidy takes away a note that says nothing.
func (k *keeper) tidy(i int32) {
	if k.blocks[i].flags&noted == 0 {
		return
	}
	if n := k.notes.at(k.noteOf[i]); n.priority == Neutral && n.epoch == 0 && n.pin == none && n.locks == [2]int32{} {
		k.dropNote(i)
	}
}

// noteFalls and noteWakes follow a block with a note through its states.
func (k *keeper) noteFalls(i int32) {
	n := k.notes.at(k.noteOf[i])
	k.startTTL(i, n)
	for kind, locks := range n.locks {
		if locks > 0 {
			k.locked[kind]++
		}
	}
}

func (k *keeper) noteWakes(i int32) {
	n := k.notes.at(k.noteOf[i])
	n.until = 0
	for kind, locks := range n.locks {
		if locks > 0 {
			k.locked[kind]--
		}
	}
}
