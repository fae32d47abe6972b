package trace

import (
	"github.com/dynago/dynago/kv"
)

// NewReplay returns the hashes of a prompt: one for each block of so many tokens, the
// last of which may have fewer. They name what is to be computed and nothing that is
// cached: neither adapters nor salts are mixed in, and so alike prompts of different
// tenants are alike here. It looks at each token once.
func NewReplay(tokens []uint32, blockSize int) *Replay {
	if blockSize <= 0 {
		return nil
	}
	hashes := make([]uint64, 0, (len(tokens)+blockSize-1)/blockSize)
	var last kv.SeqHash
	for at := 0; at < len(tokens); at += blockSize {
		block := kv.HashBlock(tokens[at:min(at+blockSize, len(tokens))], kv.HashSeed)
		if at == 0 {
			last = kv.SeqHash(block)
		} else {
			last = last.Next(block)
		}
		hashes = append(hashes, uint64(last))
	}
	return &Replay{BlockSize: blockSize, InputLength: len(tokens), Hashes: hashes}
}
