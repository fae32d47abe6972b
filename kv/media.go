package kv

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// Media is one image, sound or video in a prompt.
type Media struct {
	Hash  uint64 // of its content
	Spans []Span // where its placeholders stand
}

// Span is a run of tokens or blocks, [Start, End).
type Span struct{ Start, End int }

// HashMediaBlock returns the local hash of a block whose placeholders stand for
// media with these hashes. The order of the media does not matter, and one that
// is named twice counts twice; none is [HashBlock].
func HashMediaBlock(tokens []uint32, media []uint64, seed uint64) LocalHash {
	if len(media) == 0 {
		return HashBlock(tokens, seed)
	}
	media = slices.Clone(media)
	slices.Sort(media)
	b := make([]byte, 0, 4*len(tokens)+8*len(media))
	b = append(b, littleEndian(tokens)...)
	for _, h := range media {
		b = binary.LittleEndian.AppendUint64(b, h)
	}
	return LocalHash(xxh3.HashSeed(b, seed))
}

// AppendLocalMedia is [Scheme.AppendLocal] for a prompt with media: a block's
// hash covers, beside its tokens, each of the media that has a token in it.
func (s Scheme) AppendLocalMedia(dst []LocalHash, tokens []uint32, media []Media) []LocalHash {
	n, window := s.Blocks(len(tokens)), s.window()
	if n == 0 || len(media) == 0 {
		return s.AppendLocal(dst, tokens)
	}
	in := make([][]uint64, n)
	counted := make([]int, n) // the last of the media counted in a block, from 1
	for which, m := range media {
		for _, at := range m.Spans {
			if at.Start >= at.End {
				continue
			}
			for i := max(0, at.Start/s.BlockSize); i < n && i*s.BlockSize < at.End; i++ {
				if counted[i] != which+1 {
					in[i] = append(in[i], m.Hash)
					counted[i] = which + 1
				}
			}
		}
	}
	for i := range n {
		dst = append(dst, HashMediaBlock(tokens[i*s.BlockSize:][:window], in[i], s.Seed))
	}
	return dst
}

// MediaToken returns the token that stands for media of this hash where engines
// put one number into every placeholder, instead of hashing the media beside
// the tokens. It is no token of a vocabulary.
func MediaToken(hash uint64) uint32 { return uint32(1_000_000 + hash&(1<<30-1)) }

// ReplaceMedia puts media tokens in the place of placeholders: the n-th run of
// them stands for the n-th of the media, and further runs for the last one.
// Without media nothing changes.
func ReplaceMedia(tokens []uint32, placeholder uint32, media []uint64) {
	if len(media) == 0 {
		return
	}
	run, inside := -1, false
	for i, t := range tokens {
		if t != placeholder {
			inside = false
			continue
		}
		if !inside {
			run, inside = min(run+1, len(media)-1), true
		}
		tokens[i] = MediaToken(media[run])
	}
}
