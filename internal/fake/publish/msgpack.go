package publish

import (
	"encoding/binary"
	"math"
)

// writer writes one event in MessagePack, as a map with the names of its fields
// or as an array without. Keys are numbers, signed or not, or bytes.
type writer struct {
	b                    []byte
	named, signed, bytes bool
}

func (w *writer) field(name string) *writer {
	if w.named {
		w.text(name)
	}
	return w
}

func (w *writer) null()         { w.b = append(w.b, 0xc0) }
func (w *writer) uint(v uint64) { w.b = appendUint(w.b, v) }
func (w *writer) pairs(n int)   { w.b = appendHead(w.b, n, 0x80, 16, 0, 0xde, 0xdf) }
func (w *writer) text(s string) {
	w.b = append(appendHead(w.b, len(s), 0xa0, 32, 0xd9, 0xda, 0xdb), s...)
}

func (w *writer) tokens(ids []uint32) {
	w.b = appendArray(w.b, len(ids))
	for _, id := range ids {
		w.b = appendUint(w.b, uint64(id))
	}
}

func (w *writer) keys(keys []uint64) {
	w.b = appendArray(w.b, len(keys))
	for _, k := range keys {
		w.key(k)
	}
}

func (w *writer) key(k uint64) {
	switch {
	case w.bytes:
		// A digest, of which the last bytes are the number.
		w.b = append(append(w.b, 0xc4, 32), make([]byte, 24)...)
		w.b = binary.BigEndian.AppendUint64(w.b, k)
	case w.signed && int64(k) < 0:
		w.b = binary.BigEndian.AppendUint64(append(w.b, 0xd3), k)
	default:
		w.b = appendUint(w.b, k)
	}
}

// extras writes what the keys of n blocks depend on besides tokens: the adapter's
// name for each, and the salt for the first of a chain.
func (w *writer) extras(t *told, n int) {
	if t.ns.LoRA == "" && (t.ns.Salt == "" || !t.head) {
		w.null()
		return
	}
	w.b = appendArray(w.b, n)
	for i := range n {
		var keys []string
		if t.ns.LoRA != "" {
			keys = append(keys, t.ns.LoRA)
		}
		if t.ns.Salt != "" && t.head && i == 0 {
			keys = append(keys, t.ns.Salt)
		}
		if len(keys) == 0 {
			w.null()
			continue
		}
		w.b = appendArray(w.b, len(keys))
		for _, k := range keys {
			w.text(k)
		}
	}
}

func appendArray(b []byte, n int) []byte { return appendHead(b, n, 0x90, 16, 0, 0xdc, 0xdd) }

func appendFloat(b []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
}

// appendHead writes a length: inside the byte small if it is below limit, else
// behind the byte for 8, 16 or 32 bits. 0 = there is no such form.
func appendHead(b []byte, n int, small byte, limit int, one, two, four byte) []byte {
	switch {
	case n < limit:
		return append(b, small|byte(n))
	case n <= math.MaxUint8 && one != 0:
		return append(b, one, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, two), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, four), uint32(n))
}

// appendUint writes a number in its shortest form.
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
