package router_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// silent is an observer that does nothing: what is left is the cost of being
// observed.
type silent struct{}

func (silent) Routed(*router.Decision, *router.Work) {}
func (silent) Ended(*router.Outcome)                 {}

// What it costs to be watched: a decision and its release without an observer,
// with one that does nothing, and with a journal that keeps all or none of them.
func BenchmarkObserved(b *testing.B) {
	for _, workers := range []int{64, 1000} {
		for _, o := range []struct {
			name     string
			observer router.Observer
		}{
			{"nobody", nil},
			{"silent", silent{}},
			{"journal=all", router.NewJournal(1024, 1<<40, nil)},
			{"journal=full", router.NewJournal(1024, 1, nil)},
		} {
			b.Run(fmt.Sprintf("workers=%d/%s", workers, o.name), func(b *testing.B) {
				h := newHouse(b, router.Config{Seed: 1, Observer: o.observer})
				defer h.fleet.Close()
				p := count(0, 128*16)
				for id := range uint64(workers) {
					h.join(id+1, card(func(c *engine.Card) { c.BlockSize, c.TotalBlocks = 16, 10_000 }))
					h.tell(id+1, p[:64*16])
				}
				local := kv.AppendLocalHashes(nil, p, 16, kv.HashSeed)
				q := router.Query{Model: "m", Hashes: &router.Hashes{Local: local, Seq: kv.AppendSeqHashes(nil, local), Tokens: len(p)}}
				ctx := context.Background()
				b.ReportAllocs()
				used := cpu()
				for b.Loop() {
					k, err := h.router.Route(ctx, &q)
					if err != nil {
						b.Fatal(err)
					}
					k.Release()
				}
				b.ReportMetric(float64(cpu()-used)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
