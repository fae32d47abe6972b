package mock_test

import (
	"context"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
)

// BenchmarkCore is the scheduler alone: 200 requests that run to 512 tokens
// each, over and over.
func BenchmarkCore(b *testing.B) {
	a := mock.DefaultArgs()
	a.BlockSize, a.SpeedupRatio = 16, 0
	c := mock.NewCore(a)
	prompts, tokens, running := uint32(0), 0, 0
	b.ReportAllocs()
	for b.Loop() {
		for running < 200 {
			prompts++
			if _, err := c.Submit(0, mock.Request{Prompt: ids(prompts, 64), MaxTokens: 512, Generator: &counter{prompts}}); err != nil {
				b.Fatal(err)
			}
			running++
		}
		res := c.Step(0)
		tokens += len(res.Outputs)
		for _, o := range res.Outputs {
			if o.Finish != engine.Running {
				running--
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(tokens), "ns/token")
}

// BenchmarkStreams is the whole engine: 200 streams at once, each with its own
// consumer, without any modelled delay. It reports CPU, not elapsed time.
func BenchmarkStreams(b *testing.B) {
	for _, source := range []mock.Source{mock.SourceRandom, mock.SourceText} {
		b.Run(string(source), func(b *testing.B) { benchmarkStreams(b, source, 0) })
	}
	// 200 streams of 50 tokens a second each.
	b.Run("paced", func(b *testing.B) { benchmarkStreams(b, mock.SourceText, 20) })
}

func benchmarkStreams(b *testing.B, source mock.Source, itl float64) {
	const streams, most = 200, 512
	e := open(b, mock.Config{Source: source, Encode: encodeBytes}, func(a *mock.Args) {
		a.NumGPUBlocks = 16384
		if itl > 0 {
			a.SpeedupRatio, a.TimingModel, a.DecodeMS = 1, "constant", itl
		}
	})
	tokens, deltas := 0, 0
	var mu sync.Mutex
	begin := cpu()
	for b.Loop() {
		var wg sync.WaitGroup
		for i := range streams {
			wg.Go(func() {
				most := most
				if itl > 0 {
					most = 50
				}
				r := &engine.Request{TokenIDs: ids(uint32(i%64), 64), Stop: engine.Stop{MaxTokens: most}}
				n, d := 0, 0
				for delta, err := range e.Generate(context.Background(), r) {
					if err != nil {
						b.Error(err)
					}
					n += len(delta.TokenIDs)
					d++
				}
				mu.Lock()
				defer mu.Unlock()
				tokens += n
				deltas += d
			})
		}
		wg.Wait()
	}
	used := cpu() - begin
	b.ReportMetric(float64(used.Nanoseconds())/float64(tokens), "cpu-ns/token")
	b.ReportMetric(float64(tokens)/float64(deltas), "tokens/delta")
	runtime.KeepAlive(e)
}

// cpu returns the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
