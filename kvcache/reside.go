package kvcache

import (
	"slices"
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
			r.unwish(h, func(w wish) bool { return w.pin.Owner == pin.Owner })
			continue
		}
		ref, ok := r.device.pool.Find(h)
		if !ok || i < pinned[kv.TierHost].Pinned {
			continue
		}
		r.wish(h, pin)
		r.offer(r.device, r.device.Block(ref), worth{class: SoftPinned, priority: MaxPriority, pinned: true}, false)
	}
	return pinned
}

// CloseSession ends a session on every tier, and its pins, those included that wait
// for blocks to arrive. It reports what the session was on the device.
func (r *Registry) CloseSession(now time.Duration, id SessionID) (was SessionState) {
	r.tick(now)
	was = r.device.pool.CloseSession(id)
	for k := kv.TierHost; int(k) < tiers; k++ {
		if t := r.Tier(k); t != nil {
			t.pool.CloseSession(id)
		}
	}
	if id != 0 {
		for h := range r.wishes {
			r.unwish(h, func(w wish) bool { return w.pin.Owner == id })
		}
	}
	return was
}

// fulfil pins a block that has arrived, if that was wished and its parent is
// pinned too.
func (r *Registry) fulfil(t *Tier, ref Ref) {
	b := t.blocks[ref]
	if up := t.pool.blocks[ref].up; b.Parent != 0 && (up == none || !t.pool.isPinned(up)) {
		return
	}
	for _, w := range r.wishes[b.Hash] {
		if w.pin.TTL = w.until - r.now; w.pin.TTL > 0 {
			t.pool.pinPath([]int32{int32(ref)}, w.pin, t.pool.room())
		}
	}
}

// wish enters a pin. Of two wishes of one owner the later deadline wins, as of pins.
func (r *Registry) wish(h kv.SeqHash, pin Pin) {
	until := r.device.pool.after(pin.TTL)
	for i := range r.wishes[h] {
		if w := &r.wishes[h][i]; w.pin.Owner == pin.Owner {
			w.until, w.pin.Hard = max(w.until, until), w.pin.Hard || pin.Hard
			return
		}
	}
	r.wishes[h] = append(r.wishes[h], wish{pin, until})
}

// wished says whether a block is to be pinned where it arrives.
func (r *Registry) wished(h kv.SeqHash) bool {
	return slices.ContainsFunc(r.wishes[h], func(w wish) bool { return w.until > r.now })
}

// unwish drops those wishes for a block of which drop is true.
func (r *Registry) unwish(h kv.SeqHash, drop func(wish) bool) {
	left := slices.DeleteFunc(r.wishes[h], drop)
	if r.wishes[h] = left; len(left) == 0 {
		delete(r.wishes, h)
	}
}

// forgetWishes drops what has expired, and what is for blocks that have gone, once
// there is as much again as there was the last time.
func (r *Registry) forgetWishes() {
	if len(r.wishes) < r.manyWishes {
		return
	}
	for h := range r.wishes {
		gone := r.Present(h) == 0
		r.unwish(h, func(w wish) bool { return gone || w.until <= r.now })
	}
	r.manyWishes = max(1024, 2*len(r.wishes))
}
