package router

import (
	"errors"
	"maps"
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
	children map[kv.EngineHash]map[stray]bool // by the block that they continue
	spots    map[kv.EngineHash][]spot         // of a stray: one, but for errors of the worker
	count    int
}

// spot is where a stray waits.
type spot struct {
	parent kv.EngineHash
	stray
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
		f = &family{children: map[kv.EngineHash]map[stray]bool{}, spots: map[kv.EngineHash][]spot{}}
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
		if child := (stray{b, e.Tier}); !f.children[parent][child] {
			if f.children[parent] == nil {
				f.children[parent] = make(map[stray]bool, 1)
			}
			f.children[parent][child] = true
			f.spots[b.Engine] = append(f.spots[b.Engine], spot{parent, child})
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
		for c := range maps.Clone(f.children[parent]) {
			s.take(t, f, spot{parent, c})
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
		for _, at := range slices.Clone(f.spots[b.Engine]) {
			if at.tier == e.Tier {
				s.take(t, f, at)
			}
		}
	}
}

// take takes one stray out.
func (s *strays) take(t kv.Target, f *family, at spot) {
	delete(f.children[at.parent], at.stray)
	if len(f.children[at.parent]) == 0 {
		delete(f.children, at.parent)
	}
	engine := at.block.Engine
	f.spots[engine] = slices.DeleteFunc(f.spots[engine], func(o spot) bool { return o == at })
	if len(f.spots[engine]) == 0 {
		delete(f.spots, engine)
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
