package router

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
)

// Cost and choice alone, over the rows of so many targets.
func BenchmarkChoice(b *testing.B) {
	for _, targets := range []int{64, 1000, 4096} {
		b.Run(fmt.Sprintf("targets=%d", targets), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			rows, tuning := make([]Candidate, targets), DefaultTuning()
			for i := range rows {
				rows[i] = Candidate{
					BlockSize: 16, Preference: 1, TotalBlocks: 10_000, Device: r.IntN(128), PrefillTokens: r.IntN(20_000),
					ActiveBlocks: r.IntN(5000), Requests: r.IntN(30), DecodeBlocks: r.IntN(5000),
				}
			}
			a, sum := ask{tokens: 2048}, 0
			b.ReportAllocs()
			used := processor()
			for b.Loop() {
				tuning.price(a, rows)
				sum += cheapest(r, rows)
			}
			b.ReportMetric(float64(processor()-used)/float64(b.N), "cpu-ns/op")
			if sum < 0 {
				b.Fatal(sum)
			}
		})
	}
}

// processor is the processor time that this process has used, nanoseconds.
func processor() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
