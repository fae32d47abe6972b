package kvcache

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
)

// Order says which of a set of entries goes next: a pool's eviction without the
// pool. Entries are numbered by the caller, from 0 and without large gaps, and
// may differ in size: whoever needs room removes victims until their sizes sum up
// to it. Where they lie, and under which name, is the caller's affair.
//
// It has no lock and reads no clock.
type Order struct {
	keeper
	present int
}

// NewOrder returns an order of no entries. Of c, Blocks is the number of entries
// to expect, and PinBudget counts in units of their sizes.
func NewOrder(c PoolConfig) *Order {
	o := &Order{}
	o.init(c)
	o.room = func() bool { return true }
	o.wish()
	return o
}

// Len returns the number of entries.
func (o *Order) Len() int { return o.present }

// Insert adds an entry that is idle and the most recent one. Parent is Root, or
// an entry that is not to go before this one.
func (o *Order) Insert(r, parent Ref, size int64) {
	for len(o.blocks) <= int(r) {
		o.blocks = append(o.blocks, block{up: none, prev: none, next: none})
		o.sizes = append(o.sizes, 0)
	}
	b := &o.blocks[r]
	if b.state != Reset {
		panic(fmt.Sprintf("kvcache: entry %d inserted twice", r))
	}
	b.state, b.up, b.refs, b.hash = Primary, int32(parent), 1, kv.SeqHash(r)
	o.sizes[r] = size
	if b.up != none {
		o.entry(parent)
		o.hold(b.up)
	}
	o.present++
	if o.kind > EvictLRU {
		o.published(int32(r))
	}
	o.drop(int32(r))
	o.check()
}

// Remove takes out an entry that is not held and has no children.
func (o *Order) Remove(r Ref) {
	if b := o.entry(r); b.state != Inactive || b.kids > 0 {
		panic(fmt.Sprintf("kvcache: entry %d removed while %s with %d children", r, b.state, b.kids))
	}
	o.forget(int32(r))
	o.blocks[r] = block{up: none, prev: none, next: none}
	o.present--
	o.check()
}

// Victim returns the entry that goes next, and false if none may: all are held
// or hard-pinned, or have children that are. It stays until it is removed.
func (o *Order) Victim() (r Ref, ok bool) {
	i := o.victim()
	return Ref(i), i != none
}

// Spare is Victim without breaking pins.
func (o *Order) Spare() (r Ref, ok bool) {
	r, ok = o.Victim()
	return r, ok && o.blocks[r].place != inPins
}

// Hold keeps an entry from going until it is released as often.
func (o *Order) Hold(r Ref) {
	o.entry(r)
	o.hold(int32(r))
}

// Release gives back what Hold took. An entry that is held no more is the most
// recent one.
func (o *Order) Release(r Ref) {
	if o.entry(r).refs == 0 {
		panic(fmt.Sprintf("kvcache: entry %d released while it was not held", r))
	}
	o.drop(int32(r))
	o.check()
}

// Hit tells that somebody of a session, or of none, has read entries: they are
// the most recent ones, the first of them last, and their pins are renewed.
func (o *Order) Hit(id SessionID, refs ...Ref) {
	n, known := o.number(id)
	for _, r := range slices.Backward(refs) {
		o.Hold(r)
		o.hit(int32(r), n, known)
		o.drop(int32(r))
	}
	o.check()
}

// Retain sets the retention of an entry.
func (o *Order) Retain(ref Ref, r Retention) {
	o.entry(ref)
	o.retain(int32(ref), r)
	o.check()
}

// Pin pins the leading entries that the budget has room for.
func (o *Order) Pin(refs []Ref, pin Pin) PinResult {
	path := make([]int32, len(refs))
	for i, r := range refs {
		o.entry(r)
		path[i] = int32(r)
	}
	if pin.TTL <= 0 {
		for _, i := range slices.Backward(path) {
			o.unpinIdle(i, func(x *pinning) bool { return x.is(pin) })
		}
		return PinResult{Requested: len(refs)}
	}
	n := o.pinPath(path, pin, o.room())
	o.check()
	return PinResult{len(refs), n}
}

// SetEphemeral lets an entry go before all that are not, until somebody else
// reads it.
func (o *Order) SetEphemeral(r Ref) {
	o.entry(r)
	o.lower(int32(r), false)
	o.check()
}

// Inherit applies a record that was kept with an entry, for instance through a
// restart. Zero is the moment from which the order's time is counted.
func (o *Order) Inherit(ref Ref, r Record, zero time.Time) {
	o.entry(ref)
	o.inherit(int32(ref), r, zero)
	o.check()
}

func (o *Order) entry(r Ref) *block {
	if int(r) >= len(o.blocks) || !o.blocks[r].published() {
		panic(fmt.Sprintf("kvcache: no entry %d", r))
	}
	return &o.blocks[r]
}

func (o *Order) hold(i int32) {
	for i != none {
		b := &o.blocks[i]
		if b.refs++; b.state != Inactive {
			return
		}
		o.wake(i)
		b.state = Primary
		i = b.up
	}
}

func (o *Order) drop(i int32) {
	for i != none {
		b := &o.blocks[i]
		if b.refs--; b.refs > 0 {
			return
		}
		b.state = Inactive
		o.fall(i)
		i = b.up
	}
}
