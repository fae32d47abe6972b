package kv

import "encoding/binary"

// Lineage names a block by its prefix and by where it stands, so that a store
// can tell apart what 64 bits alone might confuse. On the wire it is 16 bytes,
// most significant first, as [Lineage.Bytes] returns them.
type Lineage struct{ High, Low uint64 }

// Bytes returns the wire form.
func (l Lineage) Bytes() [16]byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], l.High)
	binary.BigEndian.PutUint64(b[8:], l.Low)
	return b
}

// LineageHash names the block at a position by its sequence hash and a part of
// its parent's, which is 0 at the root. Positions have 24 bits; it reports false
// for one that has more.
func LineageHash(position uint32, seq, parent SeqHash) (Lineage, bool) {
	mode, bits := positionMode(position)
	if mode == 3 {
		return Lineage{}, false
	}
	// From the top: mode (2 bits), position, the sequence hash, and in what is
	// left the low bits of the parent's.
	rest := 62 - bits
	return Lineage{
		High: mode<<62 | uint64(position)<<rest | uint64(seq)>>(64-rest),
		Low:  uint64(seq)<<rest | uint64(parent)&(1<<rest-1),
	}, true
}

// PositionalHash names the block at a position by its sequence hash, in Low, and
// a part of its content's hash. Positions have 31 bits; it reports false for one
// that has more.
func PositionalHash(position uint32, seq SeqHash, local LocalHash) (Lineage, bool) {
	if position >= 1<<31 {
		return Lineage{}, false
	}
	mode, bits := positionMode(position)
	rest := 62 - bits
	return Lineage{High: mode<<62 | uint64(position)<<rest | uint64(local)&(1<<rest-1), Low: uint64(seq)}, true
}

// positionMode returns the smallest field that a position fits in.
func positionMode(position uint32) (mode uint64, bits int) {
	switch {
	case position < 1<<8:
		return 0, 8
	case position < 1<<16:
		return 1, 16
	case position < 1<<24:
		return 2, 24
	}
	return 3, 31
}
