package tokenizer

import "math/bits"

// mergeTable gives the rank of a pair of ids and what the pair becomes: open
// addressing with linear probing, at most half full. A slot is the index in list
// plus one, below indexBits, and a part of the pair's hash, so that a look-up of
// what is not there, which most are, touches the slots alone.
type mergeTable struct {
	slots     []uint32
	shift     uint // 64 - log2(len(slots))
	indexBits uint
	list      []merge
	made      []uint32 // by rank
	// A bit for each pair, by another part of the hash: small enough to stay close
	// to the processor, it spares most look-ups of what is not there.
	filter []uint64
}

type merge struct{ left, right, rank uint32 }

func newMergeTable(merges int) mergeTable {
	log := uint(bits.Len(uint(2 * merges)))
	return mergeTable{
		slots:     make([]uint32, 1<<log),
		shift:     64 - log,
		indexBits: log,
		list:      make([]merge, 0, merges),
		made:      make([]uint32, 0, merges),
		filter:    make([]uint64, 1<<log/32+1),
	}
}

// pairHash multiplies by 2^64 over the golden ratio (Knuth, TAOCP 6.4).
func pairHash(left, right uint32) uint64 {
	return (uint64(left)<<32 | uint64(right)) * 0x9e3779b97f4a7c15
}

// mayHave tells whether there may be such a pair.
func (t *mergeTable) mayHave(left, right uint32) bool {
	bit := pairHash(left, right) >> (t.shift - 1)
	return t.filter[bit/64]>>(bit%64)&1 != 0
}

// slot returns the index of the slot where a pair is or belongs, and what the
// slot has of its hash.
func (t *mergeTable) slot(left, right uint32) (slot uint64, tag uint32) {
	hash := pairHash(left, right)
	tag = uint32(hash>>16) << t.indexBits
	mask := uint64(len(t.slots) - 1)
	for slot = hash >> t.shift; ; slot = (slot + 1) & mask {
		s := t.slots[slot]
		if s == 0 {
			return slot, tag
		}
		if (s^tag)>>t.indexBits == 0 {
			if m := &t.list[t.index(s)]; m.left == left && m.right == right {
				return slot, tag
			}
		}
	}
}

// index returns the index in list that a slot in use has.
func (t *mergeTable) index(slot uint32) uint32 { return slot&(1<<t.indexBits-1) - 1 }

// find returns the index in list of a pair.
func (t *mergeTable) find(left, right uint32) (index uint32, ok bool) {
	slot, _ := t.slot(left, right)
	s := t.slots[slot]
	return t.index(s), s != 0
}

// rank returns the rank of a pair, or none.
func (t *mergeTable) rank(left, right uint32) uint32 {
	if !t.mayHave(left, right) {
		return none
	}
	index, ok := t.find(left, right)
	if !ok {
		return none
	}
	return t.list[index].rank
}

// add gives a pair the next rank. A pair that comes again has the later one, as
// in the reference implementation.
func (t *mergeTable) add(left, right, made uint32) {
	t.made = append(t.made, made)
	t.addAnother(left, right)
}

// addAnother gives a pair the rank of the last one, with which it makes the same.
func (t *mergeTable) addAnother(left, right uint32) {
	rank := uint32(len(t.made) - 1)
	slot, tag := t.slot(left, right)
	if s := t.slots[slot]; s != 0 {
		t.list[t.index(s)].rank = rank
		return
	}
	t.list = append(t.list, merge{left, right, rank})
	t.slots[slot] = tag | uint32(len(t.list))
	bit := pairHash(left, right) >> (t.shift - 1)
	t.filter[bit/64] |= 1 << (bit % 64)
}
