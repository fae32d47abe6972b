package kvevent

import "github.com/dynago/dynago/kv"

// told is one event as an engine tells it, taken apart and not yet judged. Its
// texts are runs of the payload; its hashes and tokens are runs of the decoder's
// own.
type told struct {
	kind           EventType
	hashes, tokens run
	// paired says that behind the tokens, and not counted among them, stands the
	// one that follows the last.
	paired    bool
	parent    kv.EngineHash
	hasParent bool
	blockSize uint64
	adapter   bool // the blocks are an adapter's, going by its number
	lora      run  // the adapter's name
	salt      run
	extra     run // msgpack: per block what else its key depends on
	media     run // msgpack: per block its media
	tier      kv.Tier
	lost      bool // the medium is no tier
	group     uint32
	hasGroup  bool
	attention attention
	remote    bool
	owner     owner
	has       uint32 // bit per field that its type cannot do without
}

// run is a part of something longer. A payload fits its numbers by far.
type run struct{ from, to uint32 }

func (r run) len() int { return int(r.to - r.from) }

// part returns what a run of s names.
func part[T any](s []T, r run) []T { return s[r.from:r.to] }

// attention is the kind of attention that blocks serve.
type attention uint8

const (
	attentionUntold  attention = iota
	attentionMain              // over the whole prompt
	attentionOther             // of a window, a state, an encoder
	attentionUnknown           // told, in a word we do not know
)

func attentionOf(s []byte) attention {
	switch string(s) {
	case "full_attention", "mla_attention", "sink_full_attention":
		return attentionMain
	case "sliding_window", "sliding_window_mla", "mamba", "chunked_local_attention", "encoder_only_attention", "cross_attention":
		return attentionOther
	}
	return attentionUnknown
}

// owner is whom blocks belong to.
type owner uint8

const (
	ownerEngine owner = iota // told or not
	ownerCache               // a cache beside the engine
	ownerUnknown
)

func ownerOf(s []byte) owner {
	if string(s) == "kvcr" {
		return ownerCache
	}
	return ownerUnknown
}

// tierOf returns the tier that an engine's word for a medium stands for.
func tierOf(medium []byte) (kv.Tier, bool) {
	if string(medium) == "GPU" { // nearly always
		return kv.TierDevice, true
	}
	var upper [16]byte
	if len(medium) > len(upper) {
		return 0, false
	}
	for i, c := range medium {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper[i] = c
	}
	switch string(upper[:len(medium)]) {
	case "", "GPU", "DEVICE":
		return kv.TierDevice, true
	case "CPU", "CPU_PINNED", "CPU_TIER1":
		return kv.TierHost, true
	case "CPU_TIER2", "DISK", "NVME", "STORAGE", "FS":
		return kv.TierDisk, true
	case "EXTERNAL", "NETWORK", "REMOTE", "SHARED", "OBJ":
		return kv.TierShared, true
	}
	return 0, false
}
