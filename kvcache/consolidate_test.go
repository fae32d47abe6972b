package kvcache_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// fold is a consumer of events: what it believes to lie on each tier.
type fold struct {
	at    kv.Cursor
	tiers [4]map[kv.SeqHash]bool
}

func newFold() *fold {
	f := &fold{}
	f.clear()
	return f
}

func (f *fold) clear() {
	for t := range f.tiers {
		f.tiers[t] = map[kv.SeqHash]bool{}
	}
}

func (f *fold) anywhere(h kv.SeqHash) bool {
	return slices.ContainsFunc(f.tiers[:], func(t map[kv.SeqHash]bool) bool { return t[h] })
}

// take applies batches, and fails where one tells what cannot be.
func (f *fold) take(t *rapid.T, batches []kv.Batch, after func()) {
	for _, b := range batches {
		if b.Gap != "" {
			f.clear()
			continue
		}
		if b.Snapshot == kv.SnapshotNone && b.First != f.at.Sequence+1 {
			t.Fatalf("events %d..%d after event %d", b.First, b.Last, f.at.Sequence)
		}
		if n := uint64(len(b.Events)); b.Snapshot == kv.SnapshotNone && b.Last != b.First+n-1 {
			t.Fatalf("events %d..%d are %d", b.First, b.Last, n)
		}
		for _, e := range b.Events {
			f.apply(t, e)
			if after != nil {
				after()
			}
		}
		if b.Snapshot != kv.SnapshotPart {
			f.at = kv.Cursor{Rank: b.Rank, Epoch: b.Epoch, Sequence: b.Last}
		}
	}
}

func (f *fold) apply(t *rapid.T, e kv.Event) {
	held := f.tiers[e.Tier]
	parent := kv.SeqHash(e.Parent)
	for i, b := range e.Blocks {
		h := kv.SeqHash(b.Engine)
		switch {
		case e.Kind == kv.Removed && held[h]:
			delete(held, h)
		case e.Kind == kv.Removed:
			t.Fatalf("%x is removed from the %s tier and was not there", h, e.Tier)
		case held[h]:
			t.Fatalf("%x is stored on the %s tier twice", h, e.Tier)
		default:
			if want, _ := ancestor(h); want != parent || e.HasParent != (parent != 0) && i == 0 || b.Local != content(h) {
				t.Fatalf("%x is stored below %x with content %x", h, parent, b.Local)
			}
			held[h] = true
			parent = h
		}
	}
}

// The blocks of the tests are numbered as the nodes of a binary heap.
func ancestor(h kv.SeqHash) (parent kv.SeqHash, root bool) { return h / 2, h/2 == 0 }
func content(h kv.SeqHash) kv.LocalHash                    { return kv.LocalHash(h) * 1000 }
func numbered(h kv.SeqHash) kvcache.Block {
	parent, _ := ancestor(h)
	return kvcache.Block{Hash: h, Parent: parent, Local: content(h)}
}

// TestConsolidatorFolds stores and removes at random and demands that a reader
// that keeps up, one that comes late and one that comes back all end up with
// what lies where; that a block which is somewhere before and after a batch is
// never nowhere within it; and that parents come before their children.
func TestConsolidatorFolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flat := rapid.Bool().Draw(t, "flat")
		cfg := kvcache.ConsolidatorConfig{Rank: 3, Epoch: 1, Flat: flat, Batches: rapid.IntRange(1, 6).Draw(t, "batches")}
		c := kvcache.NewConsolidator(cfg)
		var now [4]map[kv.SeqHash]bool // what really lies where
		for i := range now {
			now[i] = map[kv.SeqHash]bool{}
		}
		seen := func() [4]map[kv.SeqHash]bool { // as a reader is to see it
			var out [4]map[kv.SeqHash]bool
			for i := range out {
				out[i] = maps.Clone(now[i])
			}
			if flat {
				for i := 1; i < 4; i++ {
					maps.Copy(out[0], out[i])
					clear(out[i])
				}
			}
			return out
		}
		before := seen()
		follower := newFold()
		_, follower.at = c.Read(kv.Cursor{})
		idle := []*fold{newFold()}
		same := func(t *rapid.T, who string, f *fold, want [4]map[kv.SeqHash]bool) {
			for i := range want {
				if !maps.Equal(f.tiers[i], want[i]) {
					t.Fatalf("%s has %v on the %s tier, want %v", who, f.tiers[i], kv.Tier(i), want[i])
				}
			}
		}
		hash := rapid.Custom(func(t *rapid.T) kv.SeqHash { return kv.SeqHash(rapid.IntRange(1, 15).Draw(t, "hash")) })
		t.Repeat(map[string]func(*rapid.T){
			"store": func(t *rapid.T) {
				tier := kv.Tier(rapid.IntRange(0, 3).Draw(t, "tier"))
				h := hash.Draw(t, "hash")
				c.Store(tier, numbered(h))
				now[tier][h] = true
			},
			"remove": func(t *rapid.T) {
				tier := kv.Tier(rapid.IntRange(0, 3).Draw(t, "tier"))
				h := hash.Draw(t, "hash")
				c.Remove(tier, h)
				delete(now[tier], h)
			},
			"move": func(t *rapid.T) {
				from, to := kv.Tier(rapid.IntRange(0, 3).Draw(t, "from")), kv.Tier(rapid.IntRange(0, 3).Draw(t, "to"))
				h := hash.Draw(t, "hash")
				if !now[from][h] || from == to {
					return
				}
				c.Remove(from, h)
				c.Store(to, numbered(h))
				delete(now[from], h)
				now[to][h] = true
			},
			"flush": func(t *rapid.T) {
				after := seen()
				c.Flush()
				batches, at := c.Read(follower.at)
				for _, b := range batches {
					if b.Gap != "" {
						t.Fatalf("a reader that keeps up has a gap: %s", b.Gap)
					}
				}
				follower.take(t, batches, func() {
					for h := kv.SeqHash(1); h < 16; h++ {
						stays := slices.ContainsFunc(before[:], func(m map[kv.SeqHash]bool) bool { return m[h] }) &&
							slices.ContainsFunc(after[:], func(m map[kv.SeqHash]bool) bool { return m[h] })
						if stays && !follower.anywhere(h) {
							t.Fatalf("%x is nowhere for a moment", h)
						}
					}
				})
				if follower.at != at {
					t.Fatalf("the reader is at %v, want %v", follower.at, at)
				}
				same(t, "who keeps up", follower, after)
				somewhere := map[kv.SeqHash]bool{}
				for _, held := range now {
					maps.Copy(somewhere, held)
				}
				if c.Len() != len(somewhere) {
					t.Fatalf("%d blocks are remembered, %d are somewhere", c.Len(), len(somewhere))
				}
				before = after
			},
			"come late": func(t *rapid.T) {
				f := newFold()
				batches, _ := c.Read(f.at)
				f.take(t, batches, nil)
				same(t, "who comes late", f, before)
				idle = append(idle, f)
			},
			"come back": func(t *rapid.T) {
				f := rapid.SampledFrom(idle).Draw(t, "who")
				batches, _ := c.Read(f.at)
				f.take(t, batches, nil)
				same(t, "who comes back", f, before)
			},
			"restart": func(t *rapid.T) {
				cfg.Epoch++
				c.Restart(cfg.Epoch)
				for i := range now {
					clear(now[i])
				}
				batches, _ := c.Read(follower.at)
				follower.take(t, batches, nil)
				before = seen()
				same(t, "who lived through a restart", follower, before)
			},
		})
	})
}

func TestConsolidatorTellsRuns(t *testing.T) {
	c := kvcache.NewConsolidator(kvcache.ConsolidatorConfig{})
	for _, h := range []kv.SeqHash{4, 2, 1} { // children first
		c.Store(kv.TierHost, numbered(h))
	}
	c.Store(kv.TierDisk, numbered(4)) // without its parent
	got := c.Flush()
	want := []kv.Event{
		{Kind: kv.Stored, Tier: kv.TierHost, Blocks: []kv.Block{{Engine: 1, Local: 1000}, {Engine: 2, Local: 2000}, {Engine: 4, Local: 4000}}},
		{Kind: kv.Stored, Tier: kv.TierDisk, Parent: 2, HasParent: true, Blocks: []kv.Block{{Engine: 4, Local: 4000}}},
	}
	same := func(a, b kv.Event) bool {
		return a.Kind == b.Kind && a.Tier == b.Tier && a.Parent == b.Parent && a.HasParent == b.HasParent && slices.Equal(a.Blocks, b.Blocks)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("told %+v\nwant %+v", got, want)
	}
	if got := c.Snapshot(); !slices.EqualFunc(got, want, same) {
		t.Errorf("snapshot %+v\nwant %+v", got, want)
	}
	c.Remove(kv.TierHost, 2)
	c.Store(kv.TierHost, numbered(2))
	if got := c.Flush(); len(got) != 0 {
		t.Errorf("what changed nothing was told: %+v", got)
	}
}

// A block that is its own ancestor, by a fault or by malice, is told like others.
func TestConsolidatorTellsCircles(t *testing.T) {
	c := kvcache.NewConsolidator(kvcache.ConsolidatorConfig{})
	for _, b := range []kvcache.Block{{Hash: 1, Parent: 1}, {Hash: 2, Parent: 3}, {Hash: 3, Parent: 2}} {
		c.Store(kv.TierHost, b)
	}
	blocks := 0
	for _, e := range c.Flush() {
		blocks += len(e.Blocks)
	}
	if blocks != 3 {
		t.Errorf("told of %d blocks, want 3", blocks)
	}
	c.Snapshot()
}
