package trace

import (
	"github.com/dynago/dynago/kv"
)

// NewReplay returns the hashes of a prompt: one for each block of so many tokens, the
// last of which may have fewer. They name what is to be computed and nothing that is
// cached: neither adapters nor salts are mixed in, and so alike prompts of different
// tenants are alike here. It looks at each token once, and at none of the first whole
// blocks whose hashes are known, as those are that the router has made outside all
// namespaces.
func NewReplay(tokens []uint32, blockSize int, known ...kv.SeqHash) *Replay {
	if blockSize <= 0 {
		return nil
	}
	r := new(Replay)
	r.Fill(tokens, blockSize, known...)
	return r
}

// Fill is [NewReplay] where there is one, whose room for hashes is used. Its blocks have
// at least one token.
func (r *Replay) Fill(tokens []uint32, blockSize int, known ...kv.SeqHash) {
	r.BlockSize, r.InputLength = blockSize, len(tokens)
	if n := (len(tokens) + blockSize - 1) / blockSize; r.Hashes == nil || cap(r.Hashes) < n {
		r.Hashes = make([]uint64, 0, n)
	}
	r.Hashes = r.Hashes[:0]
	var last kv.SeqHash
	for _, last = range known[:min(len(known), len(tokens)/blockSize)] {
		r.Hashes = append(r.Hashes, uint64(last))
	}
	for at := len(r.Hashes) * blockSize; at < len(tokens); at += blockSize {
		block := kv.HashBlock(tokens[at:min(at+blockSize, len(tokens))], kv.HashSeed)
		if at == 0 {
			last = kv.SeqHash(block)
		} else {
			last = last.Next(block)
		}
		r.Hashes = append(r.Hashes, uint64(last))
	}
}
