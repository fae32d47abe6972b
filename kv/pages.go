package kv

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// PageHash names a page of SGLang's hierarchical cache, prefix and all.
type PageHash [sha256.Size]byte

// String returns the hash in lower-case hexadecimal, as keys of shared stores
// have it.
func (h PageHash) String() string { return hex.EncodeToString(h[:]) }

// AppendPageHashes appends the hash of every complete page of tokens to dst.
// With eagle a page holds pairs of neighbours instead of tokens, so that the
// last token is in no pair of its own.
func AppendPageHashes(dst []PageHash, tokens []uint32, pageSize int, eagle bool) []PageHash {
	if pageSize <= 0 {
		return dst
	}
	units := len(tokens)
	if eagle {
		units = max(0, units-1)
	}
	var parent PageHash
	var page []byte
	for i := range units / pageSize {
		page = page[:0]
		if i > 0 {
			page = append(page, parent[:]...)
		}
		for j := i * pageSize; j < (i+1)*pageSize; j++ {
			page = binary.LittleEndian.AppendUint32(page, tokens[j])
			if eagle {
				page = binary.LittleEndian.AppendUint32(page, tokens[j+1])
			}
		}
		parent = sha256.Sum256(page)
		dst = append(dst, parent)
	}
	return dst
}
