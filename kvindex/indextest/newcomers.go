package indextest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynago/dynago/kv"
)

// newcomers looks for one target's blocks in the name of another. Workers come and
// go all the time between two that stay, so that whatever numbers an index gives
// them are taken again at once, also while a query runs that began before. Each
// life of a worker has a prompt of its own: nobody but that worker may be found
// with it, no deeper than it was stored, and not at all once the worker has left.
func newcomers(t *testing.T, open func() Index) {
	const (
		length = 40
		lanes  = 3
	)
	var (
		x     = open()
		lives = 4000 * int64(*scale) / slow

		born [lanes]atomic.Int64 // the newest life that has all its blocks
		left [lanes]atomic.Int64 // the newest life that is over
		done atomic.Bool
	)
	chain := func(lane int, life int64) kv.Event {
		var e kv.Event
		for i := range length {
			n := uint64(lane+1)<<50 | uint64(life)<<10 | uint64(i)
			e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(mix(n)), Local: kv.LocalHash(mix(n))})
		}
		return e
	}
	// Every other life comes under the same name.
	worker := func(lane int, life int64) kv.Target {
		return kv.Target{Worker: uint64(100*lane) + 10 + uint64(life)%2*uint64(life)<<20, Rank: uint32(lane)}
	}
	stay := func(id uint64) {
		if err := x.Apply(kv.Target{Worker: id}, chain(lanes, int64(id))); err != nil {
			t.Fatal(err)
		}
	}
	stay(0)
	for lane := range lanes { // so that there are free numbers between two taken ones
		left[lane].Store(-1)
		if err := x.Apply(worker(lane, 0), chain(lane, 0)); err != nil {
			t.Fatal(err)
		}
	}
	stay(1 << 50)

	var readers, writers sync.WaitGroup
	for r := range 2 {
		readers.Go(func() {
			match := x.Matcher()
			for n := 0; !done.Load(); n++ {
				lane := (n + r) % lanes
				life := born[lane].Load() + int64(n/lanes%2) // that one, or the one to come
				owner, local := worker(lane, life), make([]kv.LocalHash, 0, length)
				for _, b := range chain(lane, life).Blocks {
					local = append(local, b.Local)
				}
				over := left[lane].Load() >= life
				found := match(local)
				for _, m := range found {
					if m.Target != owner || over || m.Blocks[0] > length || m.Blocks != [4]int32{m.Blocks[0]} {
						t.Errorf("life %d of %v, over: %v; found %v", life, owner, over, m)
						return
					}
				}
			}
		})
	}
	for lane := range lanes {
		writers.Go(func() {
			for life := int64(0); life < lives && !t.Failed(); life++ {
				target := worker(lane, life)
				if err := x.Apply(target, chain(lane, life)); err != nil {
					t.Error(err)
				}
				born[lane].Store(life)
				x.RemoveWorker(target.Worker)
				left[lane].Store(life)
			}
		})
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
}

// rivals has one target stored, given room, removed and taken away by several
// goroutines at a time. In which order that happens nobody can say; but once the last of them has
// taken it away, nothing of it is left, for whoever is given its number.
func rivals(t *testing.T, open func() Index) {
	x := open()
	target, heir := kv.Target{Worker: 1}, kv.Target{Worker: 2}
	var blocks []kv.Block
	for i := range 30 {
		blocks = append(blocks, kv.Block{Engine: kv.EngineHash(i), Local: kv.LocalHash(i)})
	}
	removed := slices.Clone(blocks)
	slices.Reverse(removed)
	match := x.Matcher()
	for range 3000 * *scale / slow {
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				_ = x.Apply(target, kv.Event{Blocks: blocks}) // whether it fails depends on the others
				_ = x.Apply(target, kv.Event{Kind: kv.Removed, Blocks: removed[:10]})
			})
			all.Go(func() {
				if r, ok := x.(Reserver); ok {
					r.Reserve(target, 100)
				}
				x.RemoveWorker(target.Worker)
			})
		}
		all.Wait()
		x.RemoveTarget(target)
		if s := x.Stats(); s.Targets != 0 || s.Blocks != 0 || s.Nodes != 0 {
			t.Fatalf("left behind %+v", s)
		}
		if err := x.Apply(heir, kv.Event{Blocks: blocks[:1]}); err != nil {
			t.Fatal(err)
		}
		var local []kv.LocalHash
		for _, b := range blocks {
			local = append(local, b.Local)
		}
		if found := match(local); len(found) != 1 || found[0].Target != heir || found[0].Blocks != [4]int32{1} {
			t.Fatalf("found %v, want one block of %v", found, heir)
		}
		x.RemoveWorker(heir.Worker)
	}
}
