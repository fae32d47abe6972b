package kv

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// Scheme is one way to cut tokens into blocks and to name these. Who shares a
// scheme agrees on every hash. The zero value cuts nothing.
type Scheme struct {
	BlockSize int // tokens
	// Eagle lets each local hash cover the first token of the next block too, as
	// engines need it that draft from pairs of tokens. The last block is then
	// complete only with one token more.
	Eagle bool
	// Seed is that of local hashes, Chain that of sequence hashes.
	Seed, Chain uint64
}

// PublicScheme returns the scheme of what leaves this process, which index,
// events and engines share.
func PublicScheme(blockSize int, ns Namespace) Scheme {
	return Scheme{BlockSize: blockSize, Seed: ns.Seed(), Chain: HashSeed}
}

// Blocks returns how many complete blocks so many tokens have.
func (s Scheme) Blocks(tokens int) int {
	if s.BlockSize <= 0 {
		return 0
	}
	return max(0, tokens-s.window()+s.BlockSize) / s.BlockSize
}

// window is how many tokens a local hash covers.
func (s Scheme) window() int {
	if s.Eagle {
		return s.BlockSize + 1
	}
	return s.BlockSize
}

// AppendLocal appends the local hash of every complete block of tokens to dst.
func (s Scheme) AppendLocal(dst []LocalHash, tokens []uint32) []LocalHash {
	n, window := s.Blocks(len(tokens)), s.window()
	dst = slices.Grow(dst, n)
	for i := range n {
		dst = append(dst, HashBlock(tokens[i*s.BlockSize:][:window], s.Seed))
	}
	return dst
}

// AppendSeq appends the sequence hash of every block in local, which begin at
// the root, to dst.
func (s Scheme) AppendSeq(dst []SeqHash, local []LocalHash) []SeqHash {
	if len(local) == 0 {
		return dst
	}
	return s.AppendSeqAfter(append(slices.Grow(dst, len(local)), SeqHash(local[0])), SeqHash(local[0]), local[1:])
}

// AppendSeqAfter is [Scheme.AppendSeq] for blocks that continue the prefix
// named parent.
func (s Scheme) AppendSeqAfter(dst []SeqHash, parent SeqHash, local []LocalHash) []SeqHash {
	for _, l := range local {
		parent = next(parent, l, s.Chain)
		dst = append(dst, parent)
	}
	return dst
}

// next chains with any seed.
func next(h SeqHash, l LocalHash, seed uint64) SeqHash {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], uint64(h))
	binary.LittleEndian.PutUint64(b[8:], uint64(l))
	return SeqHash(xxh3.HashSeed(b[:], seed))
}
