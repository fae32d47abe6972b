package kv

import (
	"encoding/binary"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// HashSeed is the seed of every hash that leaves this process: block content
// and chaining alike (XXH3-64).
const HashSeed = 1337

// Namespace separates blocks that hold the same tokens and yet must never be
// shared: those of different adapters, and those of different tenants.
type Namespace struct {
	LoRA string // adapter name; empty = base model
	Salt string // cache salt; empty = shared by all
}

// Seed returns the seed of the namespace's local hashes. It is [HashSeed] for
// the empty namespace. Chaining always uses HashSeed itself.
func (n Namespace) Seed() uint64 {
	seed := uint64(HashSeed)
	if n.LoRA != "" {
		seed += xxh3.HashStringSeed(n.LoRA, 0)
	}
	if n.Salt != "" {
		seed += xxh3.HashStringSeed(n.Salt, 1)
	}
	return seed
}

// AppendLocalHashes appends the local hash of every complete block of tokens
// and returns the extended slice. A tail shorter than blockSize has no hash. A
// blockSize of 0 yields nothing.
func AppendLocalHashes(dst []LocalHash, tokens []uint32, blockSize int, seed uint64) []LocalHash {
	return Scheme{BlockSize: blockSize, Seed: seed}.AppendLocal(dst, tokens)
}

// AppendSeqHashes appends the sequence hash of every block in local, which must
// begin at the root of a sequence.
func AppendSeqHashes(dst []SeqHash, local []LocalHash) []SeqHash {
	return Scheme{Chain: HashSeed}.AppendSeq(dst, local)
}

// Next returns the sequence hash of the block with content l that follows the
// block named by h. The first block of a sequence has SeqHash(local).
func (h SeqHash) Next(l LocalHash) SeqHash { return next(h, l, HashSeed) }

// HashBlock returns the local hash of exactly these tokens: XXH3-64 over their
// little-endian 32-bit forms.
func HashBlock(tokens []uint32, seed uint64) LocalHash {
	return LocalHash(xxh3.HashSeed(littleEndian(tokens), seed))
}

// littleEndian views tokens as bytes where the machine's own order is little
// endian, which is everywhere we run, and converts them elsewhere.
func littleEndian(tokens []uint32) []byte {
	if len(tokens) == 0 {
		return nil
	}
	if nativeLittleEndian {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), 4*len(tokens))
	}
	return convert(tokens)
}

// convert is littleEndian for machines with the other order.
func convert(tokens []uint32) []byte {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, t)
	}
	return b
}

var nativeLittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
