package kvstore

import "strings"

// What LMCache appends to the key of a chunk, for its bytes and for the line that
// says what they are.
const (
	bytesSuffix    = "kv_bytes"
	metadataSuffix = "metadata"
)

// part is which half of a pair a key names; a key that is no half is whole.
type part int

const (
	whole part = iota
	metadata
)

// splitKey returns the name of the unit that key belongs to, which part of it key
// is, and whether it is a pair, whose name is the key of its bytes. Only keys in
// the form of LMCache's are parts of pairs,
//
//	model@world_size@worker_id@chunk_hash@dtype[@tag%value…]
//
// and any other is a unit of its own.
func splitKey(key string) (name string, p part, paired bool) {
	if stem, ok := strings.CutSuffix(key, metadataSuffix); ok && isChunk(stem) {
		return stem + bytesSuffix, metadata, true
	}
	stem, ok := strings.CutSuffix(key, bytesSuffix)
	return key, whole, ok && isChunk(stem)
}

func isChunk(stem string) bool { return strings.Count(stem, "@") >= 4 }

// chunkOf returns the model and the hash in the name of a pair.
func chunkOf(name string) chunk {
	f := strings.SplitN(name, "@", 5)
	return chunk{f[0], f[3]}
}

// chunk is the tokens that a pair is the KV of, in whatever layout.
type chunk struct{ model, hash string }
