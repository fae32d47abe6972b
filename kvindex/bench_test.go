package kvindex_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
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

// A cache of a million blocks fills, by turns of 16. How large it is nobody tells,
// or the router once an eighth is there, or somebody before the first block.
func BenchmarkFill(b *testing.B) {
	const blocks, turn = 1 << 20, 16
	r := rand.New(rand.NewPCG(1, 2))
	turns := make([]kv.Event, blocks/turn)
	for i := range turns {
		turns[i] = chain(r, turn)
	}
	for _, told := range []struct {
		name string
		at   int
	}{{"untold", -1}, {"eighth", blocks / 8 / turn}, {"before", 0}} {
		b.Run(told.name, func(b *testing.B) {
			b.ReportAllocs()
			used := cpu()
			for b.Loop() {
				x := kvindex.New()
				for i, e := range turns {
					if i == told.at {
						x.Reserve(cache, blocks)
					}
					_ = x.Apply(cache, e)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
			b.ReportMetric(float64(cpu()-used)/float64(b.N)/blocks, "cpu-ns/block")
		})
	}
}

func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
