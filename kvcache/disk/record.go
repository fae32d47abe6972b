package disk

import (
	"encoding/binary"
	"errors"

	"github.com/zeebo/xxh3"

	"github.com/dynago/dynago/kvcache/extent"
	"github.com/dynago/dynago/kvcache/store"
)

const (
	// slot is the length of a record on disk.
	slot = 512
	// head is what stands before the key.
	head = 64
	// magic begins a record, and changes with its form.
	magic = 0x31766b64 // dkv1
	// maxKey leaves room for the longest tag and the most parts.
	maxKey = slot - head - store.MaxTag - maxParts*8
)

// record is what the disk knows of a value.
//
//	 0  u64  XXH3 of all that follows
//	 8  u32  magic
//	12  u16  length of the key
//	14  u8   length of the tag
//	15  u8   runs of pages; 0: the value itself is at the end
//	16  u64  number of the record
//	24  u64  number of the record with which the value was put
//	32  i64  when, in unix milliseconds
//	40  i64  length of the value
//	48  u64  XXH3 of the value
//	56  …    zero
//	64       key, tag, then runs (u32 page, u32 pages) or the value, then zeros
//
// Numbers are little-endian.
type record struct {
	key    string
	tag    []byte
	seq    uint64
	put    uint64 // seq at the time of the Put; a Retag leaves it
	stored int64
	size   int64
	sum    uint64
	runs   []extent.Run
	inline []byte // the value, if there are no runs
}

// fitsInline reports whether a value of n bytes can lie in its record, whatever
// its tag will be.
func fitsInline(key string, n int) bool {
	return n <= slot-head-len(key)-store.MaxTag
}

// encode returns the form of r on disk. Key and tag have been checked.
func (r *record) encode() *[slot]byte {
	var b [slot]byte
	binary.LittleEndian.PutUint32(b[8:], magic)
	binary.LittleEndian.PutUint16(b[12:], uint16(len(r.key)))
	b[14], b[15] = byte(len(r.tag)), byte(len(r.runs))
	binary.LittleEndian.PutUint64(b[16:], r.seq)
	binary.LittleEndian.PutUint64(b[24:], r.put)
	binary.LittleEndian.PutUint64(b[32:], uint64(r.stored))
	binary.LittleEndian.PutUint64(b[40:], uint64(r.size))
	binary.LittleEndian.PutUint64(b[48:], r.sum)
	at := head
	at += copy(b[at:], r.key)
	at += copy(b[at:], r.tag)
	for _, run := range r.runs {
		binary.LittleEndian.PutUint32(b[at:], run.Start)
		binary.LittleEndian.PutUint32(b[at+4:], run.Units)
		at += 8
	}
	if len(r.runs) == 0 {
		copy(b[at:], r.inline)
	}
	binary.LittleEndian.PutUint64(b[:], xxh3.Hash(b[8:]))
	return &b
}

var errTorn = errors.New("no record")

// decode reads a record from b, which has the length of a slot. It keeps
// nothing of b.
func decode(b []byte) (*record, error) {
	if len(b) != slot || binary.LittleEndian.Uint32(b[8:]) != magic || binary.LittleEndian.Uint64(b) != xxh3.Hash(b[8:]) {
		return nil, errTorn
	}
	keyLen, tagLen, runs := int(binary.LittleEndian.Uint16(b[12:])), int(b[14]), int(b[15])
	r := &record{
		seq:    binary.LittleEndian.Uint64(b[16:]),
		put:    binary.LittleEndian.Uint64(b[24:]),
		stored: int64(binary.LittleEndian.Uint64(b[32:])),
		size:   int64(binary.LittleEndian.Uint64(b[40:])),
		sum:    binary.LittleEndian.Uint64(b[48:]),
	}
	if keyLen > maxKey || tagLen > store.MaxTag || runs > maxParts || r.size < 0 || r.put > r.seq {
		return nil, errTorn
	}
	at := head
	r.key = string(b[at : at+keyLen])
	at += keyLen
	if tagLen > 0 {
		r.tag = append(r.tag, b[at:at+tagLen]...)
	}
	at += tagLen
	if runs == 0 {
		if r.size > int64(slot-at) {
			return nil, errTorn
		}
		r.inline = append([]byte{}, b[at:at+int(r.size)]...)
		return r, nil
	}
	var pages int64
	for range runs {
		run := extent.Run{Start: binary.LittleEndian.Uint32(b[at:]), Units: binary.LittleEndian.Uint32(b[at+4:])}
		if run.Units == 0 {
			return nil, errTorn
		}
		r.runs = append(r.runs, run)
		pages += int64(run.Units)
		at += 8
	}
	if pages != pagesOf(r.size) {
		return nil, errTorn
	}
	return r, nil
}

// pagesOf returns how many pages n bytes take.
func pagesOf(n int64) int64 { return n/page + min(1, n%page) }

// pages returns how many pages r takes.
func (r *record) pages() int64 {
	var n int64
	for _, run := range r.runs {
		n += int64(run.Units)
	}
	return n
}
