package router_test

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// A whole decision and its release: 128 blocks of 16 tokens, half of them cached
// on every worker, four requests running on each. Only the prompt is hashed
// before; [BenchmarkHash] is what that takes.
func BenchmarkRoute(b *testing.B) {
	for _, workers := range []int{8, 64, 4096} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			h := newHouse(b, router.Config{Seed: 1})
			defer h.fleet.Close()
			p := count(0, 128*16)
			for id := range uint64(workers) {
				h.join(id+1, card(func(c *engine.Card) { c.BlockSize, c.TotalBlocks = 16, 10_000 }))
				h.tell(id+1, p[:64*16])
				for n := range uint32(4) {
					defer h.route(router.Query{Model: "m", PinWorker: id + 1, Tokens: append(p[:64*16:64*16], count(uint32(id)*4+n, 1024)...)}).Release()
				}
			}
			local := kv.AppendLocalHashes(nil, p, 16, kv.HashSeed)
			q := router.Query{Model: "m", Hashes: &router.Hashes{Local: local, Seq: kv.AppendSeqHashes(nil, local), Tokens: len(p)}}
			ctx := context.Background()
			took := make([]time.Duration, 0, 1<<20)
			b.ReportAllocs()
			used := cpu()
			for b.Loop() {
				start := time.Now()
				k, err := h.router.Route(ctx, &q)
				if err != nil {
					b.Fatal(err)
				}
				if len(took) < cap(took) {
					took = append(took, time.Since(start))
				}
				k.Release()
			}
			b.ReportMetric(float64(cpu()-used)/float64(b.N), "cpu-ns/op")
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
		})
	}
}

// The same for prompts of an agent: 3,750 blocks, of which 3,000 are cached on
// every worker and in use by four requests each.
func BenchmarkRouteLong(b *testing.B) {
	h := newHouse(b, router.Config{Seed: 1})
	defer h.fleet.Close()
	past := count(0, 3000*16)
	for id := range uint64(8) {
		h.join(id+1, card(func(c *engine.Card) { c.BlockSize, c.ContextLength = 16, 1<<20 }))
		h.tell(id+1, past)
		for n := range uint32(4) {
			defer h.route(router.Query{Model: "m", PinWorker: id + 1, Tokens: slices.Concat(past, count(uint32(id)*4+n+1, 750*16))}).Release()
		}
	}
	q := router.Query{Model: "m", Tokens: slices.Concat(past, count(99, 750*16))}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		k, err := h.router.Route(ctx, &q)
		if err != nil {
			b.Fatal(err)
		}
		k.Release()
	}
}

// A decision about a request that prefers few taints, or very many: its client
// says how many, and must not keep the others waiting.
func BenchmarkPreferences(b *testing.B) {
	h := newHouse(b, router.Config{Seed: 1})
	defer h.fleet.Close()
	for id := range uint64(32) {
		h.join(id+1, card(func(c *engine.Card) { c.Taints = []string{"fast", "near"} }))
	}
	for _, n := range []int{2, 100_000} {
		b.Run(fmt.Sprintf("taints=%d", n), func(b *testing.B) {
			q := router.Query{Model: "m", Tokens: count(0, 40), Prefer: map[string]float64{"fast": 1}}
			for len(q.Prefer) < n {
				q.Prefer[fmt.Sprint("far", len(q.Prefer))] = 1
			}
			for b.Loop() {
				h.route(q).Release()
			}
		})
	}
}

// What of a whole decision is hashing the prompt.
func BenchmarkHash(b *testing.B) {
	p := count(0, 128*16)
	var local []kv.LocalHash
	var seq []kv.SeqHash
	used := cpu()
	for b.Loop() {
		local = kv.AppendLocalHashes(local[:0], p, 16, kv.HashSeed)
		seq = kv.AppendSeqHashes(seq[:0], local)
	}
	b.ReportMetric(float64(cpu()-used)/float64(b.N), "cpu-ns/op")
}

// cpu returns the processor time that this process has used, which tells more
// than the clock where others share the machine.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tell makes a worker with blocks of 16 tokens tell that it caches p.
func (h *house) tell(id uint64, p []uint32) {
	local := kv.AppendLocalHashes(nil, p, 16, kv.HashSeed)
	var e kv.Event
	for i, seq := range kv.AppendSeqHashes(nil, local) {
		e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(seq), Local: local[i]})
	}
	h.engines[id].events <- kv.Batch{Epoch: 1, First: 1, Last: 1, Events: []kv.Event{e}}
	h.engines[id].events <- kv.Batch{Epoch: 1, Last: 1}
}
