package kvcache

import "time"

// Pin asks that blocks stay for some time, whatever happens to others.
type Pin struct {
	// Owner is the session that asks, 0 for anyone else. Pins of several owners
	// on one block hold independently of each other.
	Owner SessionID
	// TTL counts from now, and for a soft pin anew from each hit. A later
	// deadline of the same owner wins. A TTL of 0 takes the owner's pins away.
	TTL time.Duration
	// Hard pins are never evicted, soft ones only where nothing else is left.
	// Where hard pins are not allowed they are soft.
	Hard bool
	// Tenant is on whose account the pin goes, 0 for nobody's: what is pinned for
	// one tenant may come to Share of the budget, 0 to 1.
	Tenant TenantID
	Share  float64
}

// TenantID names a tenant: any number of the caller's but 0.
type TenantID uint64

// PinResult says how many blocks of a prefix were asked for, and how many of
// them, from the first one on, are now pinned.
type PinResult struct{ Requested, Pinned int }

// Outcome returns granted, partial or denied.
func (r PinResult) Outcome() string {
	switch {
	case r.Pinned == r.Requested:
		return "granted"
	case r.Pinned > 0:
		return "partial"
	}
	return "denied"
}

// pinning is one owner's pin on a block, in the list that its note begins.
type pinning struct {
	owner  SessionID
	tenant TenantID
	until  time.Duration
	ttl    time.Duration
	hard   bool
	next   int32
}

func (p *pinning) is(pin Pin) bool { return p.owner == pin.Owner && p.tenant == pin.Tenant }

// PinBudget returns the size of all pinned blocks, and what it may be at most.
func (k *keeper) PinBudget() (used, budget int64) {
	return k.pinned, k.budget
}

// PinnedFor returns the size of what is pinned for a tenant.
func (k *keeper) PinnedFor(t TenantID) int64 { return k.tenants[t] }

// SetPinBudget changes what the pinned blocks may come to together. What is
// pinned beyond a lower budget stays so until it expires.
func (k *keeper) SetPinBudget(budget int64) { k.budget = budget }

// pinOf returns until when a block is pinned, 0 if it is not, and whether that
// is hard.
func (k *keeper) pinOf(i int32) (until time.Duration, hard bool) {
	if k.blocks[i].flags&noted == 0 {
		return 0, false
	}
	for p := k.notes.at(k.noteOf[i]).pin; p != none; {
		x := k.pinnings.at(p)
		until, hard, p = max(until, x.until), hard || x.hard, x.next
	}
	return until, hard
}

func (k *keeper) isPinned(i int32) bool {
	return k.blocks[i].flags&noted != 0 && k.notes.at(k.noteOf[i]).pin != none
}

// pinPath pins the leading blocks of a path that the budget and the tenant's share
// of it have room for, or, if room is false, those that are pinned already. Children
// go before their parents, because that is how they are to expire.
func (k *keeper) pinPath(path []int32, pin Pin, room bool) int {
	n := 0
	used, theirs, share := k.pinned, k.tenants[pin.Tenant], int64(pin.Share*float64(k.budget))
	for _, i := range path {
		if !k.isPinned(i) {
			if used += k.size(i); !room || used > k.budget {
				break
			}
		}
		if pin.Tenant != 0 && !k.hasPin(i, func(p *pinning) bool { return p.tenant == pin.Tenant }) {
			if theirs += k.size(i); theirs > share {
				break
			}
		}
		n++
	}
	for j := n - 1; j >= 0; j-- {
		k.pin(path[j], pin)
	}
	if s := k.session(pin.Owner); s != nil {
		k.notePins(s, path[:n])
	}
	return n
}

// notePins enters where a session has pinned, so that its end finds the pins.
func (k *keeper) notePins(s *session, path []int32) {
	s.pins = append(s.pins, path...)
	if len(s.pins) <= s.manyPins {
		return
	}
	s.pins = k.prune(s.pins, func(i int32) bool { return k.hasPin(i, s.owns) })
	s.manyPins = 2*len(s.pins) + 64
}

// pinnedUntil returns when the last pin of a session ends, 0 if it has none.
func (k *keeper) pinnedUntil(s *session) (until time.Duration) {
	s.pins = k.prune(s.pins, func(i int32) bool { return k.hasPin(i, s.owns) })
	for _, i := range s.pins {
		for p := k.notes.at(k.noteOf[i]).pin; p != none; {
			x := k.pinnings.at(p)
			if p = x.next; x.owner == s.id {
				until = max(until, x.until)
			}
		}
	}
	return until
}

func (s *session) owns(p *pinning) bool { return p.owner == s.id }

// pinning returns the first pin on a block of which is is true, or none.
func (k *keeper) pinning(i int32, is func(*pinning) bool) int32 {
	if k.blocks[i].flags&noted == 0 {
		return none
	}
	p := k.notes.at(k.noteOf[i]).pin
	for p != none && !is(k.pinnings.at(p)) {
		p = k.pinnings.at(p).next
	}
	return p
}

func (k *keeper) hasPin(i int32, is func(*pinning) bool) bool { return k.pinning(i, is) != none }

// charge counts a block for a tenant who has no pin on it.
func (k *keeper) charge(i int32, t TenantID, by int64) {
	if t == 0 || k.hasPin(i, func(p *pinning) bool { return p.tenant == t }) {
		return
	}
	if k.tenants == nil {
		k.tenants = make(map[TenantID]int64)
	}
	if k.tenants[t] += by * k.size(i); k.tenants[t] == 0 {
		delete(k.tenants, t)
	}
}

func (k *keeper) pin(i int32, pin Pin) {
	hard := pin.Hard && k.hard
	_, wasHard := k.pinOf(i)
	n := k.noteFor(i)
	first := n.pin == none
	p := k.pinning(i, func(p *pinning) bool { return p.is(pin) })
	if p == none {
		k.charge(i, pin.Tenant, 1)
		p = k.pinnings.take()
		*k.pinnings.at(p) = pinning{owner: pin.Owner, tenant: pin.Tenant, next: n.pin}
		n.pin = p
	}
	x := k.pinnings.at(p)
	if until := k.after(pin.TTL); until >= x.until {
		x.until, x.ttl = until, pin.TTL
	}
	x.hard = x.hard || hard
	k.turn++
	n.turn = k.turn
	k.due(i, n, x.until)
	if first {
		k.pinned += k.size(i)
		k.lock(i, byAny, 1)
	}
	if hard && !wasHard {
		k.lock(i, byHard, 1)
	}
	if k.blocks[i].state == Inactive {
		k.refile(i)
	}
}

// lock counts a lock of one kind on a block, and with the first one also on what
// lies above: that can go no sooner.
func (k *keeper) lock(i int32, kind int, by int32) {
	k.pinnedAs[kind] += int(by)
	for from := i; i != none; i = k.blocks[i].up {
		n := k.noteFor(i)
		was := n.locks[kind]
		n.locks[kind] += by
		if was != 0 && n.locks[kind] != 0 {
			return
		}
		if k.blocks[i].state == Inactive {
			k.locked[kind] += int(by)
		}
		if by < 0 && i != from {
			k.tidy(i)
		}
	}
}

// unpin takes those pins from a block of which drop is true.
func (k *keeper) unpin(i int32, drop func(*pinning) bool) {
	if !k.isPinned(i) {
		return
	}
	_, wasHard := k.pinOf(i)
	n := k.notes.at(k.noteOf[i])
	for link := &n.pin; *link != none; {
		p := *link
		x := k.pinnings.at(p)
		if !drop(x) {
			link = &x.next
			continue
		}
		*link = x.next
		tenant := x.tenant
		k.pinnings.give(p)
		k.charge(i, tenant, -1)
	}
	if _, hard := k.pinOf(i); wasHard && !hard {
		k.lock(i, byHard, -1)
	}
	if n.pin == none {
		k.pinned -= k.size(i)
		k.lock(i, byAny, -1)
	}
}

// unpinOwner takes one owner's pins from a block and reports whether there were
// any.
func (k *keeper) unpinOwner(i int32, owner SessionID) bool {
	return k.unpinIdle(i, func(p *pinning) bool { return p.owner == owner })
}

// unpinIdle is unpin for blocks that may be idle: one that is goes to the end of the
// queue where it then belongs. It reports whether there was anything to drop.
func (k *keeper) unpinIdle(i int32, drop func(*pinning) bool) bool {
	if !k.hasPin(i, drop) {
		return false
	}
	before, wasHard := k.pinOf(i)
	k.unpin(i, drop)
	after, isHard := k.pinOf(i)
	k.tidy(i)
	if k.blocks[i].state == Inactive && (before != after || wasHard != isHard) {
		k.refile(i)
	}
	return true
}

// refresh renews the soft pins of a block that was hit.
func (k *keeper) refresh(i int32) {
	n := k.notes.at(k.noteOf[i])
	for p := n.pin; p != none; {
		x := k.pinnings.at(p)
		if !x.hard && x.until > k.now {
			x.until = max(x.until, k.after(x.ttl))
		}
		p = x.next
	}
}
