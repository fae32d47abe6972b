package router

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// strays are blocks of lower tiers that workers told of before the block that they
// continue: there they arrive in any order, and those that others have stored may be
// there alone. The index cannot say of which prompt such a block is; they wait here
// for the one before them.
type strays struct {
	waiting atomic.Int64 // of all targets

	mu sync.Mutex
	of map[kv.Target]*family
}

// family is the strays of one target.
type family struct {
	children map[kv.EngineHash][]stray         // by the block that they continue
	parents  map[kv.EngineHash][]kv.EngineHash // of a stray: one, but for errors of the worker
	count    int
}

type stray struct {
	block kv.Block
	tier  kv.Tier
}

// mostStrays is how many of one target wait; those beyond are forgotten.
const mostStrays = 1 << 16

// apply makes an event part of the index, and what has waited for its blocks. What
// the index says of the event is counted there.
func (s *strays) apply(x *kvindex.Index, t kv.Target, e kv.Event) {
	err := x.Apply(t, e)
	switch {
	case e.Kind == kv.Stored && e.Tier != kv.TierDevice && errors.Is(err, kvindex.ErrParentNotFound):
		s.keep(t, &e)
	case s.waiting.Load() == 0:
	case e.Kind == kv.Stored && err == nil:
		s.join(x, t, e.Blocks)
	case e.Kind == kv.Removed:
		s.forget(t, &e)
	case e.Kind == kv.Cleared:
		s.removeTarget(t)
	}
}

func (s *strays) keep(t kv.Target, e *kv.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.of[t]
	if f == nil {
		f = &family{children: map[kv.EngineHash][]stray{}, parents: map[kv.EngineHash][]kv.EngineHash{}}
		if s.of == nil {
			s.of = make(map[kv.Target]*family)
		}
		s.of[t] = f
	}
	parent := e.Parent
	for _, b := range e.Blocks {
		if f.count == mostStrays {
			return
		}
		if child := (stray{b, e.Tier}); !slices.Contains(f.children[parent], child) {
			f.children[parent] = append(f.children[parent], child)
			f.parents[b.Engine] = append(f.parents[b.Engine], parent)
			f.count++
			s.waiting.Add(1)
		}
		parent = b.Engine
	}
}

// join lets the index have what has waited for blocks that it knows now, and what
// has waited for that.
func (s *strays) join(x *kvindex.Index, t kv.Target, blocks []kv.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.of[t]
	if f == nil {
		return
	}
	known := make([]kv.EngineHash, len(blocks))
	for i, b := range blocks {
		known[i] = b.Engine
	}
	for len(known) > 0 {
		parent := known[len(known)-1]
		known = known[:len(known)-1]
		for _, c := range slices.Clone(f.children[parent]) {
			s.take(t, f, parent, c)
			if x.Apply(t, kv.Event{Kind: kv.Stored, Tier: c.tier, Parent: parent, HasParent: true, Blocks: []kv.Block{c.block}}) == nil {
				known = append(known, c.block.Engine)
			}
		}
	}
}

// forget drops what has gone before its parent came.
func (s *strays) forget(t kv.Target, e *kv.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.of[t]
	if f == nil {
		return
	}
	for _, b := range e.Blocks {
		for _, parent := range slices.Clone(f.parents[b.Engine]) {
			for _, c := range slices.Clone(f.children[parent]) {
				if c.block.Engine == b.Engine && c.tier == e.Tier {
					s.take(t, f, parent, c)
				}
			}
		}
	}
}

// take takes one stray out.
func (s *strays) take(t kv.Target, f *family, parent kv.EngineHash, c stray) {
	left := func(list []kv.EngineHash) []kv.EngineHash {
		i := slices.Index(list, parent)
		return slices.Delete(list, i, i+1)
	}
	f.children[parent] = slices.DeleteFunc(f.children[parent], func(o stray) bool { return o == c })
	if len(f.children[parent]) == 0 {
		delete(f.children, parent)
	}
	if f.parents[c.block.Engine] = left(f.parents[c.block.Engine]); len(f.parents[c.block.Engine]) == 0 {
		delete(f.parents, c.block.Engine)
	}
	f.count--
	s.waiting.Add(-1)
	if f.count == 0 {
		delete(s.of, t)
	}
}

// removeTarget drops the strays of one rank.
func (s *strays) removeTarget(t kv.Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(t)
}

func (s *strays) drop(t kv.Target) {
	if f := s.of[t]; f != nil {
		s.waiting.Add(-int64(f.count))
		delete(s.of, t)
	}
}

// removeWorker drops the strays of all its ranks.
func (s *strays) removeWorker(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.of {
		if t.Worker == id {
			s.drop(t)
		}
	}
}
