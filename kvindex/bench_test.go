package kvindex_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// chain is a store event of n blocks with contents of their own.
func chain(r *rand.Rand, n int) kv.Event {
	e := kv.Event{Blocks: make([]kv.Block, n)}
	for i := range e.Blocks {
		e.Blocks[i] = kv.Block{Engine: kv.EngineHash(r.Uint64()), Local: kv.LocalHash(r.Uint64())}
	}
	return e
}

func locals(e kv.Event) []kv.LocalHash {
	var l []kv.LocalHash
	for _, b := range e.Blocks {
		l = append(l, b.Local)
	}
	return l
}

// Match of 128 blocks, with 1,000 other prompts cached on every worker.
func BenchmarkMatch128(b *testing.B) {
	for _, workers := range []int{64, 4096} {
		for _, hit := range []int{0, 64, 128} {
			b.Run(fmt.Sprintf("workers=%d/hit=%d", workers, hit), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 2))
				x := kvindex.New()
				prompt := chain(r, 128)
				for w := range workers {
					t := kv.Target{Worker: uint64(w + 1)}
					for range 64_000 / workers {
						_ = x.Apply(t, chain(r, 16))
					}
					_ = x.Apply(t, kv.Event{Blocks: prompt.Blocks[:hit]})
				}
				query := locals(prompt)
				var m kvindex.Matches
				b.ReportAllocs()
				for b.Loop() {
					x.Match(query, &m)
				}
			})
		}
	}
}

func BenchmarkStoreRemove(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	x := kvindex.New()
	t := kv.Target{Worker: 1}
	events := make([]kv.Event, 1024)
	for i := range events {
		events[i] = chain(r, 16)
		_ = x.Apply(t, events[i])
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		e := events[i%len(events)]
		e.Kind = kv.Removed
		_ = x.Apply(t, e)
		e.Kind = kv.Stored
		_ = x.Apply(t, e)
		i++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/block")
}
