package kvindex_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
	"pgregory.net/rapid"
)

// oracle says by definition what an index must: a target holds a block under
// the path of its parents if it was stored there and not removed.
type oracle map[kv.Target]map[kv.EngineHash]*held

type held struct {
	path  string // local hashes from the root, each followed by a slash
	tiers map[kv.Tier]bool
}

func (o oracle) apply(t kv.Target, e kv.Event) error {
	blocks := o[t]
	if blocks == nil {
		blocks = make(map[kv.EngineHash]*held)
		o[t] = blocks
	}
	switch e.Kind {
	case kv.Cleared:
		clear(blocks)
		return nil
	case kv.Removed:
		var err error
		for _, b := range e.Blocks {
			h := blocks[b.Engine]
			if h == nil || !h.tiers[e.Tier] {
				err = kvindex.ErrBlockNotFound
				continue
			}
			if delete(h.tiers, e.Tier); len(h.tiers) == 0 {
				delete(blocks, b.Engine)
			}
		}
		return err
	}
	var path string
	if e.HasParent {
		p := blocks[e.Parent]
		if p == nil {
			return kvindex.ErrParentNotFound
		}
		path = p.path
	}
	for _, b := range e.Blocks {
		want := path + fmt.Sprintf("%d/", b.Local)
		h := blocks[b.Engine]
		switch {
		case h == nil:
			h = &held{path: want, tiers: map[kv.Tier]bool{e.Tier: true}}
			blocks[b.Engine] = h
		case h.path != want && strings.HasPrefix(path, h.path):
			return kvindex.ErrInvalidSequence
		case h.path == want:
			h.tiers[e.Tier] = true
		}
		path = h.path
	}
	return nil
}

func (o oracle) match(local []kv.LocalHash) []kvindex.Match {
	var found []kvindex.Match
	for t, blocks := range o {
		has := func(path string, tier kv.Tier) bool {
			for _, h := range blocks {
				if h.path == path && h.tiers[tier] {
					return true
				}
			}
			return false
		}
		m := kvindex.Match{Target: t}
		tier, path := kv.TierDevice, ""
		for _, l := range local {
			path += fmt.Sprintf("%d/", l)
			for tier <= kv.TierShared && !has(path, tier) {
				tier++
			}
			if tier > kv.TierShared {
				break
			}
			m.Blocks[tier]++
		}
		if m.Blocks != [4]int32{} {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b kvindex.Match) int { return a.Target.Compare(b.Target) })
	return found
}

// world drives an index and its oracle with the same events, drawn so narrowly
// that duplicates, holes, twins and cycles are common.
type world struct {
	index  *kvindex.Index
	oracle oracle
}

func newWorld() world { return world{kvindex.New(), make(oracle)} }

const (
	keys   = 24 // engine keys per target
	values = 3  // contents of a block
)

func (w world) step(draw func(n int) int) error {
	t := kv.Target{Worker: uint64(1 + draw(4)), Rank: uint32(draw(2))}
	switch op := draw(100); {
	case op < 55:
		e := kv.Event{Tier: kv.Tier(max(0, draw(8)-4))}
		if draw(5) > 0 {
			e.HasParent, e.Parent = true, kv.EngineHash(draw(keys))
		}
		for range 1 + draw(4) {
			e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(draw(keys)), Local: kv.LocalHash(draw(values))})
		}
		return w.apply(t, e)
	case op < 94:
		e := kv.Event{Kind: kv.Removed, Tier: kv.Tier(max(0, draw(8)-4))}
		for range 1 + draw(2) {
			e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(draw(keys))})
		}
		return w.apply(t, e)
	case op < 96:
		return w.apply(t, kv.Event{Kind: kv.Cleared})
	case op < 98:
		w.index.RemoveTarget(t)
		delete(w.oracle, t)
	default:
		w.index.RemoveWorker(t.Worker)
		delete(w.oracle, kv.Target{Worker: t.Worker})
		delete(w.oracle, kv.Target{Worker: t.Worker, Rank: 1})
	}
	return nil
}

func (w world) apply(t kv.Target, e kv.Event) error {
	got, want := w.index.Apply(t, e), w.oracle.apply(t, e)
	if !errors.Is(got, want) {
		return fmt.Errorf("%v %+v: error %v, want %v", t, e, got, want)
	}
	return nil
}

func (w world) check(draw func(n int) int) error {
	local := make([]kv.LocalHash, draw(8))
	for i := range local {
		local[i] = kv.LocalHash(draw(values))
	}
	var m kvindex.Matches
	w.index.Match(local, &m)
	if want := w.oracle.match(local); !slices.Equal(m.Found, want) {
		return fmt.Errorf("match of %v: got %v, want %v", local, m.Found, want)
	}
	return nil
}

// Short sequences, which shrink to something a person can read.
func TestAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
		w := newWorld()
		for range 60 {
			if err := w.step(draw); err != nil {
				t.Fatal(err)
			}
			if err := w.check(draw); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// One long life, at the end of which nothing must be left.
func TestAgainstOracleLong(t *testing.T) {
	draw := rand.New(rand.NewPCG(42, 0)).IntN
	w := newWorld()
	var hits int
	for i := range 100_000 {
		if err := w.step(draw); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if i%4 == 0 {
			if err := w.check(draw); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
		hits += len(match(w.index, 0, 1))
	}
	if hits < 10_000 {
		t.Errorf("only %d matches: the events are too sparse to prove anything", hits)
	}
	for id := range uint64(5) {
		w.index.RemoveWorker(id)
	}
	if s := w.index.Stats(); s.Targets != 0 || s.Nodes != 0 || s.Blocks != 0 {
		t.Errorf("left behind: %+v", s)
	}
}
