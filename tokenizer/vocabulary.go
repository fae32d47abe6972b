package tokenizer

import (
	"fmt"
	"hash/maphash"
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

// index finds a token of the vocabulary by its bytes: open addressing, each slot
// the upper half of the hash and id+1.
type index struct {
	slots []uint64
	mask  uint64
	seed  maphash.Seed
}

func newIndex(tokens int) index {
	size := 1
	for size < 2*tokens {
		size *= 2
	}
	return index{slots: make([]uint64, size), mask: uint64(size - 1), seed: maphash.MakeSeed()}
}

func (x *index) hash(word string) uint64 { return maphash.String(x.seed, word) }

// lookup returns the id of the token whose bytes are word, of the given hash.
func (x *index) lookup(p *pieces, word string, hash uint64) (uint32, bool) {
	for i := hash & x.mask; ; i = (i + 1) & x.mask {
		slot := x.slots[i]
		if slot == 0 {
			return 0, false
		}
		if slot>>32 != hash>>32 {
			continue
		}
		id := uint32(slot) - 1
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
	x.slots[i] = hash>>32<<32 | uint64(id) + 1
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
