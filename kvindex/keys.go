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
	homes   [slice]uint32 // of the keys that touch was last called with
	touched uint64        // keeps the compiler from dropping loads that only warm the cache
}

type keyBucket struct {
	key    [keysPerBucket]kv.EngineHash
	held   [keysPerBucket]held // 0 = free
	passed uint32              // keys that went on from here
}

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
	if n += k.count; 8*n > 5*keysPerBucket*len(k.buckets) {
		k.resize(max(n, k.count+k.count/3))
	}
}

// shrink gives room back that is not needed any more.
func (k *keys) shrink() {
	if k.count == 0 {
		k.buckets = nil
	} else if 4*k.count < keysPerBucket*len(k.buckets) {
		k.resize(k.count + k.count/8)
	}
}

// resize makes room for n keys. Because keys lie in the order of their hashes,
// this goes through both tables from front to back.
func (k *keys) resize(n int) {
	old := k.buckets
	k.buckets = make([]keyBucket, 8*n/(5*keysPerBucket)+2)
	fill := make([]uint8, len(k.buckets))
	for i := range old {
		b := &old[i]
		for used := ^b.free() & (1<<keysPerBucket - 1); used != 0; used &= used - 1 {
			j := bits.TrailingZeros(used)
			at := k.home(b.key[j])
			for ; fill[at] == keysPerBucket; at = k.next(at) {
				k.buckets[at].passed++
			}
			to := &k.buckets[at]
			to.key[fill[at]], to.held[fill[at]] = b.key[j], b.held[j]
			fill[at]++
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
// at once instead of one after the other, and notes where the keys belong.
func (k *keys) touch(blocks []kv.Block, parent kv.EngineHash) {
	sum := uint64(k.buckets[k.home(parent)].passed)
	homes := k.homes[:len(blocks)]
	last := uint32(len(k.buckets) - 1)
	for i := range blocks {
		home := k.home(blocks[i].Engine)
		homes[i] = home
		sum += uint64(k.buckets[home].passed)
	}
	for _, home := range homes {
		sum += uint64(k.buckets[min(last, home+uint32(bit(k.buckets[home].passed != 0)))].passed)
	}
	k.touched += sum
}

// find returns what a key stands for, to be changed until the table is; nil if
// it is not known.
func (k *keys) find(key kv.EngineHash) *held {
	if len(k.buckets) == 0 {
		return nil
	}
	return k.findAt(k.home(key), key)
}

// findAt is find for a key whose home is known.
func (k *keys) findAt(home uint32, key kv.EngineHash) *held {
	for at := home; ; at = k.next(at) {
		b := &k.buckets[at]
		if i := b.find(key); i < keysPerBucket {
			return &b.held[i]
		}
		if b.passed == 0 {
			return nil
		}
	}
}

func (k *keys) next(at uint32) uint32 {
	if at++; int(at) < len(k.buckets) {
		return at
	}
	return 0
}

// find returns where in the bucket a key is, keysPerBucket if nowhere. It has no
// branch that depends on where, since that could not be foretold.
func (b *keyBucket) find(key kv.EngineHash) int {
	found := bit(b.key[0] == key) | bit(b.key[1] == key)<<1 | bit(b.key[2] == key)<<2 |
		bit(b.key[3] == key)<<3 | bit(b.key[4] == key)<<4
	if key == 0 { // a key like any other, and what is in free places
		found &^= b.free()
	}
	return bits.TrailingZeros(found | 1<<keysPerBucket)
}

// free returns which places of a bucket are free.
func (b *keyBucket) free() uint {
	return bit(b.held[0] == 0) | bit(b.held[1] == 0)<<1 | bit(b.held[2] == 0)<<2 |
		bit(b.held[3] == 0)<<3 | bit(b.held[4] == 0)<<4
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
		if free := b.free(); free != 0 {
			i := bits.TrailingZeros(free)
			b.key[i], b.held[i] = key, v
			return
		}
		b.passed++
	}
}

// remove forgets a key that is known. If others have passed its bucket, one of
// them takes its room: a bucket is passed only while it is full, or else every
// bucket would in time have been full once, and every look-up need two lines.
func (k *keys) remove(home uint32, key kv.EngineHash) {
	k.count--
	at := home
	i := k.buckets[at].find(key)
	for ; i == keysPerBucket; i = k.buckets[at].find(key) {
		k.buckets[at].passed--
		at = k.next(at)
	}
	for k.buckets[at].passed > 0 {
		from, j := k.passerBy(at)
		b, f := &k.buckets[at], &k.buckets[from]
		b.key[i], b.held[i] = f.key[j], f.held[j]
		for ; at != from; at = k.next(at) {
			k.buckets[at].passed--
		}
		i = j
	}
	b := &k.buckets[at]
	b.key[i], b.held[i] = 0, 0
}

// passerBy returns where a key lies that has passed the bucket at.
func (k *keys) passerBy(at uint32) (from uint32, i int) {
	n := uint32(len(k.buckets))
	for from = k.next(at); ; from = k.next(from) {
		b := &k.buckets[from]
		for i, v := range b.held {
			if v != 0 && (from+n-k.home(b.key[i]))%n >= (from+n-at)%n {
				return from, i
			}
		}
	}
}
