package tiny_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny/llama"
)

// shipped has the shape of the model that comes with dynago.
var shipped = sync.OnceValue(func() *llama.Model {
	cfg := llama.Config{
		Vocab: 2048, Width: 128, Layers: 5, Heads: 4, KVHeads: 2, HeadSize: 32, Hidden: 224,
		Context: 2048, RopeBase: 10000, NormEps: 1e-5, Tied: true,
	}
	m, err := llama.New(cfg, llama.Quantized(llama.RandomTensors(cfg, 1)))
	if err != nil {
		panic(err)
	}
	return m
})

// BenchmarkDecode is answers of 256 tokens after short prompts, one at a time and
// several at once.
func BenchmarkDecode(b *testing.B) {
	for _, streams := range []int{1, 8, 32} {
		b.Run(fmt.Sprint(streams), func(b *testing.B) {
			e := open(b, shipped())
			var tokens atomic.Int64
			for b.Loop() {
				var all sync.WaitGroup
				for i := range streams {
					all.Go(func() {
						ids, _ := generate(b, e, ask(prompt(i, 16), 256))
						tokens.Add(int64(len(ids)))
					})
				}
				all.Wait()
			}
			b.ReportMetric(float64(tokens.Load())/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkFirstToken is how long the first token of a prompt of 2,000 tokens takes,
// when nothing of it is cached and when all but its last block is.
func BenchmarkFirstToken(b *testing.B) {
	first := func(b *testing.B, e engine.Engine, r *engine.Request) time.Duration {
		began := time.Now()
		for d, err := range e.Generate(context.Background(), r) {
			if err != nil || len(d.TokenIDs) == 0 {
				b.Fatal(d, err)
			}
			return time.Since(began)
		}
		return 0
	}
	for _, cached := range []bool{false, true} {
		b.Run(fmt.Sprintf("cached=%v", cached), func(b *testing.B) {
			e := open(b, shipped(), func(a *mock.Args) { a.EnablePrefixCaching = cached })
			r := ask(prompt(1, 2000), 1)
			generate(b, e, r)
			var all time.Duration
			n := 0
			for b.Loop() {
				all += first(b, e, r)
				n++
			}
			b.ReportMetric(float64(all.Microseconds())/float64(n), "µs/first-token")
		})
	}
}
