package indextest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// splits looks for moments at which a chain falls apart in the sight of readers.
// One worker holds a chain while another goes off it behind every block, which in
// a tree splits what readers are walking; others come, follow it for a while and
// leave. Whoever asks for the chain while it is held must find all of it, and of
// those who hold its beginning just that. But for the first block the chains of
// all rounds are alike, so that who strays into another finds other owners there.
func splits(t *testing.T, open func() Index) {
	const length = 64
	var (
		x       = open()
		rounds  = 1000 * int64(*scale) / slow
		held    atomic.Int64 // the newest round whose chain is held
		leaving atomic.Int64 // the newest round whose chain may be gone
		asked   atomic.Int64
		done    atomic.Bool
	)
	chain := func(round int64) []kv.Block {
		blocks := make([]kv.Block, length)
		for i := range blocks {
			n := uint64(round)<<16 | uint64(i)
			blocks[i] = kv.Block{Engine: kv.EngineHash(mix(n)), Local: kv.LocalHash(mix(uint64(i)))}
		}
		blocks[0].Local = kv.LocalHash(mix(uint64(round) << 16))
		return blocks
	}
	// The first of a round's owners has all of its chain, the others less and less.
	owner := func(round int64, i int) kv.Target {
		return kv.Target{Worker: uint64(round%3*10) + uint64(i)}
	}
	depth := func(i int) int { return length - 9*i }
	const owners = 6
	do := func(target kv.Target, kind kv.EventKind, blocks []kv.Block, under int) {
		e := kv.Event{Kind: kind, Blocks: blocks[under:]}
		if kind == kv.Stored && under > 0 {
			e.HasParent, e.Parent = true, blocks[under-1].Engine
		}
		if err := x.Apply(target, e); err != nil {
			t.Error(err)
		}
	}

	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			match := x.Matcher()
			var local [length]kv.LocalHash
			for last := int64(0); !done.Load(); {
				round := held.Load()
				if round != last {
					for i, b := range chain(round) {
						local[i] = b.Local
					}
					last = round
				}
				found := match(local[:])
				asked.Add(1)
				if round == 0 || leaving.Load() >= round {
					continue
				}
				for i := range owners {
					want := kvindex.Match{Target: owner(round, i), Blocks: [4]int32{int32(depth(i))}}
					if !slices.Contains(found, want) {
						t.Errorf("round %d: found %v, want %v", round, found, want)
						return
					}
				}
			}
		})
	}
	for round := int64(1); round <= rounds || asked.Load() < 100; round++ {
		blocks := chain(round)
		for i := range owners {
			do(owner(round, i), kv.Stored, blocks[:depth(i)], 0)
		}
		held.Store(round)

		second, third := kv.Target{Worker: 100}, kv.Target{Worker: 200 + uint64(round)}
		do(second, kv.Stored, blocks[:length/2], 0)
		for at := length / 2; at < length; at++ {
			do(second, kv.Stored, blocks[:at+1], at)
		}
		for at := length - 1; at > 0; at-- {
			aside := append(blocks[:at:at], kv.Block{Engine: kv.EngineHash(round<<16 + int64(at)), Local: kv.LocalHash(at)})
			do(second, kv.Stored, aside, at)
			if at%8 == 0 {
				do(third, kv.Stored, blocks[:at], 0)
				do(second, kv.Removed, aside, at)
			}
		}
		x.RemoveWorker(third.Worker)
		if round%2 == 0 {
			x.RemoveTarget(second)
		}
		if round > 1 {
			leaving.Store(round - 1)
			for i := range owners {
				do(owner(round-1, i), kv.Removed, chain(round - 1)[:depth(i)], 0)
			}
		}
		if t.Failed() {
			break
		}
	}
	done.Store(true)
	readers.Wait()
}
