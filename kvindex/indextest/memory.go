package indextest

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/dynago/dynago/kv"
)

// memory checks that an index grows and shrinks with what it holds: no matter
// how much has come and gone, and in which way it went.
func memory(t *testing.T, open func() Index) {
	const (
		workers = 32
		blocks  = 8000 // of each
		lives   = 1 + 3/slow
	)
	fill := func(x Index, life int) {
		for w := range workers {
			t := kv.Target{Worker: uint64(w)}
			for at := 0; at < blocks; at += 100 {
				var e kv.Event
				for i := range 100 {
					key := mix(uint64(life<<40 | w<<20 | at + i))
					local := key
					if i < 20 { // a system prompt that all share
						local = uint64(at%1000 + i)
					}
					e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(key), Local: kv.LocalHash(local)})
				}
				_ = x.Apply(t, e)
			}
		}
	}
	for _, way := range []struct {
		name  string
		empty func(x Index, life int)
	}{
		{"RemoveWorker", func(x Index, _ int) {
			for w := range uint64(workers) {
				x.RemoveWorker(w)
			}
		}},
		{"Cleared", func(x Index, _ int) {
			for w := range uint64(workers) {
				_ = x.Apply(kv.Target{Worker: w}, kv.Event{Kind: kv.Cleared})
			}
		}},
		{"Removed", func(x Index, life int) {
			for w := range workers {
				for i := blocks - 1; i >= 0; i-- {
					key := kv.EngineHash(mix(uint64(life<<40 | w<<20 | i)))
					_ = x.Apply(kv.Target{Worker: uint64(w)}, kv.Event{Kind: kv.Removed, Blocks: []kv.Block{{Engine: key}}})
				}
			}
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			before := live()
			x := open()
			var full, first int
			for life := range lives {
				fill(x, life)
				full = live() - before
				if life == 0 {
					first = full
				}
				if s := x.Stats(); s.Blocks != workers*blocks {
					t.Fatalf("holds %d blocks, want %d", s.Blocks, workers*blocks)
				}
				way.empty(x, life)
				if s := x.Stats(); s.Blocks != 0 || s.Nodes != 0 {
					t.Fatalf("left behind %+v", s)
				}
			}
			empty := live() - before
			t.Logf("%d B per block when full, %d B in all when empty", full/(workers*blocks), empty)
			if empty > full/10 {
				t.Errorf("%d B are left of %d, more than a tenth", empty, full)
			}
			if full > first*5/4 {
				t.Errorf("%d B in the last life, %d in the first", full, first)
			}
			runtime.KeepAlive(x)
		})
	}
	t.Run("Leaks", func(t *testing.T) { leaks(t, open) })
}

// leaks checks that nothing stays behind, life after life, of all that can happen:
// other tiers, forks, holes, second keys, targets that come and go.
func leaks(t *testing.T, open func() Index) {
	x := open()
	block := []kv.Block{{Engine: 1, Local: 1}}
	for _, kind := range []kv.EventKind{kv.Stored, kv.Removed} {
		if err := x.Apply(kv.Target{}, kv.Event{Kind: kind, Blocks: block}); err != nil {
			t.Fatal(err)
		}
	}
	before := live()
	for life := range max(2, 6**scale/slow) {
		leftovers(x, uint64(life))
		if s := x.Stats(); s.Blocks != 0 || s.Nodes != 0 {
			t.Fatalf("life %d left behind %+v", life, s)
		}
	}
	for w := range uint64(50) {
		x.RemoveWorker(w)
	}
	// Every life has some thousand forks, holes and moves between tiers.
	left := live() - before
	t.Logf("%d B are left", left)
	if left > 32<<10 {
		t.Errorf("%d B are left of what has all been taken away", left)
	}
	runtime.KeepAlive(x)
}

// leftovers lets a fleet live for a while, and then takes away what it has left:
// some targets as a whole, of the others every block.
func leftovers(x Index, seed uint64) {
	m := newModel()
	d := draw(rand.New(rand.NewPCG(seed, 11)).IntN)
	w := newWide(wide{workers: 40, ranks: 2, key: spreads[4], local: spreads[4], model: m, draw: d}, 60, 50)
	p := pair{index: x, model: m}
	for taken := 0; taken < 10_000; {
		for _, s := range w.steps() {
			if s.do <= removeWorker {
				_ = p.take(s) // histories does the comparing
				taken++
			}
		}
	}
	for t, c := range m.caches {
		if d.percent(20) {
			x.RemoveTarget(t)
			continue
		}
		for key, h := range c.keys {
			for tier, on := range h.on {
				if on {
					_ = x.Apply(t, kv.Event{Kind: kv.Removed, Tier: kv.Tier(tier), Blocks: []kv.Block{{Engine: key}}})
				}
			}
		}
	}
}

// live returns how many bytes of the heap are in use.
func live() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
