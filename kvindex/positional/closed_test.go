package positional

import (
	"math/rand/v2"
	"testing"

	"github.com/dynago/dynago/kv"
)

// A target may be jumped over exactly while every block that it holds on the
// device stands on another one, however it came to that: after holes were torn and
// mended, and by whoever gets a number next.
func TestClosed(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	x := New(DefaultStride)
	torn, mended := 0, 0
	for range 20_000 {
		target := kv.Target{Worker: r.Uint64N(6)}
		prompt, at := r.Uint64N(3), r.Uint64N(8)
		block := func(i uint64) kv.Block {
			return kv.Block{Engine: kv.EngineHash(prompt<<8 | i), Local: kv.LocalHash(prompt<<8 | i)}
		}
		before := x.openTargets()
		switch r.IntN(100) {
		case 0:
			x.RemoveTarget(target)
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20:
			_ = x.Apply(target, kv.Event{Kind: kv.Removed, Blocks: []kv.Block{block(at)}}) // it may not be there
		default:
			e := kv.Event{Blocks: []kv.Block{block(at)}}
			if at > 0 {
				e.HasParent, e.Parent = true, block(at-1).Engine
			}
			_ = x.Apply(target, e) // its parent may not be there
		}
		for _, h := range x.order {
			orphans := 0
			for at := range h.keys.all() {
				parent := x.blocks.at(at).parent
				if parent != root && !x.has(x.blocks.at(parent).device, h.slot) {
					orphans++
				}
			}
			open := x.open[h.slot/64]>>(h.slot%64)&1 != 0
			if h.orphans != orphans || open != (orphans > 0) {
				t.Fatalf("%v: counts %d blocks without their parent and has %d; open: %v", h.target, h.orphans, orphans, open)
			}
		}
		switch now := x.openTargets(); {
		case now > before:
			torn++
		case now < before:
			mended++
		}
	}
	if torn < 100 || mended < 100 {
		t.Errorf("%d targets torn, %d mended: that proves little", torn, mended)
	}
}

func (x *Index) openTargets() int {
	n := 0
	for _, h := range x.order {
		if h.orphans > 0 {
			n++
		}
	}
	return n
}
