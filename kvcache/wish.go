package kvcache

import (
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
)

// SetRetention sets the retention of the blocks that are present and returns how
// many these are. An idle block goes to the end of its new queue.
func (p *Pool) SetRetention(hashes []kv.SeqHash, r Retention) (set int) {
	for _, h := range slices.Backward(hashes) {
		if i := p.find(h); i != none {
			p.retain(i, r)
			set++
		}
	}
	p.check()
	return set
}

// Retain sets the retention of one published block, in the place of an earlier
// one.
func (p *Pool) Retain(ref Ref, r Retention) {
	i := p.primary(ref)
	p.retain(i, r)
	p.check()
}

// Pin pins the longest prefix of the sequence that is present and that the budget
// has room for. While every idle block is pinned no more are.
func (p *Pool) Pin(hashes []kv.SeqHash, pin Pin) PinResult {
	if pin.TTL <= 0 {
		for _, h := range slices.Backward(hashes) {
			if i := p.find(h); i != none {
				p.unpinIdle(i, func(x *pinning) bool { return x.is(pin) })
			}
		}
		p.check()
		return PinResult{Requested: len(hashes)}
	}
	room := p.room()
	p.path = slices.AppendSeq(p.path[:0], p.leading(hashes))
	n := p.pinPath(p.path, pin, room)
	p.check()
	return PinResult{len(hashes), n}
}

// Unpin takes an owner's pins from those blocks and returns how many had one.
func (p *Pool) Unpin(hashes []kv.SeqHash, owner SessionID) (unpinned int) {
	for _, h := range slices.Backward(hashes) {
		if i := p.find(h); i != none && p.unpinOwner(i, owner) {
			unpinned++
		}
	}
	p.check()
	return unpinned
}

// Inherit applies the record that came with the bytes of a block that has just
// been published. Zero is the moment from which the pool's time is counted.
func (p *Pool) Inherit(ref Ref, r Record, zero time.Time) {
	p.inherit(p.primary(ref), r, zero)
	p.check()
}

// Update applies a record to those of the blocks that are present and have none that
// is as late, and returns how many these were: what has changed about bytes that
// others keep, too. Unlike Inherit it also takes away what the record does not ask
// for any more.
func (p *Pool) Update(hashes []kv.SeqHash, r Record, zero time.Time) (updated int) {
	for _, h := range slices.Backward(hashes) {
		if i := p.find(h); i != none && p.update(i, r, zero) {
			updated++
		}
	}
	p.check()
	return updated
}

// SkipWrite reports whether a published block is to be kept from lower tiers.
func (p *Pool) SkipWrite(ref Ref) bool { return p.blocks[p.primary(ref)].flags&skipWrite != 0 }

// SetSkipWrite keeps a block that its caller has stored from lower tiers, until
// somebody else uses it.
func (p *Pool) SetSkipWrite(ref Ref) {
	p.wish()
	p.blocks[p.primary(ref)].flags |= skipWrite
}

// SetEphemeral makes a block that its caller has stored one of those that go
// first, until somebody else uses it.
func (p *Pool) SetEphemeral(ref Ref) {
	p.lower(p.primary(ref), false)
	p.check()
}

// SetOnce lets a block be reset, and its hash forgotten, when its next use ends.
// If it then has children it waits for them among those that go first.
func (p *Pool) SetOnce(ref Ref) {
	p.once(p.primary(ref))
	p.check()
}

func (p *Pool) once(i int32) {
	p.wish()
	b := &p.blocks[i]
	if b.flags |= once; b.state == Inactive && p.kind.byClass() {
		p.refile(i)
	}
}

// Discard forgets what is published under a hash: at once if nobody uses it and
// it has no children, else as SetOnce does. It reports whether it has gone.
func (p *Pool) Discard(h kv.SeqHash) (gone bool) {
	i := p.find(h)
	if i == none {
		return true
	}
	b := &p.blocks[i]
	p.wish()
	if b.state != Inactive || b.kids > 0 {
		b.flags |= once
		p.lower(i, false)
		p.check()
		return false
	}
	p.forget(i)
	p.unpublish(i)
	p.check()
	return true
}

// TakeRemoved appends the hashes that were forgotten, in order, since the last
// call, other than by Allocate.
func (p *Pool) TakeRemoved(dst []kv.SeqHash) []kv.SeqHash {
	dst = append(dst, p.removed...)
	p.removed = p.removed[:0]
	return dst
}
