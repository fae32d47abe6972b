package kvcache

import (
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
)

// LoadID names a load of one registry; it is never used twice.
type LoadID uint64

// Reach is what lower tiers could add to a prefix.
type Reach struct {
	Blocks int        // without a gap
	From   [tiers]int // how many of them come from which tier
}

// Loaded is a load that has ended. Refs are the blocks that are on the device
// now, one for each of the leading hashes that were asked for; they are the
// caller's. There are fewer than promised if one could not be read.
type Loaded struct {
	ID   LoadID
	Refs []Ref
}

// LoadStats counts what loads have done. Nothing in it decreases.
type LoadStats struct {
	Loads     int64
	Blocks    int64 // that were promised
	Adopted   int64 // of these, on their way already for someone else
	Truncated int64 // loads that ended before the last block promised
	Cancelled int64
}

// load brings a run of blocks to the device. They are published in order, each
// below the one before it, whatever order they arrive in.
type load struct {
	id       LoadID
	hashes   []kv.SeqHash
	at       []position
	base     Ref // the block before the first one, or Root
	done     int // so many of the leading ones are published and held
	end      int // at what lies behind it nobody will ever wait
	prefetch *prefetch
	over     bool
}

// position is one block of a load.
type position struct {
	state positionState
	ref   Ref   // a slot of its own, or the published block
	move  *move // what it waits for, or nil
}

type positionState uint8

const (
	posEmpty    positionState = iota // has no slot
	posReserved                      // has an empty slot
	posMoving                        // its slot is being filled
	posFilled                        // and is full, but something before it is missing
	posHeld                          // published, and held
)

// Reach says how many of the hashes, which follow a prefix that is on the device,
// could be loaded without a gap. It changes nothing.
//
// A caller leaves out a last block that would end the prompt: one token at least
// has to be computed.
func (r *Registry) Reach(now time.Duration, hashes []kv.SeqHash) Reach {
	r.tick(now)
	var reach Reach
	least := kv.TierDevice
	for _, h := range hashes {
		t := r.source(h, least)
		if t == nil {
			break
		}
		reach.Blocks++
		reach.From[t.kind]++
		if r.cfg.Contiguous {
			least = t.kind
		}
	}
	return reach
}

// source returns the fastest tier that can give a block, from one on.
func (r *Registry) source(h kv.SeqHash, least kv.Tier) *Tier {
	for k := least; int(k) < tiers; k++ {
		if t := r.Tier(k); t != nil && t.Has(h) && r.gates[k].until <= r.now {
			return t
		}
	}
	return nil
}

// LoadTime estimates how long it takes to load what is in reach if nothing else
// is under way.
func (r *Registry) LoadTime(reach Reach) time.Duration {
	var d time.Duration
	hop := func(from, to kv.Tier, blocks int) {
		if w := r.way(Edge{from, to}); blocks > 0 && w != nil {
			d += NewLink(w.cfg.Link).Estimate(int64(blocks)*r.cfg.BlockBytes, false)
		}
	}
	host := reach.From[kv.TierHost]
	for _, k := range []kv.Tier{kv.TierDisk, kv.TierShared} {
		if r.readsThrough() {
			hop(k, kv.TierHost, reach.From[k])
			host += reach.From[k]
		} else {
			hop(k, kv.TierDevice, reach.From[k])
		}
	}
	hop(kv.TierHost, kv.TierDevice, host)
	return d
}

// readsThrough says whether blocks from below the host go by way of it. While it
// cannot be read, one that did would have to be fetched a second time.
func (r *Registry) readsThrough() bool {
	return r.cfg.Host != nil && !r.cfg.NoReadThrough && r.gates[kv.TierHost].until <= r.now
}

// Load begins to bring blocks to the device that follow base, a block that the
// caller holds until the load has ended, or Root. It takes the part of them that
// is in reach; what others are loading already is shared with them. The slots
// are taken at once: if the device has none for all, it reports false and changes
// nothing. Loaded says when it is over.
func (r *Registry) Load(now time.Duration, hashes []kv.SeqHash, base Ref) (id LoadID, blocks int, ok bool) {
	n := r.Reach(now, hashes).Blocks
	if n == 0 {
		return 0, 0, true
	}
	l, ok := r.begin(hashes[:n], base, nil)
	if !ok {
		return 0, n, false
	}
	r.loadStats.Loads++
	r.loadStats.Blocks += int64(n)
	r.settle()
	return l.id, n, true
}

// begin starts a load for someone who waits, or, with slots to spare and as far
// as these reach, for a prefetch.
func (r *Registry) begin(hashes []kv.SeqHash, base Ref, p *prefetch) (*load, bool) {
	var need []int
	for i, h := range hashes {
		if r.moves[moveKey{kv.TierDevice, h}] == nil && !r.device.Has(h) {
			need = append(need, i)
		}
	}
	// What comes first must not push out what comes later.
	defer r.holdSources(hashes)()
	slots, ok := r.slots(len(need), p != nil)
	if !ok {
		return nil, false
	}
	if len(slots) < len(need) {
		hashes = hashes[:need[len(slots)]]
	}
	l := &load{hashes: slices.Clone(hashes), at: make([]position, len(hashes)), base: base, end: len(hashes), prefetch: p}
	for k, ref := range slots {
		l.at[need[k]] = position{state: posReserved, ref: ref}
	}
	r.nextID++
	l.id = LoadID(r.nextID)
	r.loads = append(r.loads, l)
	for i := 0; i < l.end; i++ {
		r.resolve(l, i)
	}
	return l, true
}

// holdSources holds each block where it would be loaded from, until the function
// that it returns is called.
func (r *Registry) holdSources(hashes []kv.SeqHash) (release func()) {
	var held [tiers][]Ref
	for _, h := range hashes {
		if t := r.source(h, kv.TierDevice); t != nil {
			ref, _ := t.peek(h)
			held[t.kind] = append(held[t.kind], ref)
		}
	}
	return func() {
		for k, refs := range held {
			if len(refs) > 0 {
				r.Tier(kv.Tier(k)).Release(refs)
			}
		}
	}
}

// slots takes n slots of the device, or, for a prefetch, as many of them as are
// free or hold what nobody has asked to keep.
func (r *Registry) slots(n int, early bool) ([]Ref, bool) {
	if early {
		return r.device.fit(nil, n, Plain), true
	}
	return r.device.Allocate(nil, n)
}

// resolve does what brings position i of a load nearer to its end, or cuts the
// load off there.
func (r *Registry) resolve(l *load, i int) {
	p, h := &l.at[i], l.hashes[i]
	p.move = nil
	if r.device.Has(h) {
		r.vacate(p)
		p.state = posHeld
		p.ref, _ = r.device.peek(h)
		if l.prefetch == nil {
			r.device.read(p.ref)
		}
		return
	}
	for _, k := range []kv.Tier{kv.TierDevice, kv.TierHost} {
		if m := r.moves[moveKey{k, h}]; m != nil && !m.way.down() {
			if l.prefetch == nil {
				r.loadStats.Adopted++
			}
			r.join(m, waiter{load: l, pos: i})
			return
		}
	}
	t := r.source(h, kv.TierHost)
	if t == nil {
		r.cut(l, i)
		return
	}
	if t.kind != kv.TierHost && r.readsThrough() {
		if m := r.lift(t, h, l.prefetch != nil); m != nil {
			r.join(m, waiter{load: l, pos: i})
			return
		}
	}
	if p.state == posEmpty {
		slot, _ := r.slots(1, l.prefetch != nil)
		if len(slot) == 0 {
			r.cut(l, i)
			return
		}
		p.state, p.ref = posReserved, slot[0]
	}
	from, _ := t.peek(h)
	t.used(h)
	m := r.carry(r.way(Edge{t.kind, kv.TierDevice}), from, p.ref)
	m.load, m.pos = l, i
	p.state, p.move = posMoving, m
	r.queue(m, l.prefetch != nil)
}

// settle publishes what has arrived, as far as nothing before it is missing, and
// ends the loads that are complete.
func (r *Registry) settle() {
	for again := true; again; {
		again = false
		for _, l := range r.loads {
			for l.done < l.end && l.at[l.done].state >= posFilled {
				r.publishNext(l)
				again = true
			}
		}
		for _, l := range r.loads {
			if l.done == l.end && !l.over {
				l.over, again = true, true
				r.end(l)
			}
		}
		r.loads = slices.DeleteFunc(r.loads, func(l *load) bool { return l.over })
	}
}

// publishNext publishes the block that a load has reached.
func (r *Registry) publishNext(l *load) {
	p := &l.at[l.done]
	parent := l.base
	if l.done > 0 {
		parent = l.at[l.done-1].ref
	}
	l.done++
	if l.prefetch != nil {
		l.prefetch.open--
		r.reserved--
	}
	if p.state == posHeld {
		return
	}
	m := p.move
	delete(r.moves, moveKey{kv.TierDevice, m.block.Hash})
	p.state, p.move = posHeld, nil
	ref, outcome := r.device.Register(p.ref, m.block, parent)
	switch outcome {
	case Added:
		r.device.pool.Inherit(ref, m.record, r.cfg.Zero)
		if l.prefetch != nil {
			r.device.unread[m.block.Hash] = true
		}
	case Doubled: // someone has computed it meanwhile
		if first, ok := r.device.peek(m.block.Hash); ok {
			r.device.Release([]Ref{ref})
			ref = first
		}
	}
	p.ref = ref
	r.wake(m, Arrived)
}

// end hands a load that is over to who asked for it.
func (r *Registry) end(l *load) {
	refs := make([]Ref, l.end)
	for i := range refs {
		refs[i] = l.at[i].ref
	}
	if l.prefetch != nil {
		r.prefetchLoaded(l.prefetch, refs)
		return
	}
	if l.end < len(l.hashes) {
		r.loadStats.Truncated++
	}
	r.loaded = append(r.loaded, Loaded{l.id, refs})
}

// Loaded returns the loads that have ended since the last call. The slice is
// valid until the next call.
func (r *Registry) Loaded() []Loaded {
	out := r.loaded
	r.loaded = r.loaded[len(r.loaded):]
	return out
}

// Cancel ends a load that nobody waits for any more; Loaded does not return it.
// Slots that are being filled become free when that ends. It reports whether
// there was such a load; one that is over is the caller's already.
func (r *Registry) Cancel(id LoadID) bool {
	k := slices.IndexFunc(r.loads, func(l *load) bool { return l.id == id })
	if k < 0 {
		return false
	}
	r.loadStats.Cancelled++
	r.abandon(r.loads[k])
	r.settle()
	return true
}

func (r *Registry) abandon(l *load) {
	l.over = true
	r.cut(l, 0)
	r.loads = slices.DeleteFunc(r.loads, func(o *load) bool { return o == l })
}

// cut ends a load before position i.
func (r *Registry) cut(l *load, i int) {
	end := l.end
	l.end, l.done = min(l.end, i), min(l.done, i)
	for k := end - 1; k >= i; k-- {
		r.giveUp(l, k)
	}
}

// giveUp takes a position out of everything. What is on its way goes to someone
// else who waits for it, or comes for nothing.
func (r *Registry) giveUp(l *load, i int) {
	p := &l.at[i]
	m := p.move
	own := p.state == posMoving || p.state == posFilled
	switch {
	case m != nil && own && r.handOver(m):
	case m != nil && own && m.state == moveOngoing:
		m.load = nil
	case m != nil && own:
		if m.state == moveQueued {
			m.way.unqueue(m)
			r.letGo(m, Arrived)
		}
		delete(r.moves, moveKey{kv.TierDevice, m.block.Hash})
		r.device.Release([]Ref{p.ref})
	case p.state == posReserved || p.state == posHeld:
		r.device.Release([]Ref{p.ref})
	}
	if m != nil && !own {
		m.waiters = slices.DeleteFunc(m.waiters, func(w waiter) bool { return w.load == l })
		r.dropUnwanted(m)
	}
	*p = position{}
}

// vacate gives back a slot that was reserved.
func (r *Registry) vacate(p *position) {
	if p.state == posReserved {
		r.device.Release([]Ref{p.ref})
	}
	p.state = posEmpty
}
