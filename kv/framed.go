package kv

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// MediaRun is a run of placeholders in a block, as the block manager of the
// reference sees it.
type MediaRun struct {
	At     int    // first placeholder in the block
	Length int    // placeholders in the block
	Offset uint32 // how many of the media's placeholders stand before those
	Media  uint64 // hash of the media
}

// HashFramedBlock returns the hash by which the reference's block manager, but
// not its router, names a block with media: every token and placeholder is a
// frame of 13 bytes that says which of the two it is. The runs are ordered, do
// not overlap, and lie in the block. A block without any has its ordinary
// [HashBlock].
func HashFramedBlock(tokens []uint32, runs []MediaRun, seed uint64) LocalHash {
	if len(runs) == 0 {
		return HashBlock(tokens, seed)
	}
	b := make([]byte, 0, 13*len(tokens))
	frame := func(kind byte, value uint32, media uint64) {
		b = append(b, kind)
		b = binary.LittleEndian.AppendUint32(b, value)
		b = binary.LittleEndian.AppendUint64(b, media)
	}
	for at := 0; at < len(tokens); at++ {
		if len(runs) == 0 || at != runs[0].At {
			frame(0, tokens[at], 0)
			continue
		}
		r := runs[0]
		runs = runs[1:]
		for i := range r.Length {
			frame(1, r.Offset+uint32(i), r.Media)
		}
		at += r.Length - 1
	}
	return LocalHash(xxh3.HashSeed(b, seed))
}
