package kvstore

import (
	"encoding/binary"
	"time"

	"github.com/dynago/dynago/kvcache"
)

// tagSize is the length of what lies beside the bytes in the tiers that remember:
// the record of package kvcache, when the value expires, in unix milliseconds or
// 0, and its version.
const tagSize = kvcache.RecordSize + 16

// tag returns what is to be remembered of a part of u.
func (c *cache) tag(u *unit, p part, version int64, expires time.Duration) []byte {
	r := kvcache.NeutralRecord
	if p == whole {
		r = u.sp.order.Record(u.ref, c.zero)
		r.Epoch = u.epoch
	}
	b := r.Append(make([]byte, 0, tagSize))
	at := int64(0)
	if expires > 0 {
		at = c.zero.Add(expires).UnixMilli()
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	return binary.LittleEndian.AppendUint64(b, uint64(version))
}

// note is what a tag says.
type note struct {
	record  kvcache.Record
	expires int64 // unix milliseconds, or 0
	version int64
}

// readTag reads a tag. One that makes no sense, be it that it is of another
// version of the program, says nothing: the value is as good as any other.
func readTag(b []byte) note {
	if len(b) != tagSize {
		return note{record: kvcache.NeutralRecord}
	}
	r, _ := kvcache.DecodeRecord(b[:kvcache.RecordSize]) // what cannot be right is neutral
	n := note{r, int64(binary.LittleEndian.Uint64(b[kvcache.RecordSize:])), int64(binary.LittleEndian.Uint64(b[kvcache.RecordSize+8:]))}
	if n.expires < 0 || n.version < 0 {
		return note{record: r}
	}
	return n
}
