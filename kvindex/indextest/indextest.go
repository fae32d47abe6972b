// Package indextest proves an index of cached prefixes: it drives any
// implementation and a naive model with the same history and demands the same
// answers, errors and counters.
//
// The one idea: a history is plain data, drawn from a seed, from rapid or from
// the bytes of a fuzzer. So the same history can be replayed on two indexes,
// with its independent events in another order, with its keys renamed, or with
// most of it left out, until what remains is short enough to read.
package indextest

import (
	"flag"
	"iter"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// scale multiplies the length of the histories of [Run].
var (
	scale = flag.Int("indextest.scale", 1, "how many times as long the random histories are")
	seed  = flag.Uint64("indextest.seed", 1, "seed of the random histories")
)

// Index is what is proved. All methods may be called from any goroutine.
type Index interface {
	// Apply makes an event of a target part of the index; its errors are those
	// of kvindex.
	Apply(kv.Target, kv.Event) error
	RemoveTarget(kv.Target)
	RemoveWorker(id uint64)
	// Blocks is the number of keys that a target holds, on any tier.
	Blocks(kv.Target) int
	// Stats are compared in full, except for Nodes, which says what an
	// implementation is made of; it is 0 when nothing is held.
	Stats() kvindex.Stats
	// Matcher returns a function that matches, to be used by one goroutine. What
	// it returns is valid until its next call.
	Matcher() func(local []kv.LocalHash) []kvindex.Match
}

// What an index may do besides is proved of those that do it.
type (
	// Dumper can tell what a target holds, as events from which an empty index
	// learns the same.
	Dumper interface {
		Dump(kv.Target) iter.Seq[kv.Event]
	}
	// Tiered counts the keys of a target that are on a tier.
	Tiered interface {
		BlocksOn(kv.Target, kv.Tier) int
	}
	// Reserver makes room for as many blocks as a target says it can hold.
	Reserver interface {
		Reserve(t kv.Target, blocks int)
	}
)

// Run proves the implementation that open makes empty ones of.
func Run(t *testing.T, open func() Index) {
	t.Run("Histories", func(t *testing.T) { Histories(t, open) })
	t.Run("Fleets", func(t *testing.T) { fleets(t, open) })
	t.Run("Relations", func(t *testing.T) { relations(t, open) })
	t.Run("Readers", func(t *testing.T) { readers(t, open) })
	t.Run("Memory", func(t *testing.T) { memory(t, open) })
}
