package positional_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex/positional"
)

// chain is a store event of n blocks with contents of their own.
func chain(r *rand.Rand, n int) kv.Event {
	e := kv.Event{Blocks: make([]kv.Block, n)}
	for i := range e.Blocks {
		e.Blocks[i] = kv.Block{Engine: kv.EngineHash(r.Uint64()), Local: kv.LocalHash(r.Uint64())}
	}
	return e
}

// A prompt of 128 blocks that all of 64 workers hold, each beside 1,000 others of
// 16: what a stride gains.
func BenchmarkMatch128(b *testing.B) {
	for _, stride := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("stride=%d", stride), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			x := positional.New(stride)
			prompt := chain(r, 128)
			for w := range 64 {
				t := kv.Target{Worker: uint64(w)}
				for range 1000 {
					_ = x.Apply(t, chain(r, 16))
				}
				_ = x.Apply(t, prompt)
			}
			var local []kv.LocalHash
			for _, block := range prompt.Blocks {
				local = append(local, block.Local)
			}
			var m positional.Matches
			x.Match(local, &m)
			b.ReportAllocs()
			for b.Loop() {
				x.Match(local, &m)
			}
		})
	}
}

// Runs of 24 blocks come and go on 128 workers that hold 16,384 each.
func BenchmarkChurn(b *testing.B) {
	const workers, runs = 128, 16384 / 24
	r := rand.New(rand.NewPCG(1, 2))
	x := positional.New(positional.DefaultStride)
	var held [workers][runs]kv.Event
	for i := range runs {
		for w := range workers {
			held[w][i] = chain(r, 24)
			_ = x.Apply(kv.Target{Worker: uint64(w)}, held[w][i])
		}
	}
	n := 0
	for b.Loop() {
		w, i := n%workers, n/workers%runs
		t, e := kv.Target{Worker: uint64(w)}, &held[w][i]
		_ = x.Apply(t, kv.Event{Kind: kv.Removed, Blocks: e.Blocks})
		*e = chain(r, 24)
		_ = x.Apply(t, *e)
		n++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(48*n), "ns/block-op")
}
