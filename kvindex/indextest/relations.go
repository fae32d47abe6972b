package indextest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// relations compares indexes with one another, where two histories must come to
// the same.
func relations(t *testing.T, open func() Index) {
	for _, r := range []struct {
		name  string
		check func(*relation, *testing.T)
	}{
		{"OrderOfIndependentEvents", (*relation).order},
		{"StoredTwice", (*relation).twice},
		{"InPieces", (*relation).pieces},
		{"NeverThere", (*relation).neverThere},
		{"OtherNames", (*relation).otherNames},
		{"PrefixOfQuery", (*relation).prefix},
		{"Dumped", (*relation).dumped},
	} {
		t.Run(r.name, func(t *testing.T) {
			for i := range uint64(30 * *scale / slow) {
				rel := newRelation(open, *seed+i)
				r.check(rel, t)
				if t.Failed() {
					t.Fatalf("seed %d", *seed+i)
				}
			}
		})
	}
}

// relation is a history, and what an index makes of it.
type relation struct {
	open    func() Index
	draw    draw
	history []step // without queries and audits
	queries [][]kv.LocalHash
	model   *model
	index   Index
}

func newRelation(open func() Index, seed uint64) *relation {
	r := &relation{open: open, draw: rand.New(rand.NewPCG(seed, 7)).IntN, model: newModel(), index: open()}
	var next func() []step
	if seed%2 == 0 {
		n := drawNarrow(r.model, r.draw)
		next = func() []step { return []step{n.step()} }
	} else {
		w := wide{workers: 1 + r.draw(12), ranks: 1 + r.draw(2), key: spreads[r.draw(len(spreads))], local: spreads[r.draw(len(spreads))], model: r.model, draw: r.draw}
		next = newWide(w, 20, 60).steps
	}
	p := pair{r.index, r.index.Matcher(), r.model}
	for len(r.history) < 400 {
		for _, s := range next() {
			if s.do == query {
				r.queries = append(r.queries, s.local)
				continue
			}
			_ = p.take(s) // histories does the comparing
			r.history = append(r.history, s)
		}
	}
	for place := range r.model.places {
		if r.draw.percent(20) {
			r.queries = append(r.queries, r.model.path(place))
		}
	}
	return r
}

// after returns an index that has lived through a history.
func (r *relation) after(history []step) Index {
	p := newPair(r.open())
	for _, s := range history {
		_ = p.take(s)
	}
	return p.index
}

// same demands that both indexes answer every query alike.
func (r *relation) same(t *testing.T, got, want Index) {
	t.Helper()
	g, w := got.Matcher(), want.Matcher()
	for _, q := range r.queries {
		if g, w := g(q), w(q); !slices.Equal(g, w) {
			t.Errorf("match %v:\n%s", q, differences(g, w))
			return
		}
	}
	if g, w := got.Stats(), want.Stats(); g.Blocks != w.Blocks || g.Targets != w.Targets || g.Prefixes != w.Prefixes {
		t.Errorf("stats %+v, want %+v", g, w)
	}
}

// The events of one worker mean nothing for another: shuffled against each other
// they come to the same.
func (r *relation) order(t *testing.T) {
	lanes := make(map[uint64][]step)
	var order []uint64
	for _, s := range r.history {
		lanes[s.target.Worker] = append(lanes[s.target.Worker], s)
		order = append(order, s.target.Worker)
	}
	for i := len(order) - 1; i > 0; i-- {
		j := r.draw(i + 1)
		order[i], order[j] = order[j], order[i]
	}
	var shuffled []step
	for _, id := range order {
		shuffled = append(shuffled, lanes[id][0])
		lanes[id] = lanes[id][1:]
	}
	other := r.after(shuffled)
	r.same(t, other, r.index)
	got, want := other.Stats(), r.index.Stats()
	got.Nodes, want.Nodes = 0, 0
	if got != want {
		t.Errorf("stats %+v\nwant  %+v", got, want)
	}
}

// Every event may come twice.
func (r *relation) twice(t *testing.T) {
	var doubled []step
	for _, s := range r.history {
		doubled = append(doubled, s)
		if s.do != apply || s.event.Kind == kv.Stored {
			doubled = append(doubled, s)
		}
	}
	r.same(t, r.after(doubled), r.index)
}

// A run may be stored in pieces, each under the last key of the one before it.
// What comes after a block that is its own ancestor is not stored either way.
func (r *relation) pieces(t *testing.T) {
	p := newPair(r.open())
	for _, s := range r.history {
		if s.do != apply || s.event.Kind != kv.Stored {
			_ = p.take(s)
			continue
		}
		rest := s.event.Blocks
		for len(rest) > 0 {
			n := 1 + r.draw(len(rest))
			s.event.Blocks = rest[:n]
			if p.index.Apply(s.target, s.event) != nil {
				break
			}
			s.event.HasParent, s.event.Parent = true, rest[n-1].Engine
			rest = rest[n:]
		}
	}
	r.same(t, p.index, r.index)
}

// Once a worker has left, it is as if it had never been.
func (r *relation) neverThere(t *testing.T) {
	gone := uint64(1 + r.draw(3))
	var without []step
	for _, s := range r.history {
		if s.target.Worker != gone {
			without = append(without, s)
		}
	}
	other := r.after(without)
	r.index.RemoveWorker(gone)
	r.same(t, r.index, other)
	for _, s := range r.history { // and it may come again
		if s.target.Worker == gone {
			_ = pair{index: r.index, model: newModel()}.take(s)
			_ = pair{index: other, model: newModel()}.take(s)
		}
	}
	r.same(t, r.index, other)
}

// What keys and contents are called does not matter, nor what workers are, as
// long as their order stays.
func (r *relation) otherNames(t *testing.T) {
	key := func(k kv.EngineHash) kv.EngineHash { return kv.EngineHash(mix(uint64(k) ^ 0x9e37)) }
	local := func(l kv.LocalHash) kv.LocalHash { return kv.LocalHash(^mix(uint64(l))) }
	target := func(t kv.Target) kv.Target {
		return kv.Target{Worker: t.Worker*1_000_003 + 17, Rank: t.Rank * 3}
	}
	var renamed []step
	for _, s := range r.history {
		s.target, s.event.Parent = target(s.target), key(s.event.Parent)
		s.event.Blocks = slices.Clone(s.event.Blocks)
		for i, b := range s.event.Blocks {
			s.event.Blocks[i] = kv.Block{Engine: key(b.Engine), Local: local(b.Local)}
		}
		renamed = append(renamed, s)
	}
	match, other := r.index.Matcher(), r.after(renamed).Matcher()
	for _, q := range r.queries {
		var want []kvindex.Match
		for _, m := range match(q) {
			want = append(want, kvindex.Match{Target: target(m.Target), Blocks: m.Blocks})
		}
		q = slices.Clone(q)
		for i, l := range q {
			q[i] = local(l)
		}
		if got := other(q); !slices.Equal(got, want) {
			t.Errorf("match %v:\n%s", q, differences(got, want))
			return
		}
	}
}

// What is found for the beginning of a prompt is the beginning of what is found
// for the whole.
func (r *relation) prefix(t *testing.T) {
	match := r.index.Matcher()
	for _, q := range r.queries {
		whole := slices.Clone(match(q))
		n := r.draw(len(q) + 1)
		var want []kvindex.Match
		for _, m := range whole {
			left := int32(n)
			for tier, blocks := range m.Blocks {
				m.Blocks[tier] = min(blocks, left)
				left -= m.Blocks[tier]
			}
			if m.Blocks != [4]int32{} {
				want = append(want, m)
			}
		}
		if got := match(q[:n]); !slices.Equal(got, want) {
			t.Errorf("match %v:\n%s", q[:n], differences(got, want))
			return
		}
	}
}

// What was dumped can be loaded, and lives on as the original does: the same
// events mean the same to both.
func (r *relation) dumped(t *testing.T) {
	d, ok := r.index.(Dumper)
	if !ok {
		return
	}
	other := r.open()
	for target := range r.model.caches {
		for e := range d.Dump(target) {
			if err := other.Apply(target, e); err != nil {
				t.Fatalf("load %v %+v: %v", target, e, err)
			}
		}
	}
	r.same(t, other, r.index)
	for target, c := range r.model.caches {
		if err := tally(other, target, c); err != nil {
			t.Error(err)
		}
	}
	for i, s := range r.history {
		if s.do != apply {
			continue
		}
		if got, want := other.Apply(s.target, s.event), r.index.Apply(s.target, s.event); got != want {
			t.Fatalf("%v after a load: error %v, want %v", s, got, want)
		}
		if i%10 == 0 {
			r.same(t, other, r.index)
		}
	}
}
