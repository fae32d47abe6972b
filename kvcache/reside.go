package kvcache

import (
	"time"

	"github.com/dynago/dynago/kv"
)

// A pin protects a block somewhere, not on every tier. The device seldom has a
// budget for pins: what is pinned there and nowhere else is written down first,
// and pinned where it arrives.

// wish is a pin for a block that has yet to reach a tier where it can be pinned.
type wish struct {
	pin   Pin
	until time.Duration
}

// Pin pins the prefix on every tier, as far as it lies there and the tier's
// budget goes. What is only on the device is written to the tiers below, before
// anything else, and pinned on its arrival. A TTL of 0 takes the owner's pins
// away. It returns what was pinned at once, by tier.
func (r *Registry) Pin(now time.Duration, hashes []kv.SeqHash, pin Pin) (pinned [tiers]PinResult) {
	r.tick(now)
	for k := range kv.Tier(tiers) {
		if t := r.Tier(k); t != nil {
			pinned[k] = t.pool.Pin(hashes, pin)
		}
	}
	r.forgetWishes()
	for i, h := range hashes {
		if pin.TTL <= 0 {
			if r.wishes[h].pin.Owner == pin.Owner {
				delete(r.wishes, h)
			}
			continue
		}
		ref, ok := r.device.pool.Find(h)
		if !ok || i < pinned[kv.TierHost].Pinned {
			continue
		}
		r.wishes[h] = wish{pin, r.now + pin.TTL}
		r.offer(r.device, r.device.Block(ref), worth{class: SoftPinned, priority: MaxPriority, pinned: true}, false)
	}
	return pinned
}

// fulfil pins a block that has arrived, if that was wished and its parent is
// pinned too.
func (r *Registry) fulfil(t *Tier, ref Ref) {
	b := t.blocks[ref]
	w, ok := r.wishes[b.Hash]
	if !ok || w.until <= r.now {
		return
	}
	if up := t.pool.blocks[ref].up; b.Parent != 0 && (up == none || !t.pool.isPinned(up)) {
		return
	}
	w.pin.TTL = w.until - r.now
	t.pool.pinPath([]int32{int32(ref)}, w.pin, t.pool.room())
}

// forgetWishes drops what has expired, once there is as much again as there was
// the last time.
func (r *Registry) forgetWishes() {
	if len(r.wishes) < r.manyWishes {
		return
	}
	for h, w := range r.wishes {
		if w.until <= r.now {
			delete(r.wishes, h)
		}
	}
	r.manyWishes = max(1024, 2*len(r.wishes))
}
