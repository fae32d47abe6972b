package router_test

import (
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// crowded is a queue of three classes in which so many requests wait, of which
// some are pinned to one of so many targets; 0: none is.
func crowded(b *testing.B, parked, targets int) (*turns, []*router.Item[string], *rand.Rand) {
	q := newTurns(b, 8192, 2048, 256)
	random := rand.New(rand.NewPCG(5, 6))
	items := make([]*router.Item[string], parked)
	for i := range items {
		items[i] = &router.Item[string]{
			Class: q.classes[random.IntN(3)], Arrived: at(float64(i) / 100),
			Priority: float64(random.IntN(60)), Tokens: 1 + random.IntN(30_000),
		}
		if targets > 0 && i%4 == 0 {
			items[i].Pinned, items[i].Target = true, kv.Target{Worker: uint64(1 + random.IntN(targets))}
		}
		push(b, q.Queue, items[i])
	}
	return q, items, random
}

// One request goes and another comes.
func BenchmarkQueueTurnover(b *testing.B) {
	for name, targets := range map[string]int{"shared": 0, "pinned to 64": 64, "pinned to 1000": 1000} {
		b.Run(name, func(b *testing.B) {
			q, items, _ := crowded(b, 100_000, targets)
			b.ReportAllocs()
			n := len(items)
			for b.Loop() {
				for it := range q.Ready(epoch, room) {
					n++
					it.Arrived = at(float64(n) / 100)
					if err := q.Push(it, 1, it.Arrived); err != nil {
						b.Fatal(err)
					}
					break
				}
			}
		})
	}
}

// A client leaves from anywhere and another comes.
func BenchmarkQueueRemove(b *testing.B) {
	q, items, random := crowded(b, 100_000, 64)
	b.ReportAllocs()
	for b.Loop() {
		it := items[random.IntN(len(items))]
		q.Remove(it)
		if err := q.Push(it, 1, it.Arrived); err != nil {
			b.Fatal(err)
		}
	}
}

// Nobody has room: what a trigger costs that frees nothing, where requests are
// pinned to a thousand targets.
func BenchmarkQueueBlocked(b *testing.B) {
	q, _, _ := crowded(b, 100_000, 1000)
	none := func(*router.Item[string]) bool { return false }
	for name, ready := range map[string]func() iter.Seq[*router.Item[string]]{
		"anywhere":      func() iter.Seq[*router.Item[string]] { return q.Ready(epoch, none) },
		"at one target": func() iter.Seq[*router.Item[string]] { return q.ReadyAt(epoch, kv.Target{Worker: 500}, none) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for range ready() {
					b.Fatal("somebody went")
				}
			}
		})
	}
}
