package kvcache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// RecordSize is the length of an encoded [Record].
const RecordSize = 40

// Record is what travels with a block's bytes from tier to tier and worker to
// worker: what was asked for it. Deadlines are unix milliseconds, so that they
// mean the same everywhere; 0 = none.
type Record struct {
	Priority         uint8
	Ephemeral        bool
	HardPin, SoftPin bool
	SkipWrite        bool
	PriorityDeadline int64
	PinDeadline      int64
	Session          SessionID // the one that has tagged the block first, or 0
	// Epoch orders updates: the greater one wins.
	Epoch uint32
	// Parent is for the store that keeps the record: a part of its parent's key.
	Parent uint32
}

// NeutralRecord is the record of a block of which nothing is known.
var NeutralRecord = Record{Priority: Neutral}

// Flags of an encoded record.
const (
	recordHard = 1 << iota
	recordSoft
	recordSkip
	recordFlags = recordHard | recordSoft | recordSkip
)

// Append appends the record's 40 bytes: priority, class, flags, a zero, then, all
// least byte first, deadlines of priority and pin, session, epoch and parent, and
// four zeros.
func (r Record) Append(dst []byte) []byte {
	var flags, class byte
	if r.HardPin {
		flags |= recordHard
	}
	if r.SoftPin {
		flags |= recordSoft
	}
	if r.SkipWrite {
		flags |= recordSkip
	}
	if r.Ephemeral {
		class = 1
	}
	dst = append(dst, r.Priority, class, flags, 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.PriorityDeadline))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.PinDeadline))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Session))
	dst = binary.LittleEndian.AppendUint32(dst, r.Epoch)
	dst = binary.LittleEndian.AppendUint32(dst, r.Parent)
	return append(dst, 0, 0, 0, 0)
}

// DecodeRecord reads what Append has written. A record that cannot be right is an
// error and is read as the neutral one, which is how the block is then to be
// kept.
func DecodeRecord(b []byte) (Record, error) {
	if len(b) != RecordSize {
		return NeutralRecord, fmt.Errorf("kvcache: retention record of %d bytes, want %d", len(b), RecordSize)
	}
	if b[0] > MaxPriority {
		return NeutralRecord, fmt.Errorf("kvcache: retention record with priority %d, want at most %d", b[0], MaxPriority)
	}
	if b[1] > 1 || b[2]&^recordFlags != 0 || b[3] != 0 || binary.LittleEndian.Uint32(b[36:]) != 0 {
		return NeutralRecord, errors.New("kvcache: retention record with a class, flag or filler that is unknown")
	}
	r := Record{
		Priority: b[0], Ephemeral: b[1] == 1,
		HardPin: b[2]&recordHard != 0, SoftPin: b[2]&recordSoft != 0, SkipWrite: b[2]&recordSkip != 0,
		PriorityDeadline: int64(binary.LittleEndian.Uint64(b[4:])),
		PinDeadline:      int64(binary.LittleEndian.Uint64(b[12:])),
		Session:          SessionID(binary.LittleEndian.Uint64(b[20:])),
		Epoch:            binary.LittleEndian.Uint32(b[28:]),
		Parent:           binary.LittleEndian.Uint32(b[32:]),
	}
	if r.PriorityDeadline < 0 || r.PinDeadline < 0 || (r.HardPin || r.SoftPin) != (r.PinDeadline > 0) {
		return NeutralRecord, errors.New("kvcache: retention record with a pin and a deadline that contradict each other")
	}
	return r, nil
}

// Record returns what is to travel with a published block. Zero is the moment
// from which the pool's time is counted. Parent is left to the caller.
func (k *keeper) Record(r Ref, zero time.Time) Record {
	i := k.original(r)
	b := &k.blocks[i]
	x := NeutralRecord
	x.Ephemeral, x.SkipWrite = b.flags&ephemeral != 0, b.flags&skipWrite != 0
	if tags := k.owners(i); len(tags) > 0 {
		x.Session = k.sessions[tags[0]-1].id
	}
	if b.flags&noted == 0 {
		return x
	}
	n := k.notes.at(k.noteOf[i])
	x.Priority, x.Epoch = n.priority, n.epoch
	switch {
	case n.until > 0:
		x.PriorityDeadline = unixMilli(zero, n.until)
	case n.ttl > 0:
		x.PriorityDeadline = unixMilli(zero, k.after(n.ttl))
	}
	if until, hard := k.pinOf(i); until > 0 {
		x.HardPin, x.SoftPin, x.PinDeadline = hard, !hard, unixMilli(zero, until)
	}
	return x
}

func unixMilli(zero time.Time, at time.Duration) int64 { return max(zero.Add(at).UnixMilli(), 1) }

// epochOf returns the epoch of the latest record that was applied to a block.
func (k *keeper) epochOf(i int32) uint32 {
	if k.blocks[i].flags&noted == 0 {
		return 0
	}
	return k.notes.at(k.noteOf[i]).epoch
}

// update applies a later record to a block, and takes away what it does not ask for.
func (k *keeper) update(i int32, r Record, zero time.Time) bool {
	if r.Epoch <= k.epochOf(i) {
		return false
	}
	if !r.Ephemeral && !r.SkipWrite {
		k.raise(i)
	}
	if r.PinDeadline == 0 || k.timeTo(r.PinDeadline, zero) <= 0 {
		k.unpinOwner(i, r.Session)
	}
	if r.PriorityDeadline > 0 && k.timeTo(r.PriorityDeadline, zero) <= 0 {
		k.retain(i, Retention{Priority: Neutral})
	}
	k.inherit(i, r, zero)
	return true
}

// inherit applies a record to a block, unless it has a later one.
func (k *keeper) inherit(i int32, r Record, zero time.Time) {
	if r.Epoch < k.epochOf(i) {
		return
	}
	if r.Epoch > 0 {
		k.noteFor(i).epoch = r.Epoch
	}
	if ttl := k.timeTo(r.PriorityDeadline, zero); r.PriorityDeadline == 0 {
		k.retain(i, Retention{Priority: r.Priority})
	} else if ttl > 0 {
		k.retain(i, Retention{Priority: r.Priority, TTL: ttl})
	}
	if r.Ephemeral && k.ownedBy(i, r.Session) {
		k.lower(i, false)
	} else if r.SkipWrite {
		k.wish()
		k.blocks[i].flags |= skipWrite
	}
	if ttl := k.timeTo(r.PinDeadline, zero); r.PinDeadline > 0 && ttl > 0 {
		k.pinPath([]int32{i}, Pin{Owner: r.Session, TTL: ttl, Hard: r.HardPin}, k.room())
	}
	if n, ok := k.byID[r.Session]; ok && r.Session != 0 {
		k.tag(i, n)
	}
}

// timeTo returns how much time there is until a deadline of a record.
func (k *keeper) timeTo(deadline int64, zero time.Time) time.Duration {
	ms := deadline - zero.UnixMilli()
	if ms > int64(never/time.Millisecond) {
		return never
	}
	return time.Duration(ms)*time.Millisecond - k.now
}
