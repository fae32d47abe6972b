package router_test

import (
	"iter"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// modelQueue is a queue that looks at everybody who waits, and gives turns one
// at a time.
type modelQueue struct {
	profile  *router.Profile
	parked   []*router.Item[int] // in the order in which they came
	deficit  []int
	cursor   int
	carry    int
	capacity map[kv.Target]int // how many more each target takes
}

func price(it *router.Item[int]) int { return max(1, it.Tokens-it.Cached) }

// ahead says whether a goes before b, of which a came first.
func ahead(a, b *router.Item[int]) bool {
	score := func(it *router.Item[int]) float64 {
		seconds := it.Arrived.Sub(epoch).Seconds()
		switch it.Class.Order {
		case router.FCFS:
			return max(0, it.Priority) - seconds
		case router.LCFS:
			return max(0, it.Priority) + seconds
		}
		return (1 + max(0, it.Priority)) / float64(price(it))
	}
	if a.StrictPriority != b.StrictPriority {
		return a.StrictPriority > b.StrictPriority
	}
	return score(a) >= score(b)
}

// neighbours says whether two wait in the same lane.
func neighbours(a, b *router.Item[int]) bool {
	return a.Class == b.Class && a.Pinned == b.Pinned && a.Target == b.Target
}

// foremost returns who goes first of some, who are in the order in which they came.
func foremost(of []*router.Item[int]) *router.Item[int] {
	var best *router.Item[int]
	for _, it := range of {
		if best == nil || !ahead(best, it) {
			best = it
		}
	}
	return best
}

func (m *modelQueue) free(it *router.Item[int]) bool {
	if it.Pinned {
		return m.capacity[it.Target] > 0
	}
	for _, n := range m.capacity {
		if n > 0 {
			return true
		}
	}
	return false
}

// occupy takes room for a request, wherever there is most of it.
func (m *modelQueue) occupy(it *router.Item[int]) {
	at := it.Target
	if !it.Pinned {
		for t, n := range m.capacity {
			if at == (kv.Target{}) || n > m.capacity[at] || n == m.capacity[at] && t.Compare(at) < 0 {
				at = t
			}
		}
	}
	m.capacity[at]--
}

// head returns who may go of a class.
func (m *modelQueue) head(class int) *router.Item[int] {
	var heads []*router.Item[int]
	for _, it := range m.parked {
		if it.Class != m.profile.Classes[class] || !m.free(it) {
			continue
		}
		lane := slices.Clone(m.parked)
		lane = slices.DeleteFunc(lane, func(other *router.Item[int]) bool { return !neighbours(it, other) })
		if foremost(lane) == it {
			heads = append(heads, it)
		}
	}
	return foremost(heads)
}

func (m *modelQueue) serve(class int, it *router.Item[int]) *router.Item[int] {
	m.remove(it)
	m.cursor = (class + 1) % len(m.deficit)
	if m.backlog(class) > 0 {
		if m.deficit[class] -= price(it); m.deficit[class] > 0 {
			m.carry = class
		}
	}
	return it
}

func (m *modelQueue) remove(it *router.Item[int]) {
	m.parked = slices.DeleteFunc(m.parked, func(other *router.Item[int]) bool { return other == it })
	for class := range m.deficit {
		if m.backlog(class) == 0 {
			m.deficit[class] = 0
		}
	}
}

func (m *modelQueue) backlog(class int) int {
	n := 0
	for _, it := range m.parked {
		if it.Class == m.profile.Classes[class] {
			n++
		}
	}
	return n
}

func (m *modelQueue) next() *router.Item[int] {
	if c := m.carry; c >= 0 {
		m.carry = -1
		if it := m.head(c); it != nil && price(it) <= m.deficit[c] {
			return m.serve(c, it)
		}
	}
	n := len(m.deficit)
	heads := make([]*router.Item[int], n)
	for i := range n {
		c := (m.cursor + i) % n
		if heads[c] = m.head(c); heads[c] == nil {
			continue
		}
		if price(heads[c]) > m.deficit[c] {
			m.deficit[c] += m.profile.Classes[c].Quantum
		}
		if price(heads[c]) <= m.deficit[c] {
			return m.serve(c, heads[c])
		}
	}
	if !slices.ContainsFunc(heads, func(it *router.Item[int]) bool { return it != nil }) {
		return nil
	}
	for {
		for c, it := range heads {
			if it != nil {
				m.deficit[c] += m.profile.Classes[c].Quantum
			}
		}
		for i := range n {
			c := (m.cursor + i) % n
			if it := heads[c]; it != nil && price(it) <= m.deficit[c] {
				return m.serve(c, it)
			}
		}
	}
}

// Whatever is parked and removed, and whoever has room, the queue lets the same
// requests go as one that looks at all of them: in its lane nobody passes
// another who ranks before, everybody leaves once, and nothing is left behind.
func TestQueueAgainstModel(t *testing.T) {
	profile := policyFile(t, string(wholeFile(t))).Profile("")
	for _, c := range profile.Classes {
		c.Quantum = max(1, c.Quantum/256) // prompts here are short
		c.RequestLimit, c.TokenLimit, c.CachedTokenLimit = nil, nil, nil
	}
	rapid.Check(t, func(t *rapid.T) {
		q := router.NewQueue[int](profile, epoch)
		m := &modelQueue{profile: profile, deficit: make([]int, len(profile.Classes)), carry: -1, capacity: make(map[kv.Target]int)}
		pushed, left := 0, make(map[int]bool)
		gone := func(it *router.Item[int]) {
			if it.Parked() || left[it.Value] {
				t.Fatalf("%d has left before", it.Value)
			}
			left[it.Value] = true
		}
		// follow compares who goes, the first few of them; below 0: all.
		follow := func(t *rapid.T, ready iter.Seq[*router.Item[int]], most int) {
			for it := range ready {
				for _, other := range m.parked {
					if other != it && neighbours(it, other) && passed(it, other) {
						t.Fatalf("%d has passed %d", it.Value, other.Value)
					}
				}
				if want := m.next(); want != it {
					t.Fatalf("%d went, want %+v", it.Value, want)
				}
				m.occupy(it)
				gone(it)
				if most--; most == 0 {
					return
				}
			}
			if it := m.next(); it != nil {
				t.Fatalf("nobody went, want %d", it.Value)
			}
		}
		target := rapid.Custom(func(t *rapid.T) kv.Target {
			return kv.Target{Worker: rapid.Uint64Range(1, 2).Draw(t, "worker"), Rank: rapid.Uint32Range(0, 1).Draw(t, "rank")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "newcomers") {
					it := &router.Item[int]{
						Value:          pushed,
						Class:          rapid.SampledFrom(profile.Classes).Draw(t, "class"),
						Pinned:         rapid.Bool().Draw(t, "pinned"),
						Priority:       float64(rapid.IntRange(-2, 4).Draw(t, "priority")),
						StrictPriority: rapid.Uint32Range(0, 1).Draw(t, "strict"),
						Arrived:        at(float64(rapid.IntRange(0, 6).Draw(t, "arrived"))),
						Tokens:         rapid.IntRange(0, 100).Draw(t, "tokens"),
					}
					it.Cached = rapid.IntRange(0, it.Tokens).Draw(t, "cached")
					if it.Pinned {
						it.Target = target.Draw(t, "target")
					}
					push(t, q, it)
					m.parked = append(m.parked, it)
					pushed++
				}
			},
			"remove": func(t *rapid.T) {
				if len(m.parked) == 0 {
					t.Skip()
				}
				it := rapid.SampledFrom(m.parked).Draw(t, "who")
				if !q.Remove(it) || q.Remove(it) {
					t.Fatalf("%d was removed, but not once", it.Value)
				}
				m.remove(it)
				gone(it)
			},
			"drain": func(t *rapid.T) {
				for range rapid.IntRange(0, 3).Draw(t, "targets") {
					m.capacity[target.Draw(t, "target")] += rapid.IntRange(0, 3).Draw(t, "room")
				}
				follow(t, q.Ready(epoch, m.free), rapid.IntRange(1, 5).Draw(t, "most"))
			},
			"room at one target": func(t *rapid.T) {
				follow(t, q.Ready(epoch, m.free), -1)
				at := target.Draw(t, "target")
				m.capacity[at] += rapid.IntRange(1, 3).Draw(t, "room")
				follow(t, q.ReadyAt(epoch, at, m.free), -1)
			},
			"": func(t *rapid.T) {
				if q.Len() != len(m.parked) || q.Len() != pushed-len(left) {
					t.Fatalf("%d parked, want %d", q.Len(), len(m.parked))
				}
				for i, s := range q.Stats() {
					want := router.QueueStats{Class: s.Class, Requests: m.backlog(i)}
					for _, it := range m.parked {
						if it.Class == profile.Classes[i] {
							want.Tokens += it.Tokens
							want.CachedTokens += it.Cached
						}
					}
					if s.Requests != want.Requests || s.Tokens != want.Tokens || s.CachedTokens != want.CachedTokens || q.Backlog(profile.Classes[i]) != want.Requests {
						t.Fatalf("%+v, want %+v", s, want)
					}
				}
			},
		})
		for range q.Ready(epoch, func(*router.Item[int]) bool { return true }) {
		}
		for _, s := range q.Stats() {
			if q.Len() != 0 || s.Requests != 0 || s.Tokens != 0 || s.CachedTokens != 0 {
				t.Fatalf("left behind: %+v", s)
			}
		}
	})
}

// passed says whether it went although other ranks before it.
func passed(it, other *router.Item[int]) bool {
	if other.Value < it.Value { // it came first
		return ahead(other, it)
	}
	return !ahead(it, other)
}
