package kvindex_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
	"github.com/dynago/dynago/kvindex/indextest"
)

var cache = kv.Target{Worker: 1}

// The size of a cache changes nothing but where memory comes from.
func TestReserve_ChangesNoAnswer(t *testing.T) {
	x := kvindex.New()
	x.Reserve(cache, 0)
	if s := x.Stats(); s.Targets != 0 {
		t.Errorf("a cache without room made %d targets known", s.Targets)
	}
	x.Reserve(cache, math.MaxInt) // more than is believed
	x.Reserve(cache, 1000)
	if found := match(x, 1); len(found) != 0 || x.Blocks(cache) != 0 {
		t.Errorf("an empty cache holds %v, %d blocks", found, x.Blocks(cache))
	}
	t.Run("Histories", func(t *testing.T) {
		indextest.Histories(t, func() indextest.Index { return reserving{proved{kvindex.New()}} })
	})
}

// reserving tells the size of a target's cache again and again, and another one
// each time.
type reserving struct{ proved }

func (r reserving) Apply(t kv.Target, e kv.Event) error {
	err := r.proved.Apply(t, e)
	if e.Kind == kv.Stored && err == nil {
		r.Reserve(t, len(e.Blocks)*int(t.Worker%7))
	}
	return err
}

// Who tells how large its cache is has its keys where they are to stay.
func TestReserve_KeepsKeysInPlace(t *testing.T) {
	const blocks = 200_000
	stores := func(reserve bool) uint64 {
		r := rand.New(rand.NewPCG(1, 2))
		e := chain(r, 100)
		x := kvindex.New()
		if reserve {
			x.Reserve(cache, blocks)
		}
		before := allocated()
		for range blocks / len(e.Blocks) {
			for i := range e.Blocks {
				e.Blocks[i] = kv.Block{Engine: kv.EngineHash(r.Uint64()), Local: kv.LocalHash(r.Uint64())}
			}
			if err := x.Apply(cache, e); err != nil {
				t.Fatal(err)
			}
		}
		return allocated() - before
	}
	with, without := stores(true), stores(false)
	if keys := uint64(20 * blocks); with+2*keys > without {
		t.Errorf("%d bytes allocated for a cache of known size, %d without: want less by what growing the table of keys takes", with, without)
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
