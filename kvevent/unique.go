package kvevent

import (
	"math/rand/v2"

	"github.com/dynago/dynago/kv"
)

// unique finds keys that come twice. It is a hash set that is emptied by
// counting on, so that it costs nothing to begin anew.
type unique struct {
	slots []uniqueSlot // a power of two of them, at least twice as many as keys
	round uint32
	mix   uint64
}

type uniqueSlot struct {
	key   kv.EngineHash
	round uint32
}

// few is how many keys are compared with each other one by one.
const few = 8

// all says whether the keys differ from each other, and from the parent if they
// have one.
func (u *unique) all(keys []kv.EngineHash, parent kv.EngineHash, hasParent bool) bool {
	if len(keys) <= few {
		for i, k := range keys {
			if hasParent && k == parent {
				return false
			}
			for _, o := range keys[:i] {
				if k == o {
					return false
				}
			}
		}
		return true
	}
	u.begin(len(keys) + 1)
	if hasParent {
		u.add(parent)
	}
	for _, k := range keys {
		if !u.add(k) {
			return false
		}
	}
	return true
}

func (u *unique) begin(n int) {
	if 2*n > len(u.slots) {
		slots := 64
		for slots < 2*n {
			slots *= 2
		}
		u.slots, u.round, u.mix = make([]uniqueSlot, slots), 0, rand.Uint64()
	}
	if u.round++; u.round == 0 {
		clear(u.slots)
		u.round = 1
	}
}

// add says whether a key was not there yet.
func (u *unique) add(key kv.EngineHash) bool {
	mask := len(u.slots) - 1
	for i := int(scatter(key, u.mix)>>32) & mask; ; i = (i + 1) & mask {
		switch s := &u.slots[i]; {
		case s.round != u.round:
			*s = uniqueSlot{key, u.round}
			return true
		case s.key == key:
			return false
		}
	}
}
