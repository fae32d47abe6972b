package kvindex

import (
	"math/bits"

	"github.com/dynago/dynago/kv"
)

// keys tell where the blocks of one target lie, by the engine's names for them.
//
// It is an extendible hash table: segments of some thousand keys, of which one
// at a time grows, shrinks or splits. In a segment, buckets are cache lines of
// five keys that go on to the next one when full and never move. No more than
// three fifths are in use, which is what keeps the time of a look-up at one
// cache line.
type keys struct {
	segments []*segment // by the first depth bits of the hash
	depth    int
	count    int

	touched uint64 // keeps the compiler from dropping loads that only warm the cache
}

type segment struct {
	buckets []keyBucket
	count   int
	depth   int // bits of the hash that its keys have in common
}

type keyBucket struct {
	key    [keysPerBucket]kv.EngineHash
	held   [keysPerBucket]held // 0 = free
	passed uint32              // keys that went on from here
}

const (
	keysPerBucket = 5
	segmentKeys   = 2048 // above this a segment splits
	firstBuckets  = 4
)

// held is what a key stands for: a place, and in the lowest four bits the tiers
// on which the key is there.
type held uint32

func newHeld(p place, tier kv.Tier) held { return held(p)<<tiers | 1<<tier }

func (h held) place() place           { return place(h >> tiers) }
func (h held) on(tier kv.Tier) bool   { return h>>tier&1 != 0 }
func (h held) with(t kv.Tier) held    { return h | 1<<t }
func (h held) without(t kv.Tier) held { return h &^ (1 << t) }
func (h held) gone() bool             { return h&(1<<tiers-1) == 0 }

func keyHash(k kv.EngineHash) uint64 { return fold(uint64(k), 0) }

func (k *keys) segment(h uint64) *segment {
	if len(k.segments) == 0 {
		k.segments = []*segment{{buckets: make([]keyBucket, firstBuckets)}}
	}
	return k.segments[h>>1>>(63-k.depth)]
}

func (s *segment) home(h uint64) int {
	hi, _ := bits.Mul64(h<<32, uint64(len(s.buckets)))
	return int(hi)
}

// touch brings the lines of some keys into the cache, all at once instead of
// one after the other.
func (k *keys) touch(blocks []kv.Block) {
	if k.count == 0 {
		return
	}
	var sum uint64
	for i := range blocks {
		h := keyHash(blocks[i].Engine)
		s := k.segments[h>>1>>(63-k.depth)]
		sum += uint64(s.buckets[s.home(h)].passed)
	}
	k.touched += sum
}

// find returns what a key stands for, to be changed until the next key is
// added; nil if it is not known.
func (k *keys) find(key kv.EngineHash) *held {
	h := keyHash(key)
	s := k.segment(h)
	for at := s.home(h); ; {
		b := &s.buckets[at]
		for i := range b.key {
			if b.key[i] == key && b.held[i] != 0 {
				return &b.held[i]
			}
		}
		if b.passed == 0 {
			return nil
		}
		if at++; at == len(s.buckets) {
			at = 0
		}
	}
}

// add makes a key known that is not.
func (k *keys) add(key kv.EngineHash, v held) {
	h := keyHash(key)
	s := k.segment(h)
	if 5*s.count >= 3*keysPerBucket*len(s.buckets) {
		s = k.widen(s, h)
	}
	s.add(h, key, v)
	k.count++
}

func (s *segment) add(h uint64, key kv.EngineHash, v held) {
	s.count++
	for at := s.home(h); ; {
		b := &s.buckets[at]
		for i := range b.held {
			if b.held[i] == 0 {
				b.key[i], b.held[i] = key, v
				return
			}
		}
		b.passed++
		if at++; at == len(s.buckets) {
			at = 0
		}
	}
}

// remove forgets a key that is known.
func (k *keys) remove(key kv.EngineHash) {
	h := keyHash(key)
	s := k.segment(h)
	k.count--
	s.count--
	for at := s.home(h); !s.buckets[at].remove(key); {
		s.buckets[at].passed--
		if at++; at == len(s.buckets) {
			at = 0
		}
	}
	if n := len(s.buckets); n > firstBuckets && 6*s.count < keysPerBucket*n {
		s.resize(roomFor(s.count))
	}
}

func (b *keyBucket) remove(key kv.EngineHash) bool {
	for i := range b.key {
		if b.key[i] == key && b.held[i] != 0 {
			b.key[i], b.held[i] = 0, 0
			return true
		}
	}
	return false
}

// roomFor returns in how many buckets n keys take half of the room.
func roomFor(n int) int { return max(firstBuckets, 2*n/keysPerBucket+1) }

// widen makes room in the segment of hash h, and returns the one it now has.
func (k *keys) widen(s *segment, h uint64) *segment {
	if s.count < segmentKeys {
		s.resize(len(s.buckets) + len(s.buckets)/4 + 1)
		return s
	}
	if s.depth == k.depth {
		wide := make([]*segment, 2*len(k.segments))
		for i := range wide {
			wide[i] = k.segments[i/2]
		}
		k.segments = wide
		k.depth++
	}
	var half [2]*segment
	for i := range half {
		half[i] = &segment{buckets: make([]keyBucket, roomFor(s.count/2+s.count/16)), depth: s.depth + 1}
	}
	s.each(func(key kv.EngineHash, v held) {
		h := keyHash(key)
		half[h>>(63-s.depth)&1].add(h, key, v)
	})
	first := int(h >> 1 >> (63 - s.depth) << (k.depth - s.depth))
	for i := range 1 << (k.depth - s.depth) {
		k.segments[first+i] = half[i>>(k.depth-s.depth-1)]
	}
	return k.segments[h>>1>>(63-k.depth)]
}

func (s *segment) resize(buckets int) {
	old := *s
	s.buckets, s.count = make([]keyBucket, buckets), 0
	old.each(func(key kv.EngineHash, v held) { s.add(keyHash(key), key, v) })
}

func (s *segment) each(yield func(kv.EngineHash, held)) {
	for i := range s.buckets {
		b := &s.buckets[i]
		for j, v := range b.held {
			if v != 0 {
				yield(b.key[j], v)
			}
		}
	}
}

// each calls yield for every segment once.
func (k *keys) each(yield func(*segment)) {
	for i := 0; i < len(k.segments); i += 1 << (k.depth - k.segments[i].depth) {
		yield(k.segments[i])
	}
}
