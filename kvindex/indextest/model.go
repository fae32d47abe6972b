package indextest

import (
	"slices"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// model says by definition what an index must. A block stands under its parent,
// and a target holds it on a tier as long as one of the target's keys for it was
// stored there and not removed. A target's score is the run of such blocks from
// the first one on: on the device, then on the host, on disk, in a shared store.
type model struct {
	places  []place // ever seen; the first is the root
	below   map[place]int
	caches  map[kv.Target]*cache
	counted kvindex.Stats // events and errors
}

// place is a block and, by way of its parent, everything before it.
type place struct {
	parent int // index into places
	local  kv.LocalHash
}

type cache struct {
	keys map[kv.EngineHash]*held
	// count is the number of keys that stand for a place on a tier.
	count map[spot]int
}

type held struct {
	place int
	on    [4]bool // by tier
}

type spot struct {
	place int
	tier  kv.Tier
}

// on counts the keys on each tier.
func (c *cache) on() (n [4]int) {
	for _, h := range c.keys {
		for tier, on := range h.on {
			if on {
				n[tier]++
			}
		}
	}
	return n
}

func newModel() *model {
	return &model{
		places: []place{{parent: -1}},
		below:  make(map[place]int),
		caches: make(map[kv.Target]*cache),
	}
}

func (m *model) apply(t kv.Target, e kv.Event) error {
	switch e.Kind {
	case kv.Stored:
		m.counted.Stored++
	case kv.Removed:
		m.counted.Removed++
	case kv.Cleared:
		m.counted.Cleared++
	default:
		m.counted.Unsupported++
		return kvindex.ErrUnsupported
	}
	if e.Tier > kv.TierShared {
		m.counted.Unsupported++
		return kvindex.ErrUnsupported
	}
	switch e.Kind {
	case kv.Stored:
		return m.store(t, e)
	case kv.Removed:
		return m.remove(t, e)
	}
	delete(m.caches, t)
	return nil
}

func (m *model) store(t kv.Target, e kv.Event) error {
	at := 0
	if e.HasParent {
		parent := m.find(t, e.Parent)
		if parent == nil {
			m.counted.ParentNotFound++
			return kvindex.ErrParentNotFound
		}
		at = parent.place
	}
	c := m.caches[t]
	if c == nil {
		c = &cache{keys: make(map[kv.EngineHash]*held), count: make(map[spot]int)}
		m.caches[t] = c
	}
	for _, b := range e.Blocks {
		h := c.keys[b.Engine]
		switch {
		case h == nil:
			h = &held{place: m.child(at, b.Local)}
			c.keys[b.Engine] = h
			fallthrough
		case m.places[h.place] == place{at, b.Local}:
			if h.on[e.Tier] {
				m.counted.Duplicates++
				break
			}
			h.on[e.Tier] = true
			c.count[spot{h.place, e.Tier}]++
		case m.places[h.place].parent != at && m.above(h.place, at):
			m.counted.InvalidSequence++
			return kvindex.ErrInvalidSequence
		default:
			m.counted.Conflicts++
		}
		at = h.place
	}
	return nil
}

func (m *model) remove(t kv.Target, e kv.Event) error {
	var err error
	for _, b := range e.Blocks {
		h := m.find(t, b.Engine)
		if h == nil || !h.on[e.Tier] {
			err = kvindex.ErrBlockNotFound
			continue
		}
		h.on[e.Tier] = false
		c := m.caches[t]
		if s := (spot{h.place, e.Tier}); c.count[s] > 1 {
			c.count[s]--
		} else {
			delete(c.count, s)
		}
		if h.on == [4]bool{} {
			delete(c.keys, b.Engine)
		}
	}
	if err != nil {
		m.counted.BlockNotFound++
	}
	return err
}

func (m *model) removeWorker(id uint64) {
	for t := range m.caches {
		if t.Worker == id {
			delete(m.caches, t)
		}
	}
}

// find returns what key means to t, or nil.
func (m *model) find(t kv.Target, key kv.EngineHash) *held {
	if c := m.caches[t]; c != nil {
		return c.keys[key]
	}
	return nil
}

func (m *model) child(at int, l kv.LocalHash) int {
	p := place{at, l}
	i, ok := m.below[p]
	if !ok {
		i = len(m.places)
		m.places = append(m.places, p)
		m.below[p] = i
	}
	return i
}

// above says whether place is at or an ancestor of it.
func (m *model) above(place, at int) bool {
	for ; at > 0; at = m.places[at].parent {
		if at == place {
			return true
		}
	}
	return false
}

// path returns the local hashes from the root down to a place.
func (m *model) path(at int) []kv.LocalHash {
	var local []kv.LocalHash
	for ; at > 0; at = m.places[at].parent {
		local = append(local, m.places[at].local)
	}
	slices.Reverse(local)
	return local
}

// match returns what [Index] must for the same query.
func (m *model) match(local []kv.LocalHash) []kvindex.Match {
	var path []int
	at := 0
	for _, l := range local {
		next, ok := m.below[place{at, l}]
		if !ok {
			break
		}
		at = next
		path = append(path, at)
	}
	var found []kvindex.Match
	for t, c := range m.caches {
		f := kvindex.Match{Target: t}
		var tier kv.Tier
		for _, p := range path {
			for tier <= kv.TierShared && c.count[spot{p, tier}] == 0 {
				tier++
			}
			if tier > kv.TierShared {
				break
			}
			f.Blocks[tier]++
		}
		if f.Blocks != [4]int32{} {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b kvindex.Match) int { return a.Target.Compare(b.Target) })
	return found
}

// stats returns what [Index] must, but for Nodes.
func (m *model) stats() kvindex.Stats {
	s := m.counted
	s.Targets = len(m.caches)
	needed := make(map[int]bool)
	for _, c := range m.caches {
		s.Blocks += len(c.keys)
		for _, h := range c.keys {
			for at := h.place; at > 0 && !needed[at]; at = m.places[at].parent {
				needed[at] = true
			}
		}
	}
	s.Prefixes = len(needed)
	return s
}
