package kvcache_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"pgregory.net/rapid"
)

// store allocates and registers one sequence from the root and returns its
// blocks; the hashes are its identity.
func store(t testing.TB, p *kvcache.Pool, hashes ...kv.SeqHash) []kvcache.Ref {
	t.Helper()
	refs, _, ok := p.Allocate(nil, len(hashes))
	if !ok {
		t.Fatalf("no room for %d blocks: %+v", len(hashes), p.Stats())
	}
	parent := kvcache.Root
	for i, h := range hashes {
		p.Register(refs[i], h, parent)
		parent = refs[i]
	}
	return refs
}

func TestEvictsLeavesOfTheOldestFirst(t *testing.T) {
	p := kvcache.New(6)
	old := store(t, p, 1, 2, 3)
	young := store(t, p, 11, 12)
	p.Release(old)
	p.Release(young)

	var order []kv.SeqHash
	for range 6 {
		_, evicted, ok := p.Allocate(nil, 1)
		if !ok {
			t.Fatal("no room")
		}
		order = append(order, evicted...)
	}
	if want := []kv.SeqHash{3, 2, 1, 12, 11}; !slices.Equal(order, want) {
		t.Errorf("evicted %v, want %v (one slot was free)", order, want)
	}
}

func TestMatchProtectsAndRenews(t *testing.T) {
	p := kvcache.New(4)
	p.Release(store(t, p, 1, 2))
	p.Release(store(t, p, 11, 12))
	held := p.Match(nil, []kv.SeqHash{1, 99})
	if len(held) != 1 || p.State(held[0]) != kvcache.Primary {
		t.Fatalf("matched %v", held)
	}
	if present, inactive := p.Prefix([]kv.SeqHash{1, 2, 3}); present != 2 || inactive != 1 {
		t.Errorf("Prefix = %d, %d, want 2, 1", present, inactive)
	}
	before := p.Stats()
	if _, _, ok := p.Allocate(nil, 4); ok || p.Stats() != before {
		t.Errorf("allocating 4 beside a held block: ok %v, stats %+v, want %+v", ok, p.Stats(), before)
	}
	_, evicted, ok := p.Allocate(nil, 3)
	if want := []kv.SeqHash{2, 12, 11}; !ok || !slices.Equal(evicted, want) {
		t.Errorf("evicted %v, %v, want %v", evicted, ok, want)
	}
}

func TestDuplicateKeepsItsPrimary(t *testing.T) {
	p := kvcache.New(5)
	first := store(t, p, 1, 2)
	second, _, _ := p.Allocate(nil, 3)
	if p.Register(second[0], 1, kvcache.Root) || p.Register(second[1], 2, second[0]) {
		t.Fatal("the same hashes were new twice")
	}
	if !p.Register(second[2], 3, second[1]) {
		t.Fatal("a new child of a duplicate was not new")
	}
	p.Release(first)
	if s := p.Stats(); s.Primary != 3 || s.Duplicate != 2 || s.Inactive != 0 {
		t.Errorf("with the duplicates held: %+v", s)
	}
	if p.Parent(second[2]) != first[1] || p.Hash(second[1]) != 2 {
		t.Errorf("the child of a duplicate hangs below %d, want %d", p.Parent(second[2]), first[1])
	}
	p.Release(second)
	if s := p.Stats(); s.Free != 2 || s.Inactive != 3 {
		t.Errorf("after all: %+v", s)
	}
}

func TestMisusePanics(t *testing.T) {
	for name, misuse := range map[string]func(*kvcache.Pool){
		"release twice": func(p *kvcache.Pool) {
			r := store(t, p, 1)
			p.Release(r)
			p.Release(r)
		},
		"register twice":        func(p *kvcache.Pool) { p.Register(store(t, p, 1)[0], 2, kvcache.Root) },
		"parent not published":  func(p *kvcache.Pool) { r, _, _ := p.Allocate(nil, 2); p.Register(r[0], 1, r[1]) },
		"allocate less than 0":  func(p *kvcache.Pool) { p.Allocate(nil, -1) },
		"a pool without blocks": func(*kvcache.Pool) { kvcache.New(0) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse(kvcache.New(4))
		})
	}
}

func TestMetadataPerBlock(t *testing.T) {
	const n, depth = 4000, 100
	for _, c := range []struct {
		name  string
		limit float64
		ask   func(*kvcache.Pool, int, []kv.SeqHash, []kvcache.Ref)
	}{
		{"nothing", 96, nil},
		{"sessions", 96, func(p *kvcache.Pool, i int, seq []kv.SeqHash, refs []kvcache.Ref) {
			id := kvcache.SessionID(i + 1)
			p.BeginTurn(id, kvcache.SessionOptions{}, seq)
			p.EndTurn(id, refs)
		}},
		{"all of it", 200, func(p *kvcache.Pool, i int, seq []kv.SeqHash, refs []kvcache.Ref) {
			id := kvcache.SessionID(i + 1)
			p.BeginTurn(id, kvcache.SessionOptions{}, seq)
			for _, r := range refs {
				p.Retain(r, kvcache.Retention{Priority: 80, TTL: time.Minute})
			}
			p.Pin(seq[:depth/4], kvcache.Pin{Owner: id, TTL: time.Hour})
			p.EndTurn(id, refs)
		}},
	} {
		before := inUse()
		p := kvcache.NewPool(kvcache.PoolConfig{Blocks: n, PinBudget: n / 4})
		seq := make([]kv.SeqHash, depth)
		for i := range n / depth {
			if c.ask == nil {
				break
			}
			for k := range seq {
				seq[k] = kv.SeqHash(i*depth + k + 1)
			}
			refs := store(t, p, seq...)
			c.ask(p, i, seq, refs)
			p.Release(refs)
		}
		per := float64(inUse()-before) / n
		if t.Logf("%s: %.1f bytes per block", c.name, per); per > c.limit {
			t.Errorf("%s: %.1f bytes per block, want at most %v", c.name, per, c.limit)
		}
		runtime.KeepAlive(p)
	}
}

func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func Example() {
	pool := kvcache.New(8)
	prompt := []kv.SeqHash{0xa, 0xb, 0xc}

	// The first request finds nothing and stores three blocks.
	refs := pool.Match(nil, prompt)
	fmt.Println("found", len(refs))
	refs, _, _ = pool.Allocate(refs, len(prompt))
	parent := kvcache.Root
	for i, r := range refs {
		pool.Register(r, prompt[i], parent)
		parent = r
	}
	pool.Release(refs)

	// The next one shares two of them.
	refs = pool.Match(nil, []kv.SeqHash{0xa, 0xb, 0xd})
	fmt.Println("found", len(refs), "of which in use", pool.Stats().Primary)
	pool.Release(refs)
	// Output:
	// found 0
	// found 2 of which in use 2
}

// model is the same pool with scans instead of structure.
type model struct {
	slots []slot
	clock int
}

type slot struct {
	state kvcache.State
	hash  kv.SeqHash
	up    int // parent, or primary of a duplicate; -1 none
	refs  int // of callers alone
	idle  int // when it fell idle or free
}

// held says whether slot i is in use: by a caller, or from below.
func (m *model) held(i int) bool {
	if m.slots[i].refs > 0 {
		return true
	}
	for j, s := range m.slots {
		if s.up == i && m.held(j) {
			return true
		}
	}
	return false
}

func (m *model) find(h kv.SeqHash) int {
	for i, s := range m.slots {
		if s.hash == h && (s.state == kvcache.Primary || s.state == kvcache.Inactive) {
			return i
		}
	}
	return -1
}

// settle gives every published slot the state that its holders call for. The
// deeper a block, the earlier it falls idle.
func (m *model) settle() {
	for {
		changed := false
		for i := range m.slots {
			s := &m.slots[i]
			switch {
			case s.state == kvcache.Inactive && m.held(i):
				s.state, changed = kvcache.Primary, true
			case s.state == kvcache.Primary && !m.held(i) && !m.activeChild(i):
				m.clock++
				s.state, s.idle, changed = kvcache.Inactive, m.clock, true
			}
		}
		if !changed {
			return
		}
	}
}

func (m *model) activeChild(i int) bool {
	return slices.ContainsFunc(m.slots, func(s slot) bool { return s.state == kvcache.Primary && s.up == i })
}

func (m *model) hasChild(i int) bool {
	return slices.ContainsFunc(m.slots, func(s slot) bool {
		return s.up == i && (s.state == kvcache.Primary || s.state == kvcache.Inactive)
	})
}

// victim is the leaf that has been idle longest.
func (m *model) victim() int {
	best := -1
	for i, s := range m.slots {
		if s.state == kvcache.Inactive && !m.hasChild(i) && (best < 0 || s.idle < m.slots[best].idle) {
			best = i
		}
	}
	return best
}

func (m *model) oldestFree() int {
	best := -1
	for i, s := range m.slots {
		if s.state == kvcache.Reset && (best < 0 || s.idle < m.slots[best].idle) {
			best = i
		}
	}
	return best
}

func (m *model) release(i int) {
	s := &m.slots[i]
	s.refs--
	if s.refs == 0 && (s.state == kvcache.Mutable || s.state == kvcache.Duplicate) {
		m.clock++
		*s = slot{up: -1, idle: m.clock}
	}
	m.settle()
}

func (m *model) stats() kvcache.Stats {
	st := kvcache.Stats{Total: len(m.slots)}
	for _, s := range m.slots {
		switch s.state {
		case kvcache.Reset:
			st.Free++
		case kvcache.Mutable:
			st.Mutable++
		case kvcache.Primary:
			st.Primary++
		case kvcache.Duplicate:
			st.Duplicate++
		case kvcache.Inactive:
			st.Inactive++
		}
	}
	return st
}

// TestAgainstModel runs random programs over pool and model and demands the
// same slots, victims, counts and matches after every step: invariants I1 to I7
// and I9 of any block manager. Sequences come from a small tree, so that they
// share, duplicate and collide, and references are released in any order, also
// such that a child outlives its parent's holder.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "slots")
		p := kvcache.New(n)
		m := &model{slots: make([]slot, n)}
		for i := range m.slots {
			m.clock++
			m.slots[i] = slot{up: -1, idle: m.clock}
		}
		var held []kvcache.Ref // every reference out
		path := func(t *rapid.T) []kv.SeqHash {
			var seq []kv.SeqHash
			h := kv.SeqHash(1)
			for range rapid.IntRange(1, 5).Draw(t, "depth") {
				h = h*2 + kv.SeqHash(rapid.IntRange(0, 1).Draw(t, "branch"))
				seq = append(seq, h)
			}
			return seq
		}
		take := func(t *rapid.T) kvcache.Ref {
			k := rapid.IntRange(0, len(held)-1).Draw(t, "which")
			r := held[k]
			held = slices.Delete(held, k, k+1)
			return r
		}
		t.Repeat(map[string]func(*rapid.T){
			"allocate": func(t *rapid.T) {
				want := rapid.IntRange(0, 4).Draw(t, "n")
				st := m.stats()
				refs, evicted, ok := p.Allocate(nil, want)
				if ok != (want <= st.Free+st.Inactive) {
					t.Fatalf("allocate %d with %+v: ok = %v", want, st, ok)
				}
				if !ok {
					return
				}
				var victims []kv.SeqHash
				for k := range want {
					i := m.oldestFree()
					if i < 0 {
						i = m.victim()
						victims = append(victims, m.slots[i].hash)
					}
					m.slots[i] = slot{state: kvcache.Mutable, up: -1, refs: 1}
					if refs[k] != kvcache.Ref(i) {
						t.Fatalf("allocated %v, want slot %d at %d", refs, i, k)
					}
				}
				if !slices.Equal(evicted, victims) {
					t.Fatalf("evicted %v, want %v", evicted, victims)
				}
				held = append(held, refs...)
			},
			"match": func(t *rapid.T) {
				seq := path(t)
				present, inactive := p.Prefix(seq)
				refs := p.Match(nil, seq)
				if len(refs) != present {
					t.Fatalf("Prefix says %d, Match %d", present, len(refs))
				}
				idle := 0
				for k, h := range seq {
					i := m.find(h)
					if i < 0 {
						if len(refs) != k {
							t.Fatalf("matched %d of %v, want %d", len(refs), seq, k)
						}
						break
					}
					if m.slots[i].state == kvcache.Inactive {
						idle++
					}
					if refs[k] != kvcache.Ref(i) {
						t.Fatalf("matched %v, want slot %d at %d", refs, i, k)
					}
				}
				if idle != inactive {
					t.Fatalf("Prefix says %d inactive, want %d", inactive, idle)
				}
				for _, r := range refs {
					m.slots[r].refs++
				}
				m.settle()
				held = append(held, refs...)
			},
			"sequence": func(t *rapid.T) {
				// What a request does: match, allocate the rest, register it.
				seq := path(t)
				refs := p.Match(nil, seq)
				for _, r := range refs {
					m.slots[r].refs++
				}
				m.settle()
				found := len(refs)
				held = append(held, refs...)
				st := m.stats()
				refs, _, ok := p.Allocate(refs, len(seq)-found)
				if ok != (len(seq)-found <= st.Free+st.Inactive) {
					t.Fatalf("allocate %d with %+v: ok = %v", len(seq)-found, st, ok)
				}
				for k := found; k < len(refs); k++ {
					i := m.oldestFree()
					if i < 0 {
						i = m.victim()
					}
					m.slots[i] = slot{state: kvcache.Mutable, up: -1, refs: 1}
					held = append(held, refs[k])
				}
				for k := found; k < len(refs); k++ {
					parent := kvcache.Root
					if k > 0 {
						parent = refs[k-1]
					}
					m.register(t, p, refs[k], seq[k], parent)
				}
			},
			"register": func(t *rapid.T) {
				mutable := slices.DeleteFunc(slices.Clone(held), func(r kvcache.Ref) bool { return p.State(r) != kvcache.Mutable })
				if len(mutable) == 0 {
					return
				}
				r := mutable[rapid.IntRange(0, len(mutable)-1).Draw(t, "which")]
				seq := path(t)
				parent := kvcache.Root
				if len(seq) > 1 {
					k := slices.IndexFunc(held, func(r kvcache.Ref) bool { return p.Hash(r) == seq[len(seq)-2] })
					if k < 0 {
						return
					}
					parent = held[k]
				}
				m.register(t, p, r, seq[len(seq)-1], parent)
			},
			"release": func(t *rapid.T) {
				if len(held) == 0 {
					return
				}
				var refs []kvcache.Ref
				for range rapid.IntRange(1, len(held)).Draw(t, "n") {
					refs = append(refs, take(t))
				}
				p.Release(refs)
				for k := len(refs) - 1; k >= 0; k-- {
					m.release(int(refs[k]))
				}
			},
			"": func(t *rapid.T) {
				if got, want := p.Stats(), m.stats(); got != want {
					t.Fatalf("stats %+v, want %+v", got, want)
				}
				for i, s := range m.slots {
					if got := p.State(kvcache.Ref(i)); got != s.state {
						t.Fatalf("slot %d is %s, want %s", i, got, s.state)
					}
				}
				m.chains(t, p)
			},
		})
	})
}

func (m *model) register(t *rapid.T, p *kvcache.Pool, r kvcache.Ref, h kv.SeqHash, parent kvcache.Ref) {
	primary := m.find(h)
	if added := p.Register(r, h, parent); added != (primary < 0) {
		t.Fatalf("register %d: added = %v, model has it in slot %d", h, added, primary)
	}
	s := &m.slots[r]
	s.hash = h
	switch {
	case primary >= 0:
		s.state, s.up = kvcache.Duplicate, primary
	case parent == kvcache.Root:
		s.state, s.up = kvcache.Primary, -1
	default:
		s.state, s.up = kvcache.Primary, int(parent)
		if m.slots[parent].state == kvcache.Duplicate {
			s.up = m.slots[parent].up
		}
	}
	m.settle()
}

// chains checks that Chains tells every published block once, parents first.
func (m *model) chains(t *rapid.T, p *kvcache.Pool) {
	told := map[kvcache.Ref]bool{}
	for run := range p.Chains() {
		for k, r := range run {
			parent := p.Parent(r)
			if k > 0 && parent != run[k-1] || parent != kvcache.Root && !told[parent] || told[r] {
				t.Fatalf("run %v: block %d below %d, told before: %v", run, r, parent, told)
			}
			told[r] = true
		}
	}
	st := m.stats()
	if len(told) != st.Primary+st.Inactive {
		t.Fatalf("chains tell %d blocks of %+v", len(told), st)
	}
}

// BenchmarkSequence is one request's life: match what is there of 128 blocks,
// allocate and register the rest, release all. Half of each sequence is shared
// with others; a pool of 100,000 is kept full, so that every allocation evicts.
func BenchmarkSequence(b *testing.B) {
	const blocks, slots, half = 128, 100_000, 64
	p := kvcache.New(slots)
	seq := make([]kv.SeqHash, blocks)
	var refs []kvcache.Ref
	run := func(i int) {
		h := kv.SeqHash(i%512+1) << 32
		for k := range seq {
			if k == half {
				h = kv.SeqHash(i)<<20 | 1
			}
			h += 0x9e3779b97f4a7c15
			seq[k] = h
		}
		refs = p.Match(refs[:0], seq)
		found := len(refs)
		if i >= 512 && found != half {
			b.Fatalf("sequence %d found %d blocks, want %d", i, found, half)
		}
		refs, _, _ = p.Allocate(refs, blocks-found)
		for k := found; k < blocks; k++ {
			parent := kvcache.Root
			if k > 0 {
				parent = refs[k-1]
			}
			p.Register(refs[k], seq[k], parent)
		}
		p.Release(refs)
	}
	warm := 2 * slots / half
	for i := range warm {
		run(i)
	}
	b.ReportAllocs()
	i := warm
	for b.Loop() {
		run(i)
		i++
	}
	b.ReportMetric(float64(b.N)*blocks/b.Elapsed().Seconds(), "blocks/s")
}
