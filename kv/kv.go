// Package kv is the vocabulary of cached tokens: blocks and their hashes, the
// tiers they lie on, the events that tell of them, and what a request asks of
// the cache. Router, index, block manager and engines speak it; it imports
// nothing of ours and does no I/O.
//
// The one idea: a KV block is named by what it holds. A [LocalHash] names the
// tokens of one block alone, a [SeqHash] names a block together with everything
// before it, and both are computed the same way by everyone, so that a prompt
// can be compared with the caches of a whole fleet without looking at a token
// twice.
package kv

import (
	"cmp"
	"fmt"
)

// LocalHash identifies the content of one block, whatever stands before it.
type LocalHash uint64

// SeqHash identifies a whole prefix up to and including one block.
type SeqHash uint64

// EngineHash is an engine's own key for a block. It is opaque, and unique only
// within one [Target].
type EngineHash uint64

// Block is one cached block as events tell of it.
type Block struct {
	Engine EngineHash // the engine's key, which a later removal will name
	Local  LocalHash  // content of the block
}

// Target is one data-parallel rank of one worker: a place that holds blocks and
// can be given work. Worker ids stay below 2^53, so that JSON clients with
// double precision can carry them.
type Target struct {
	Worker uint64
	Rank   uint32
}

// String returns "worker/rank" in decimal.
func (t Target) String() string { return fmt.Sprintf("%d/%d", t.Worker, t.Rank) }

// Compare orders targets by worker, then by rank, as cmp.Compare does.
func (t Target) Compare(o Target) int {
	return cmp.Or(cmp.Compare(t.Worker, o.Worker), cmp.Compare(t.Rank, o.Rank))
}

// Tier says on which kind of memory a block lies, fastest first.
type Tier uint8

// The tiers, with the names they have on the wire.
const (
	TierDevice Tier = iota // device: the engine's own accelerator memory (G1)
	TierHost               // host_pinned: host memory of the worker (G2)
	TierDisk               // disk: a local disk of the worker (G3)
	TierShared             // external: a store shared by several workers (G4)
)

var tierNames = [...]string{"device", "host_pinned", "disk", "external"}

// String returns the wire name.
func (t Tier) String() string {
	if int(t) < len(tierNames) {
		return tierNames[t]
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}
