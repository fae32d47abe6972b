package kvevent

import (
	"encoding/binary"
	"math"

	"github.com/dynago/dynago/kv"
)

// Bounds of what a reader accepts. Engines stay far below them.
const (
	maxPayload = 64 << 20 // bytes of one message
	maxItems   = 1 << 20  // items of one array, pairs of one map
	maxDepth   = 16       // arrays and maps inside each other
)

// shape is what a msgpack value is, told by its first byte.
type shape uint8

const (
	shapeNone shape = iota // the end of the input, or a byte that begins nothing
	shapeNil
	shapeBool
	shapeInt
	shapeFloat
	shapeText
	shapeBytes
	shapeArray
	shapeMap
	shapeExt
)

// reader walks a msgpack value in place. It allocates nothing, and believes no
// length that the bytes before it cannot hold.
//
// Every method that reads a value says whether the value was there and of the
// shape asked for. After a no, the position means nothing; the caller goes back
// to a place it knows.
type reader struct {
	b   []byte
	pos int
}

// next returns the shape of the value at the position, and leaves it there.
func (r *reader) next() shape {
	if r.pos >= len(r.b) {
		return shapeNone
	}
	return shapes[r.b[r.pos]]
}

// shapes is the first byte's meaning.
var shapes = func() (t [256]shape) {
	for c := range t {
		switch {
		case c < 0x80 || c >= 0xe0 || c >= 0xcc && c <= 0xd3:
			t[c] = shapeInt
		case c < 0x90 || c == 0xde || c == 0xdf:
			t[c] = shapeMap
		case c < 0xa0 || c == 0xdc || c == 0xdd:
			t[c] = shapeArray
		case c < 0xc0 || c >= 0xd9 && c <= 0xdb:
			t[c] = shapeText
		case c == 0xc0:
			t[c] = shapeNil
		case c == 0xc2 || c == 0xc3:
			t[c] = shapeBool
		case c >= 0xc4 && c <= 0xc6:
			t[c] = shapeBytes
		case c >= 0xc7 && c <= 0xc9 || c >= 0xd4 && c <= 0xd8:
			t[c] = shapeExt
		case c == 0xca || c == 0xcb:
			t[c] = shapeFloat
		}
	}
	return t
}()

// null steps over a nil if one is next.
func (r *reader) null() bool {
	if r.pos < len(r.b) && r.b[r.pos] == 0xc0 {
		r.pos++
		return true
	}
	return false
}

// number reads n bytes, at most 8, as a big-endian number.
func (r *reader) number(n int) (uint64, bool) {
	if len(r.b)-r.pos < n {
		return 0, false
	}
	var v uint64
	for _, c := range r.b[r.pos : r.pos+n] {
		v = v<<8 | uint64(c)
	}
	r.pos += n
	return v, true
}

// integer reads a whole number. A negative one comes in two's complement.
func (r *reader) integer() (v uint64, negative, ok bool) {
	if r.next() != shapeInt {
		return 0, false, false
	}
	c := r.b[r.pos]
	r.pos++
	switch {
	case c < 0x80:
		return uint64(c), false, true
	case c >= 0xe0:
		return uint64(int64(int8(c))), true, true
	case c <= 0xcf:
		v, ok = r.number(1 << (c - 0xcc))
		return v, false, ok
	}
	size := 1 << (c - 0xd0)
	v, ok = r.number(size)
	signed := int64(v<<(64-8*size)) >> (64 - 8*size)
	return uint64(signed), signed < 0, ok
}

// uint32 reads a whole number from 0 to 2^32-1.
func (r *reader) uint32() (uint32, bool) {
	v, negative, ok := r.integer()
	return uint32(v), ok && !negative && v <= math.MaxUint32
}

// text reads a string. It stays part of the input.
func (r *reader) text() ([]byte, bool) {
	if r.next() != shapeText {
		return nil, false
	}
	return r.run()
}

// run reads a string or bytes.
func (r *reader) run() ([]byte, bool) {
	c := r.b[r.pos]
	r.pos++
	n, ok := uint64(c&0x1f), true
	switch c {
	case 0xd9, 0xc4:
		n, ok = r.number(1)
	case 0xda, 0xc5:
		n, ok = r.number(2)
	case 0xdb, 0xc6:
		n, ok = r.number(4)
	}
	if !ok || uint64(len(r.b)-r.pos) < n {
		return nil, false
	}
	r.pos += int(n)
	return r.b[r.pos-int(n) : r.pos], true
}

// hash reads an engine's key for a block: a number of either sign, or bytes of
// which the last eight count.
func (r *reader) hash() (uint64, bool) {
	switch r.next() {
	case shapeInt:
		v, _, ok := r.integer()
		return v, ok
	case shapeText, shapeBytes:
		s, ok := r.run()
		if !ok || len(s) == 0 {
			return 0, false
		}
		if len(s) >= 8 {
			return binary.BigEndian.Uint64(s[len(s)-8:]), true
		}
		var v uint64
		for _, c := range s {
			v = v<<8 | uint64(c)
		}
		return v, true
	}
	return 0, false
}

// array reads the head of an array. Its length is one that the rest of the
// input can hold.
func (r *reader) array() (n int, ok bool) {
	if r.next() != shapeArray {
		return 0, false
	}
	return r.head(0xdc, 1)
}

// pairs reads the head of a map and returns how many pairs follow.
func (r *reader) pairs() (n int, ok bool) {
	if r.next() != shapeMap {
		return 0, false
	}
	return r.head(0xde, 2)
}

// head reads a length of which every unit takes at least each bytes. The form
// with a 16-bit length begins with long.
func (r *reader) head(long byte, each int) (int, bool) {
	c := r.b[r.pos]
	r.pos++
	n, ok := uint64(c&0x0f), true
	switch c {
	case long:
		n, ok = r.number(2)
	case long + 1:
		n, ok = r.number(4)
	}
	if !ok || n > maxItems || n > uint64((len(r.b)-r.pos)/each) {
		return 0, false
	}
	return int(n), true
}

// structure reads a struct, of which field reads one field: in a map the one
// called name, in an array, where name is nil, the one at a place.
func (r *reader) structure(field func(name []byte, place int) bool) bool {
	if r.next() == shapeArray {
		n, ok := r.array()
		for i := 0; ok && i < n; i++ {
			ok = field(nil, i)
		}
		return ok
	}
	n, ok := r.pairs()
	for i := 0; ok && i < n; i++ {
		var name []byte
		if name, ok = r.text(); ok {
			ok = field(name, -1)
		}
	}
	return ok
}

// skip steps over one value, whatever it is. It refuses what lies deeper than
// depth arrays and maps.
func (r *reader) skip(depth int) bool {
	var items int
	switch r.next() {
	case shapeNil, shapeBool:
		r.pos++
		return true
	case shapeInt:
		_, _, ok := r.integer()
		return ok
	case shapeFloat:
		n := 5 + 4*int(r.b[r.pos]-0xca)
		r.pos += n
		return r.pos <= len(r.b)
	case shapeText, shapeBytes:
		_, ok := r.run()
		return ok
	case shapeExt:
		return r.skipExt()
	case shapeArray:
		n, ok := r.array()
		if !ok {
			return false
		}
		items = n
	case shapeMap:
		n, ok := r.pairs()
		if !ok {
			return false
		}
		items = 2 * n
	default:
		return false
	}
	if depth == 0 {
		return false
	}
	for range items {
		if !r.skip(depth - 1) {
			return false
		}
	}
	return true
}

// skipExt steps over an extension value: its type, a byte, and its data.
func (r *reader) skipExt() bool {
	c := r.b[r.pos]
	r.pos++
	n, ok := uint64(1)<<((c-0xd4)&7), true // the forms with a fixed length
	if c < 0xd4 {
		n, ok = r.number(1 << (c - 0xc7))
	}
	if !ok || uint64(len(r.b)-r.pos) < n+1 {
		return false
	}
	r.pos += int(n) + 1
	return true
}

// hashes appends the engine keys of an array.
func (r *reader) hashes(dst []kv.EngineHash) ([]kv.EngineHash, bool) {
	n, ok := r.array()
	if !ok {
		return dst, false
	}
	for range n {
		// Nearly all are numbers of 64 bits.
		if b := r.b[r.pos:]; len(b) >= 9 && b[0] == 0xcf {
			dst = append(dst, kv.EngineHash(binary.BigEndian.Uint64(b[1:])))
			r.pos += 9
			continue
		}
		h, ok := r.hash()
		if !ok {
			return dst, false
		}
		dst = append(dst, kv.EngineHash(h))
	}
	return dst, true
}

// tokens appends the token ids of an array. The items may be pairs, each of a
// token and the one after it: then the first ones are appended, and behind them
// the second of the last pair, which does not count as one of the n tokens.
func (r *reader) tokens(dst []uint32) (_ []uint32, n int, paired, ok bool) {
	n, ok = r.array()
	if !ok {
		return dst, 0, false, false
	}
	if n > 0 && r.next() == shapeArray {
		dst, ok = r.tokenPairs(dst, n)
		return dst, n, true, ok
	}
	left := n
	b, i := r.b, r.pos
	// Guessing the form of the next token pays, since most need two bytes: a
	// table without branches took twice as long on tokens of real frequencies.
usual:
	for ; left > 0 && i+5 <= len(b); left-- {
		switch c := b[i]; {
		case c == 0xcd:
			dst = append(dst, uint32(binary.BigEndian.Uint16(b[i+1:])))
			i += 3
		case c == 0xce:
			dst = append(dst, binary.BigEndian.Uint32(b[i+1:]))
			i += 5
		case c < 0x80:
			dst = append(dst, uint32(c))
			i++
		case c == 0xcc:
			dst = append(dst, uint32(b[i+1]))
			i += 2
		default:
			break usual
		}
	}
	r.pos = i
	for ; left > 0; left-- {
		t, ok := r.uint32()
		if !ok {
			return dst, 0, false, false
		}
		dst = append(dst, t)
	}
	return dst, n, false, true
}

// tokenPairs appends the tokens of n pairs.
func (r *reader) tokenPairs(dst []uint32, n int) ([]uint32, bool) {
	var second uint32
	for range n {
		size, ok := r.array()
		if !ok || size != 2 {
			return dst, false
		}
		first, ok := r.uint32()
		if !ok {
			return dst, false
		}
		if second, ok = r.uint32(); !ok {
			return dst, false
		}
		dst = append(dst, first)
	}
	return append(dst, second), true
}

// head is the way the length of a container is written: the byte of an empty
// small one, the size up to which it may be small, and the byte of one whose
// length has 16 bits, which that of 32 bits follows.
type head struct{ small, most, long byte }

var (
	headArray = head{0x90, 15, 0xdc}
	headMap   = head{0x80, 15, 0xde}
	headText  = head{0xa0, 31, 0xda}
)

func appendHead(b []byte, h head, n int) []byte {
	switch {
	case n <= int(h.most):
		return append(b, h.small|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, h.long), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, h.long+1), uint32(n))
}

func appendText(b []byte, s string) []byte { return append(appendHead(b, headText, len(s)), s...) }

func appendUint(b []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(b, byte(v))
	case v <= math.MaxUint8:
		return append(b, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}
