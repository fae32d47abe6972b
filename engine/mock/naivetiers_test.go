package mock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"pgregory.net/rapid"
)

// list is one tier as anyone would write it down: blocks in the order in which they
// may go, of which those with children wait for them.
type list struct {
	size int
	idle []kv.SeqHash              // least recently used first
	up   map[kv.SeqHash]kv.SeqHash // what is there, and the parent below which it was put, or 0
	busy int                       // slots in use
}

func newList(size int) *list { return &list{size: size, up: map[kv.SeqHash]kv.SeqHash{}} }

func (l *list) has(h kv.SeqHash) bool { _, ok := l.up[h]; return ok }

// use makes a block, and what it stands below, the most recent ones.
func (l *list) use(h kv.SeqHash) {
	for ; h != 0; h = l.up[h] {
		l.idle = append(slices.DeleteFunc(l.idle, func(o kv.SeqHash) bool { return o == h }), h)
	}
}

// take takes a slot, and says whether there was one.
func (l *list) take() bool {
	if len(l.idle)+l.busy < l.size {
		l.busy++
		return true
	}
	for i, h := range l.idle {
		leaf := true
		for _, up := range l.up {
			leaf = leaf && up != h
		}
		if leaf {
			l.idle = slices.Delete(l.idle, i, i+1)
			delete(l.up, h)
			l.busy++
			return true
		}
	}
	return false
}

// put puts a block into a slot that was taken.
func (l *list) put(h, parent kv.SeqHash) {
	if !l.has(parent) {
		parent = 0
	}
	l.busy--
	l.up[h] = parent
	l.use(h)
}

// naiveTiers is a device and a host that serve one request after the other, without
// a pool, a registry or time.
type naiveTiers struct {
	device, host *list
	block        int
}

// serve returns what of a prompt was found on each tier. Whole are the blocks of
// prompt and answer.
func (n *naiveTiers) serve(prompt int, whole []kv.SeqHash) (from [4]int) {
	most := (prompt - 1) / n.block
	found := 0
	for found < most && n.device.has(whole[found]) {
		found++
	}
	loaded := found
	for loaded < most && n.host.has(whole[loaded]) {
		loaded++
	}
	from[kv.TierDevice], from[kv.TierHost] = found*n.block, (loaded-found)*n.block
	// Its blocks are in use until it ends.
	n.device.idle = slices.DeleteFunc(n.device.idle, func(h kv.SeqHash) bool { return slices.Contains(whole[:found], h) })
	n.device.busy += found
	blocks := (prompt + n.block - 1) / n.block
	for range blocks - found {
		if !n.device.take() {
			panic("no room for one request")
		}
	}
	for _, h := range slices.Backward(whole[:loaded]) {
		if n.host.has(h) {
			n.host.use(h)
		}
	}
	parent := kv.SeqHash(0)
	for _, h := range whole {
		n.device.up[h] = parent
		parent = h
	}
	n.device.busy -= blocks
	if len(whole) > 0 {
		n.device.use(whole[len(whole)-1])
	}
	// Then what was computed and is not there is written, all of it at a time.
	var written []int
	for i := loaded; i < len(whole); i++ {
		if !n.host.has(whole[i]) {
			written = append(written, i)
		}
	}
	written = slices.DeleteFunc(written, func(int) bool { return !n.host.take() })
	for _, i := range written {
		parent := kv.SeqHash(0)
		if i > 0 {
			parent = whole[i-1]
		}
		n.host.put(whole[i], parent)
	}
	return from
}

// TestOneByOne serves random requests one after the other, and compares after each
// what was found where, and what lies on both tiers, with that of a model that does
// without any cleverness.
func TestOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := mock.DefaultArgs()
		a.BlockSize, a.SpeedupRatio = rapid.IntRange(2, 4).Draw(t, "block"), 0
		a.NumGPUBlocks, a.HostBlocks = rapid.IntRange(12, 24).Draw(t, "device"), rapid.IntRange(1, 40).Draw(t, "host")
		c := mock.NewCore(a)
		n := &naiveTiers{device: newList(a.NumGPUBlocks), host: newList(a.HostBlocks), block: a.BlockSize}
		var view tierView
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			prompt := ids(uint32(rapid.IntRange(0, 5).Draw(t, "start"))*1000, rapid.IntRange(1, 12*a.BlockSize-1).Draw(t, "prompt"))
			if _, err := c.Submit(0, mock.Request{Prompt: prompt, MaxTokens: 1, Generator: &counter{90000}}); err != nil {
				t.Fatal(err)
			}
			var from [4]int
			for steps := 0; ; steps++ {
				res := c.Step(0)
				view.apply(t, res.Events)
				for _, a := range res.Admitted {
					from = a.From
				}
				if res.Idle {
					if _, more := c.NextWake(); !more {
						break
					}
				}
				if steps > 1000 {
					t.Fatal("it never ends")
				}
			}
			whole := c.Hashes(append(slices.Clone(prompt), 90000), kv.Namespace{})
			whole = whole[:min(len(whole), (len(prompt)+a.BlockSize-1)/a.BlockSize)]
			if want := n.serve(len(prompt), whole); from != want {
				t.Fatalf("%d tokens: found %v, want %v", len(prompt), from, want)
			}
			for k, l := range []*list{n.device, n.host} {
				for h := range l.up {
					if !view[k][kv.EngineHash(h)] {
						t.Fatalf("block %x is not on %s", h, kv.Tier(k))
					}
				}
				if len(view[k]) != len(l.up) {
					t.Fatalf("%d blocks on %s, want %d", len(view[k]), kv.Tier(k), len(l.up))
				}
			}
		}
		if s := c.CacheStats(); s.LoadWait != time.Duration(0) {
			t.Fatalf("loads that take no time took %v", s.LoadWait)
		}
	})
}
