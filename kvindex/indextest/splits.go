package indextest

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// splits looks for moments at which a chain falls apart in the sight of readers.
// One worker holds a chain while another goes off it behind every block, which in
// a tree splits what readers are walking; others come, follow it for a while and
// leave. Whoever asks for the chain while it is held must find all of it.
func splits(t *testing.T, open func() Index) {
	const length = 64
	var (
		x      = open()
		rounds = 1500 * int64(*scale) / slow
		owner  = kv.Target{Worker: 1}

		held    atomic.Int64 // the newest round whose chain is held
		leaving atomic.Int64 // the newest round whose chain may be gone
		asked   atomic.Int64
		done    atomic.Bool
	)
	chain := func(round int64) []kv.Block {
		blocks := make([]kv.Block, length)
		for i := range blocks {
			n := uint64(round)<<16 | uint64(i)
			blocks[i] = kv.Block{Engine: kv.EngineHash(mix(n)), Local: kv.LocalHash(mix(n))}
		}
		return blocks
	}
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
				if i := indexOf(found, owner); i < 0 || found[i].Blocks != [4]int32{length} {
					t.Errorf("round %d: found %v, want %d blocks of %v", round, found, length, owner)
					return
				}
			}
		})
	}
	for round := int64(1); round <= rounds || asked.Load() < 100; round++ {
		blocks := chain(round)
		do(owner, kv.Stored, blocks, 0)
		held.Store(round)

		second, third := kv.Target{Worker: 2}, kv.Target{Worker: uint64(round)<<8 | 3}
		do(second, kv.Stored, blocks, 0)
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
			do(owner, kv.Removed, chain(round-1), 0)
		}
		if t.Failed() {
			break
		}
	}
	done.Store(true)
	readers.Wait()
}

// indexOf returns where a target stands among what was found, or -1.
func indexOf(found []kvindex.Match, t kv.Target) int {
	for i, m := range found {
		if m.Target == t {
			return i
		}
	}
	return -1
}
