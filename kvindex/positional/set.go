package positional

import "math/bits"

// set is a set of slots. Up to four lie in the word itself, in 16 bits each, as
// slot+1 and without holes from the low end on. A larger one is a bit set
// elsewhere: then the top bit is set and the rest is its number.
type set uint64

const (
	inline = 4
	large  = set(1) << 63
	// narrow is the number of slots that fit inline: the top bit is taken.
	narrow = 1<<15 - 1
)

// bitsets are the large sets, all of the same number of words.
type bitsets struct {
	words   int
	bits    []uint64
	spare   []uint32
	members []uint32 // of each large set
}

// word returns 64 slots of s.
func (x *Index) word(s set, i int) uint64 {
	if s&large != 0 {
		if i >= x.wide.words {
			return 0
		}
		return x.wide.bits[int(s&^large)*x.wide.words+i]
	}
	var w uint64
	for ; s != 0; s >>= 16 {
		if slot := int(s&0xffff) - 1; slot/64 == i {
			w |= 1 << (slot % 64)
		}
	}
	return w
}

func (x *Index) has(s set, slot int) bool {
	if s&large != 0 {
		return x.word(s, slot/64)>>(slot%64)&1 != 0
	}
	for ; s != 0; s >>= 16 {
		if int(s&0xffff)-1 == slot {
			return true
		}
	}
	return false
}

// add puts slot into s and says whether it was not there before.
func (x *Index) add(s *set, slot int) bool {
	if *s&large == 0 {
		n := 0
		for rest := *s; rest != 0; rest >>= 16 {
			if int(rest&0xffff)-1 == slot {
				return false
			}
			n++
		}
		if n < inline && slot < narrow {
			*s |= set(slot+1) << (16 * n)
			return true
		}
		x.enlarge(s)
	}
	if slot/64 >= x.wide.words {
		x.wide.widen(x.slots.words())
	}
	n := uint32(*s &^ large)
	w := &x.wide.bits[int(n)*x.wide.words+slot/64]
	if *w>>(slot%64)&1 != 0 {
		return false
	}
	*w |= 1 << (slot % 64)
	x.wide.members[n]++
	return true
}

// del takes slot out of s and says whether it was there.
func (x *Index) del(s *set, slot int) bool {
	if *s&large == 0 {
		for n := range inline {
			if int(*s>>(16*n)&0xffff)-1 == slot {
				low := set(1)<<(16*n) - 1
				*s = *s&low | *s>>16&^low
				return true
			}
		}
		return false
	}
	if !x.has(*s, slot) {
		return false
	}
	n := uint32(*s &^ large)
	x.wide.bits[int(n)*x.wide.words+slot/64] &^= 1 << (slot % 64)
	x.wide.members[n]--
	// Half full inline, so that a set on the border does not go to and fro.
	if x.wide.members[n] == inline/2 && 64*x.slots.words() <= narrow {
		x.shrink(s)
	}
	return true
}

// enlarge turns an inline set into a large one.
func (x *Index) enlarge(s *set) {
	x.wide.widen(x.slots.words())
	n := x.wide.take()
	for rest := *s; rest != 0; rest >>= 16 {
		slot := int(rest&0xffff) - 1
		x.wide.bits[int(n)*x.wide.words+slot/64] |= 1 << (slot % 64)
		x.wide.members[n]++
	}
	*s = large | set(n)
}

// shrink turns a large set into an inline one.
func (x *Index) shrink(s *set) {
	n := int(*s &^ large)
	words := x.wide.bits[n*x.wide.words:][:x.wide.words]
	*s = 0
	for i, w := range words {
		for ; w != 0; w &= w - 1 {
			*s = *s<<16 | set(64*i+bits.TrailingZeros64(w)+1)
		}
	}
	clear(words)
	x.wide.members[n] = 0
	x.wide.spare = append(x.wide.spare, uint32(n))
}

func (b *bitsets) take() uint32 {
	if last := len(b.spare) - 1; last >= 0 {
		n := b.spare[last]
		b.spare = b.spare[:last]
		return n
	}
	b.bits = append(b.bits, make([]uint64, b.words)...)
	b.members = append(b.members, 0)
	return uint32(len(b.members) - 1)
}

// widen makes room for more slots in every large set.
func (b *bitsets) widen(words int) {
	if words <= b.words {
		return
	}
	words = max(words, b.words*3/2)
	wider := make([]uint64, len(b.members)*words)
	for i := range b.members {
		copy(wider[i*words:], b.bits[i*b.words:][:b.words])
	}
	b.bits, b.words = wider, words
}

// slots hands out the smallest free numbers.
type slots struct {
	used []uint64
}

func (s *slots) words() int { return len(s.used) }

func (s *slots) take() int {
	for i, w := range s.used {
		if ^w != 0 {
			bit := bits.TrailingZeros64(^w)
			s.used[i] |= 1 << bit
			return 64*i + bit
		}
	}
	s.used = append(s.used, 1)
	return 64 * (len(s.used) - 1)
}

func (s *slots) free(slot int) { setBit(s.used, slot, false) }

func setBit(set []uint64, i int, on bool) {
	if on {
		set[i/64] |= 1 << (i % 64)
	} else {
		set[i/64] &^= 1 << (i % 64)
	}
}
