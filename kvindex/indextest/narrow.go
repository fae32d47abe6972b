package indextest

import (
	"math/bits"

	"github.com/dynago/dynago/kv"
)

// draw returns a number in [0, n).
type draw func(n int) int

// percent is true p times of a hundred.
func (d draw) percent(p int) bool { return d(100) < p }

// narrow draws histories over so few targets, keys and contents that duplicates,
// holes, twins, conflicts and cycles are common. It looks into the model to find
// what is held.
type narrow struct {
	workers, ranks int
	keys           int // engine keys of each target
	values         int // contents of a block
	run            int // most blocks of one store
	lower          int // percent of events on a tier below the device
	// key and local spread small numbers over 64 bits.
	key, local spread
	model      *model
	draw       draw
}

// spread turns small numbers into 64-bit ones, each into another.
type spread func(n int) uint64

// spreads are keys as engines make them, counters for one, and such as make life
// hard for a hash table: all low or all high bits alike, and both ends.
var spreads = []spread{
	func(n int) uint64 { return uint64(n) },
	func(n int) uint64 { return uint64(n) << 32 },
	func(n int) uint64 { return bits.RotateLeft64(uint64(n), 52) },
	func(n int) uint64 { return ^uint64(n) },
	func(n int) uint64 { return mix(uint64(n)) },
	func(n int) uint64 { return 1<<63 | uint64(n)*64 },
}

// mix is a permutation of the 64-bit numbers that leaves no pattern.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// target draws one of the targets.
func (n *narrow) target() kv.Target {
	return kv.Target{Worker: uint64(1 + n.draw(n.workers)), Rank: uint32(n.draw(n.ranks))}
}

// step draws the next step.
func (n *narrow) step() step {
	s := step{target: n.target()}
	switch op := n.draw(100); {
	case op < 35:
		s.event = n.store(s.target)
	case op < 55:
		s.event = n.remove(s.target)
	case op < 56:
		s.event = kv.Event{Kind: kv.Cleared, Tier: n.tier()}
	case op < 57:
		s.do = removeTarget
	case op < 58:
		s.do = removeWorker
	case op < 59:
		s.event = n.nonsense(s.target)
	case op < 61:
		s.do = audit
	default:
		s.do, s.local = query, n.query(s.target)
	}
	return s
}

func (n *narrow) tier() kv.Tier {
	if n.draw.percent(n.lower) {
		return kv.Tier(1 + n.draw(3))
	}
	return kv.TierDevice
}

func (n *narrow) store(t kv.Target) kv.Event {
	e := kv.Event{Tier: n.tier()}
	if !n.draw.percent(20) {
		e.HasParent, e.Parent = true, n.some(t)
	}
	length := 1
	if n.draw.percent(60) {
		length += n.draw(n.run)
	}
	for range length {
		e.Blocks = append(e.Blocks, kv.Block{
			Engine: kv.EngineHash(n.key(n.draw(n.keys))),
			Local:  kv.LocalHash(n.local(n.draw(n.values))),
		})
	}
	return e
}

func (n *narrow) remove(t kv.Target) kv.Event {
	e := kv.Event{Kind: kv.Removed, Tier: n.tier()}
	length := 1 + n.draw(3)
	if n.draw.percent(2) { // and goes on when the last key is gone
		length = 300
	}
	for range length {
		e.Blocks = append(e.Blocks, kv.Block{Engine: n.some(t)})
	}
	return e
}

// nonsense is an event of an unknown kind or tier.
func (n *narrow) nonsense(t kv.Target) kv.Event {
	e := n.store(t)
	if n.draw.percent(50) {
		e.Kind = kv.EventKind(3 + n.draw(253))
	} else {
		e.Tier = kv.Tier(4 + n.draw(252))
	}
	return e
}

// some returns a key that t holds, most of the time.
func (n *narrow) some(t kv.Target) kv.EngineHash {
	first := n.draw(n.keys)
	if n.draw.percent(70) {
		for i := range n.keys {
			if key := kv.EngineHash(n.key((first + i) % n.keys)); n.model.find(t, key) != nil {
				return key
			}
		}
	}
	return kv.EngineHash(n.key(first))
}

// query draws the path of a block that t holds, cut, extended or bent somewhere.
func (n *narrow) query(t kv.Target) []kv.LocalHash {
	var local []kv.LocalHash
	if h := n.model.find(t, n.some(t)); h != nil {
		local = n.model.path(h.place)
	}
	for range n.draw(4) {
		local = append(local, kv.LocalHash(n.local(n.draw(n.values))))
	}
	if len(local) == 0 {
		return nil
	}
	switch at := n.draw(len(local)); n.draw(4) {
	case 0:
		local = local[:at]
	case 1:
		local[at] = kv.LocalHash(n.local(n.draw(n.values)))
	}
	return local
}
