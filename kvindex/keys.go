package kvindex

import (
	"math/bits"

	"github.com/dynago/dynago/kv"
)

// keys tell where the blocks of one target lie, by the engine's names for them.
//
// It is an open-addressed hash table whose buckets are cache lines: five keys,
// and a count of those that found no room in a bucket and went on to the next.
// Nothing moves but when the table changes its size, a removal leaves no trace,
// and no more than five eighths of the room are in use: so a look-up takes one
// cache line, today and after a year.
//
// Its user reserves room for keys before they are added, and looks at many keys
// at once, so that their lines come from memory together.
type keys struct {
	buckets []keyBucket
	count   int
	least   int           // keys that there is always room for
	homes   [slice]uint32 // of the keys that touch was last called with
	touched uint32        // keeps the compiler from dropping loads that only warm the cache
}

// keyBucket holds its keys without gaps, the first ones first.
type keyBucket struct {
	key  [keysPerBucket]kv.EngineHash
	held [keysPerBucket]held // 0 = free
	// load counts the keys that are here, in the lowest bits, and those that went
	// on from here.
	load uint32
}

// passes is one key that went on, in a load.
const passes = 1 << 3

func (b *keyBucket) size() int    { return int(b.load % passes) }
func (b *keyBucket) passed() bool { return b.load >= passes }

const keysPerBucket = 5

// held is what a key stands for: a place, and in the lowest four bits the tiers
// on which the key is there.
type held uint32

func newHeld(p place, tier kv.Tier) held { return held(p)<<tiers | 1<<tier }

func (h held) place() place           { return place(h >> tiers) }
func (h held) on(tier kv.Tier) bool   { return h>>tier&1 != 0 }
func (h held) with(t kv.Tier) held    { return h | 1<<t }
func (h held) without(t kv.Tier) held { return h &^ (1 << t) }
func (h held) tiers() held            { return h & (1<<tiers - 1) }
func (h held) gone() bool             { return h.tiers() == 0 }

// reserve makes room for n more keys.
func (k *keys) reserve(n int) {
	if n += k.count; bucketsFor(n) > len(k.buckets) {
		k.resize(max(n, k.count+k.count/3))
	}
}

// shrink gives room back that is not needed any more.
func (k *keys) shrink() {
	switch n := max(k.count+k.count/8, k.least); {
	case n == 0:
		k.buckets = nil
	case 2*bucketsFor(n) < len(k.buckets):
		k.resize(n)
	}
}

// bucketsFor returns how many buckets n keys need.
func bucketsFor(n int) int { return 8*n/(5*keysPerBucket) + 2 }

// resize makes room for n keys. Because keys lie in the order of their hashes,
// this goes through both tables from front to back.
func (k *keys) resize(n int) {
	old := k.buckets
	k.buckets = make([]keyBucket, bucketsFor(n))
	for i := range old {
		b := &old[i]
		for j := range b.size() {
			k.put(k.home(b.key[j]), b.key[j], b.held[j])
		}
	}
}

// home returns the bucket where a key belongs.
func (k *keys) home(key kv.EngineHash) uint32 {
	h := fold(uint64(key), 0)
	hi, _ := bits.Mul64(h, uint64(len(k.buckets)))
	return uint32(hi)
}

// touch brings the lines of some keys into the cache, and that of a parent, all
// at once instead of one after the other, and notes where the keys belong. Its
// loops are short, so that the processor is many lines ahead of those that have
// come.
func (k *keys) touch(blocks []kv.Block, parent kv.EngineHash) {
	homes := k.homes[:len(blocks)]
	for i := range blocks {
		homes[i] = k.home(blocks[i].Engine)
	}
	buckets := k.buckets
	sum := buckets[k.home(parent)].load
	for _, home := range homes {
		sum += buckets[home].load
	}
	last := uint32(len(buckets) - 1)
	for _, home := range homes {
		sum += buckets[min(last, home+uint32(bit(buckets[home].passed())))].load
	}
	k.touched += sum
}

// spot is where a key is: which of a bucket.
type spot struct {
	bucket uint32
	i      int
}

// at returns what the key there stands for, to be changed until a key is removed
// or the table changes its size.
func (k *keys) at(s spot) *held { return &k.buckets[s.bucket].held[s.i] }

// find returns where a key is.
func (k *keys) find(key kv.EngineHash) (spot, bool) {
	if len(k.buckets) == 0 {
		return spot{}, false
	}
	return k.findFrom(k.home(key), key)
}

// findFrom is find for a key whose home is known.
func (k *keys) findFrom(home uint32, key kv.EngineHash) (spot, bool) {
	for at := home; ; at = k.next(at) {
		b := &k.buckets[at]
		if i := b.find(key); i < b.size() {
			return spot{at, i}, true
		}
		if !b.passed() {
			return spot{}, false
		}
	}
}

func (k *keys) next(at uint32) uint32 {
	if at++; int(at) < len(k.buckets) {
		return at
	}
	return 0
}

// find returns which of a bucket's keys is the one given; if none is, that of a
// free place or keysPerBucket. It has no branch that depends on where, since
// that could not be foretold.
func (b *keyBucket) find(key kv.EngineHash) int {
	return bits.TrailingZeros(bit(b.key[0] == key) | bit(b.key[1] == key)<<1 | bit(b.key[2] == key)<<2 |
		bit(b.key[3] == key)<<3 | bit(b.key[4] == key)<<4 | 1<<keysPerBucket)
}

// bit is 1 if it is so. The compiler makes no branch of it.
func bit(so bool) uint {
	if so {
		return 1
	}
	return 0
}

// add makes a key known that is not, and for which there is room.
func (k *keys) add(home uint32, key kv.EngineHash, v held) {
	k.count++
	k.put(home, key, v)
}

func (k *keys) put(home uint32, key kv.EngineHash, v held) {
	for at := home; ; at = k.next(at) {
		b := &k.buckets[at]
		if i := b.size(); i < keysPerBucket {
			b.key[i], b.held[i] = key, v
			b.load++
			return
		}
		b.load += passes
	}
}

// remove forgets the key at s, whose home is given. If others have passed its
// bucket, one of them takes its room: a bucket is passed only while it is full,
// or else every bucket would in time have been full once, and every look-up need
// two lines.
func (k *keys) remove(home uint32, s spot) {
	k.count--
	k.withdraw(home, s.bucket)
	b := &k.buckets[s.bucket]
	for b.passed() {
		from := k.passerBy(s.bucket)
		f := &k.buckets[from.bucket]
		b.key[s.i], b.held[s.i] = f.key[from.i], f.held[from.i]
		k.withdraw(s.bucket, from.bucket)
		s, b = from, f
	}
	b.load--
	last := b.size()
	b.key[s.i], b.held[s.i] = b.key[last], b.held[last]
	b.key[last], b.held[last] = 0, 0
}

// withdraw counts a key no more that passed the buckets from..to-1.
func (k *keys) withdraw(from, to uint32) {
	for ; from != to; from = k.next(from) {
		k.buckets[from].load -= passes
	}
}

// passerBy returns where a key is that has passed the bucket at.
func (k *keys) passerBy(at uint32) spot {
	for from := k.next(at); ; from = k.next(from) {
		b := &k.buckets[from]
		for i := range b.size() {
			if k.distance(k.home(b.key[i]), from) >= k.distance(at, from) {
				return spot{from, i}
			}
		}
	}
}

// distance returns how many buckets a key passes that belongs to one and is in
// another.
func (k *keys) distance(home, at uint32) uint32 {
	if at >= home {
		return at - home
	}
	return at + uint32(len(k.buckets)) - home
}
