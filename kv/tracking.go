package kv

import (
	"encoding/binary"
	"fmt"
	"strings"

	"lukechampine.com/blake3"
)

// TrackingKey keeps secret what a router's books tell of prompts. The hashes by
// which it counts blocks in use are then of no use to anyone who does not have
// the key, and those of different models and tenants have nothing in common.
type TrackingKey struct {
	id  string
	key [32]byte
}

// NewTrackingKey returns the key of exactly 32 bytes with this name, which says
// which of several keys made a hash.
func NewTrackingKey(key []byte, id string) (TrackingKey, error) {
	k := TrackingKey{id: id}
	if len(key) != len(k.key) {
		return k, fmt.Errorf("tracking key: %d bytes, want exactly %d", len(key), len(k.key))
	}
	if id == "" || strings.TrimSpace(id) != id {
		return k, fmt.Errorf("tracking key: id %q must not be empty, nor have blanks around it", id)
	}
	copy(k.key[:], key)
	return k, nil
}

// Scheme returns the scheme of one model in one routing group.
func (k TrackingKey) Scheme(model, group string, blockSize int, ns Namespace, eagle bool) Scheme {
	h := blake3.New(32, k.key[:])
	field := func(tag byte, value string) {
		b := append(make([]byte, 0, 9+len(value)), tag)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
		h.Write(append(b, value...))
	}
	optional := func(tag byte, value string) {
		if value == "" {
			h.Write([]byte{tag, 0})
			return
		}
		b := binary.LittleEndian.AppendUint64([]byte{tag, 1}, uint64(len(value)))
		h.Write(append(b, value...))
	}
	h.Write([]byte("dynamo.router.tracking-hash/keyed-xxh3-v1\x00"))
	field(1, k.id)
	field(2, model)
	field(3, group)
	field(4, string(binary.LittleEndian.AppendUint32(nil, uint32(blockSize))))
	optional(5, ns.Salt)
	optional(6, ns.LoRA)
	field(7, map[bool]string{false: "\x00", true: "\x01"}[eagle])
	sum := h.Sum(nil)
	return Scheme{
		BlockSize: blockSize,
		Eagle:     eagle,
		Seed:      binary.LittleEndian.Uint64(sum[:8]),
		Chain:     binary.LittleEndian.Uint64(sum[8:16]),
	}
}
