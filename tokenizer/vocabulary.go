package tokenizer

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// alphabet maps the 256 bytes to the printable characters that byte-level
// vocabularies write for them: a printable Latin-1 byte stands for itself, the
// others follow from U+0100 on.
var alphabet = func() (chars [256]rune) {
	next := rune(256)
	for b := range chars {
		switch {
		case b >= '!' && b <= '~', b >= 0xa1 && b <= 0xac, b >= 0xae:
			chars[b] = rune(b)
		default:
			chars[b] = next
			next++
		}
	}
	return chars
}()

// byteOf is the inverse of alphabet for the characters below U+0144, -1 for
// those that stand for no byte.
var byteOf = func() (bytes [0x144]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for b, r := range alphabet {
		bytes[r] = int16(b)
	}
	return bytes
}()

// appendBytes appends the bytes that the token spells in the alphabet. A token
// with a character outside of it spells its own UTF-8, and ok is false.
func appendBytes[T string | []byte](dst []byte, token T) (_ []byte, ok bool) {
	start := len(dst)
	for _, r := range string(token) {
		if int(r) >= len(byteOf) || byteOf[r] < 0 {
			return append(dst[:start], token...), false
		}
		dst = append(dst, byte(byteOf[r]))
	}
	return dst, true
}

// pieces holds the bytes of tokens by id.
type pieces struct {
	blob []byte
	at   []piece
}

type piece struct{ start, end uint32 }

// unknown is the piece of an id that no token has.
var unknown = piece{1, 0}

func (p *pieces) known(id uint32) bool {
	return uint64(id) < uint64(len(p.at)) && p.at[id] != unknown
}

// bytes returns the bytes of a token, which must not be changed; nil if the id
// is unknown.
func (p *pieces) bytes(id uint32) []byte {
	if !p.known(id) {
		return nil
	}
	at := p.at[id]
	return p.blob[at.start:at.end:at.end]
}

// grow makes room for ids up to and including id.
func (p *pieces) grow(id uint32) {
	for uint64(len(p.at)) <= uint64(id) {
		p.at = append(p.at, unknown)
	}
}

// set gives id the bytes that have been appended to the blob since start.
func (p *pieces) set(id uint32, start int) {
	p.grow(id)
	p.at[id] = piece{uint32(start), uint32(len(p.blob))}
}

// index finds a token of the vocabulary by its bytes: open addressing, at most
// half full. A slot is id+1, below idBits, and a part of the hash.
type index struct {
	slots []uint32
	mask  uint64
	seed  uint64
	// A bit for each token, by another part of the hash. It is small enough to stay
	// close to the processor, and spares most look-ups of what is not there.
	filter []uint64
	shift  uint // 64 - log2 of the bits of filter
}

// idBits hold id+1, since ids are below maxID.
const idBits = 23

func newIndex(tokens int) index {
	size := 64
	for size < 2*tokens {
		size *= 2
	}
	filter := 4 * size
	return index{
		slots:  make([]uint32, size),
		mask:   uint64(size - 1),
		seed:   rand.Uint64() | 1,
		filter: make([]uint64, filter/64),
		shift:  64 - uint(bits.TrailingZeros(uint(filter))),
	}
}

// hash multiplies eight bytes at a time and folds the product. The seed keeps a
// file from being made of tokens that all meet.
func (x *index) hash(word string) uint64 {
	h := uint64(len(word)) ^ x.seed
	for ; len(word) > 8; word = word[8:] {
		h = fold(h ^ uint64(load32(word)) ^ uint64(load32(word[4:]))<<32)
	}
	switch n := len(word); {
	case n >= 4:
		h ^= uint64(load32(word)) | uint64(load32(word[n-4:]))<<32
	case n > 0:
		h ^= uint64(word[0]) | uint64(word[n/2])<<8 | uint64(word[n-1])<<16
	}
	return fold(h)
}

// fold spreads each bit of h over all of the result, by the first digits of pi.
func fold(h uint64) uint64 {
	high, low := bits.Mul64(h^0x243f6a8885a308d3, 0x13198a2e03707345)
	return high ^ low
}

func load32(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// mayHave tells whether there may be a token of the given hash.
func (x *index) mayHave(hash uint64) bool {
	bit := hash >> x.shift
	return x.filter[bit/64]>>(bit%64)&1 != 0
}

// tag is the part of a hash that a slot has.
func tag(hash uint64) uint32 { return uint32(hash>>32) << idBits }

// lookup returns the id of the token whose bytes are word, of the given hash.
func (x *index) lookup(p *pieces, word string, hash uint64) (uint32, bool) {
	if !x.mayHave(hash) {
		return 0, false
	}
	for i := hash & x.mask; ; i = (i + 1) & x.mask {
		slot := x.slots[i]
		if slot == 0 {
			return 0, false
		}
		if (slot^tag(hash))>>idBits != 0 {
			continue
		}
		id := slot&(1<<idBits-1) - 1
		if at := p.at[id]; string(p.blob[at.start:at.end]) == word {
			return id, true
		}
	}
}

// insert adds a token that lookup does not find.
func (x *index) insert(id uint32, hash uint64) {
	i := hash & x.mask
	for x.slots[i] != 0 {
		i = (i + 1) & x.mask
	}
	x.slots[i] = tag(hash) | (id + 1)
	bit := hash >> x.shift
	x.filter[bit/64] |= 1 << (bit % 64)
}

// vocabulary is the tokens of a model.
type vocabulary struct {
	pieces
	index index
	other map[string]uint32 // tokens that spell no bytes, so text never yields them
	count int               // tokens
	text  bool              // tokens are spelled as themselves, not in the alphabet
	unk   uint32            // stands for what is not in the vocabulary, or none
}

// fillIndex makes all tokens but the opaque ones known to find.
func (v *vocabulary) fillIndex(opaque map[uint32]bool) {
	for id := range uint32(len(v.at)) {
		if !v.known(id) || opaque[id] {
			continue
		}
		word := string(v.bytes(id))
		hash := v.index.hash(word)
		if _, ok := v.index.lookup(&v.pieces, word, hash); !ok {
			v.index.insert(id, hash)
		}
	}
}

// find returns the token of these bytes.
func (v *vocabulary) find(word string) (uint32, bool) {
	return v.index.lookup(&v.pieces, word, v.index.hash(word))
}

// id returns the id of a token as the file spells it.
func (v *vocabulary) id(token string) (uint32, bool) {
	if id, ok := v.other[token]; ok {
		return id, true
	}
	if v.text {
		return v.find(token)
	}
	word, ok := appendBytes(nil, token)
	if !ok {
		return 0, false
	}
	return v.find(string(word))
}

// byteTokens returns the ids of <0x00> to <0xFF>, none for those that do not
// exist, and whether all do.
func (v *vocabulary) byteTokens() (ids *[256]uint32, complete bool) {
	ids, complete = new([256]uint32), true
	for b := range ids {
		id, ok := v.find(fmt.Sprintf("<0x%02X>", b))
		if !ok {
			id, complete = none, false
		}
		ids[b] = id
	}
	return ids, complete
}

// spells tells whether there are tokens for all bytes of text.
func spells(fallback *[256]uint32, text string) bool {
	if fallback == nil {
		return false
	}
	for _, b := range []byte(text) {
		if fallback[b] == none {
			return false
		}
	}
	return true
}
