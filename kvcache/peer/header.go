package peer

import (
	"encoding/binary"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/dynago/dynago/kvcache/store"
)

const (
	headMagic  = 0x31706b64 // dkp1
	headLength = 36
)

// header describes a value at a peer.
//
//	 0  u64  XXH3 of all that follows
//	 8  u32  magic
//	12  i64  length of the value
//	20  u64  XXH3 of the value
//	28  i64  when it was put, in unix milliseconds
//	36       tag
//
// Numbers are little-endian.
type header struct {
	size   int64
	sum    uint64
	stored int64
	tag    []byte
}

func (h header) entry(key string) store.Entry {
	return store.Entry{Key: key, Size: h.size, Tag: h.tag, Stored: time.UnixMilli(h.stored)}
}

func (h header) encode() []byte {
	b := make([]byte, headLength, headLength+len(h.tag))
	binary.LittleEndian.PutUint32(b[8:], headMagic)
	binary.LittleEndian.PutUint64(b[12:], uint64(h.size))
	binary.LittleEndian.PutUint64(b[20:], h.sum)
	binary.LittleEndian.PutUint64(b[28:], uint64(h.stored))
	b = append(b, h.tag...)
	binary.LittleEndian.PutUint64(b, xxh3.Hash(b[8:]))
	return b
}

// decodeHeader reads a header. ok is false if it is none of ours.
func decodeHeader(b []byte) (h header, ok bool) {
	if len(b) < headLength || len(b) > headLength+store.MaxTag ||
		binary.LittleEndian.Uint32(b[8:]) != headMagic || binary.LittleEndian.Uint64(b) != xxh3.Hash(b[8:]) {
		return header{}, false
	}
	h = header{
		size:   int64(binary.LittleEndian.Uint64(b[12:])),
		sum:    binary.LittleEndian.Uint64(b[20:]),
		stored: int64(binary.LittleEndian.Uint64(b[28:])),
	}
	if len(b) > headLength {
		h.tag = b[headLength:]
	}
	return h, h.size >= 0
}
