package kvindex_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

var (
	a = kv.Target{Worker: 1}
	b = kv.Target{Worker: 2}
	c = kv.Target{Worker: 2, Rank: 1}
)

// pairs makes blocks of (engine, local) pairs.
func pairs(v ...uint64) []kv.Block {
	var blocks []kv.Block
	for i := 0; i < len(v); i += 2 {
		blocks = append(blocks, kv.Block{Engine: kv.EngineHash(v[i]), Local: kv.LocalHash(v[i+1])})
	}
	return blocks
}

func root(blocks ...uint64) kv.Event { return kv.Event{Blocks: pairs(blocks...)} }

func under(parent kv.EngineHash, blocks ...uint64) kv.Event {
	return kv.Event{Parent: parent, HasParent: true, Blocks: pairs(blocks...)}
}

func remove(engine ...uint64) kv.Event {
	e := kv.Event{Kind: kv.Removed}
	for _, h := range engine {
		e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(h)})
	}
	return e
}

func on(tier kv.Tier, e kv.Event) kv.Event {
	e.Tier = tier
	return e
}

func match(x *kvindex.Index, local ...kv.LocalHash) []kvindex.Match {
	var m kvindex.Matches
	x.Match(local, &m)
	return m.Found
}

type step struct {
	target kv.Target
	event  kv.Event
	err    error
}

func TestApply(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []step
		query []kv.LocalHash
		want  []kvindex.Match
	}{
		{
			"leading run only",
			[]step{{a, root(10, 1, 11, 2, 12, 3), nil}, {b, root(20, 1, 21, 9), nil}, {c, root(30, 2, 31, 3), nil}},
			[]kv.LocalHash{1, 2, 3, 4},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{3}}, {Target: b, Blocks: [4]int32{1}}},
		},
		{
			"continued under its parent",
			[]step{{a, root(10, 1), nil}, {a, under(10, 11, 2), nil}, {a, under(11, 12, 3), nil}},
			[]kv.LocalHash{1, 2, 3},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{3}}},
		},
		{
			"same content under another parent",
			[]step{{a, root(10, 1, 11, 2), nil}, {a, root(12, 5, 13, 2), nil}},
			[]kv.LocalHash{5, 2, 2},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{2}}},
		},
		{
			"child before its parent",
			[]step{{a, under(10, 11, 2), kvindex.ErrParentNotFound}, {a, root(10, 1), nil}},
			[]kv.LocalHash{1, 2},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{1}}},
		},
		{
			"parent of another target",
			[]step{{a, root(10, 1), nil}, {b, root(20, 1), nil}, {b, under(10, 11, 2), kvindex.ErrParentNotFound}},
			[]kv.LocalHash{1, 2},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{1}}, {Target: b, Blocks: [4]int32{1}}},
		},
		{
			"stored twice",
			[]step{{a, root(10, 1, 11, 2), nil}, {a, root(10, 1, 11, 2, 12, 3), nil}, {a, remove(12), nil}},
			[]kv.LocalHash{1, 2, 3},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{2}}},
		},
		{
			"known key with another content",
			[]step{{a, root(10, 1), nil}, {a, root(10, 7, 11, 2), nil}},
			[]kv.LocalHash{1, 2},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{2}}},
		},
		{
			"hole in the middle",
			[]step{{a, root(10, 1, 11, 2, 12, 3), nil}, {a, remove(11), nil}},
			[]kv.LocalHash{1, 2, 3},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{1}}},
		},
		{
			"hole mended under a new key",
			[]step{{a, root(10, 1, 11, 2, 12, 3), nil}, {a, remove(11), nil}, {a, under(10, 99, 2), nil}},
			[]kv.LocalHash{1, 2, 3},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{3}}},
		},
		{
			"two keys for one place",
			[]step{{a, root(10, 1), nil}, {a, root(11, 1), nil}, {a, remove(10), nil}},
			[]kv.LocalHash{1},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{1}}},
		},
		{
			"removal of the unknown",
			[]step{{a, remove(10), kvindex.ErrBlockNotFound}, {a, root(10, 1, 11, 2), nil}, {a, remove(98, 11, 99), kvindex.ErrBlockNotFound}},
			[]kv.LocalHash{1, 2},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{1}}},
		},
		{
			"removal on the wrong tier",
			[]step{{a, root(10, 1), nil}, {a, on(kv.TierHost, remove(10)), kvindex.ErrBlockNotFound}},
			[]kv.LocalHash{1},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{1}}},
		},
		{
			"own parent",
			[]step{{a, root(10, 1), nil}, {a, under(10, 10, 1), kvindex.ErrInvalidSequence}},
			[]kv.LocalHash{1, 1},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{1}}},
		},
		{
			"own ancestor",
			[]step{{a, root(10, 1, 11, 2, 12, 3, 10, 4, 13, 5), kvindex.ErrInvalidSequence}},
			[]kv.LocalHash{1, 2, 3, 4, 5},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{3}}},
		},
		{
			"cleared on every tier",
			[]step{{a, root(10, 1), nil}, {a, on(kv.TierDisk, root(10, 1)), nil}, {b, root(10, 1), nil}, {a, kv.Event{Kind: kv.Cleared}, nil}},
			[]kv.LocalHash{1},
			[]kvindex.Match{{Target: b, Blocks: [4]int32{1}}},
		},
		{
			"unknown tier and kind",
			[]step{{a, on(9, root(10, 1)), kvindex.ErrUnsupported}, {a, kv.Event{Kind: 9}, kvindex.ErrUnsupported}},
			[]kv.LocalHash{1},
			nil,
		},
		{
			"tiers continue one another",
			[]step{
				{a, root(10, 1, 11, 2), nil},
				{a, on(kv.TierHost, root(10, 1, 11, 2, 12, 3)), nil},
				{a, on(kv.TierDisk, under(12, 13, 4, 14, 5)), nil},
				{b, on(kv.TierHost, root(10, 1)), nil},
				{b, on(kv.TierShared, under(10, 11, 2)), nil},
				{b, on(kv.TierHost, under(11, 12, 3)), nil}, // host does not come back after the shared store
			},
			[]kv.LocalHash{1, 2, 3, 4, 5, 6},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{2, 1, 2, 0}}, {Target: b, Blocks: [4]int32{0, 1, 0, 1}}},
		},
		{
			"gone from the device, still on the host",
			[]step{{a, root(10, 1), nil}, {a, on(kv.TierHost, root(10, 1)), nil}, {a, remove(10), nil}, {a, under(10, 11, 2), nil}},
			[]kv.LocalHash{1, 2},
			[]kvindex.Match{{Target: a, Blocks: [4]int32{0, 1}}},
		},
		{"empty query", []step{{a, root(10, 1), nil}}, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := kvindex.New()
			for i, s := range tc.steps {
				if err := x.Apply(s.target, s.event); !errors.Is(err, s.err) {
					t.Fatalf("step %d: error %v, want %v", i, err, s.err)
				}
			}
			if got := match(x, tc.query...); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestRemoveWorker(t *testing.T) {
	x := kvindex.New()
	for _, target := range []kv.Target{a, b, c} {
		if err := x.Apply(target, root(10, 1, 11, 2)); err != nil {
			t.Fatal(err)
		}
	}
	x.RemoveTarget(c)
	if got := match(x, 1, 2); len(got) != 2 {
		t.Errorf("after one rank left: %v", got)
	}
	x.RemoveWorker(2)
	if got := match(x, 1, 2); len(got) != 1 || got[0].Target != a {
		t.Errorf("after worker 2 left: %v", got)
	}
	x.RemoveWorker(1)
	x.RemoveWorker(1)
	if s := x.Stats(); s.Targets != 0 || s.Nodes != 0 || s.Blocks != 0 {
		t.Errorf("after all left: %+v", s)
	}
}

func TestStats(t *testing.T) {
	x := kvindex.New()
	for _, e := range []kv.Event{
		root(10, 1, 11, 2), root(10, 1, 11, 2, 12, 3), root(10, 5), under(77, 12, 3), remove(77), under(11, 10, 1), on(9, root()), {Kind: kv.Cleared}, root(10, 1),
	} {
		_ = x.Apply(a, e) // what fails is what is counted
	}
	want := kvindex.Stats{
		Targets: 1, Nodes: 1, Prefixes: 1, Blocks: 1,
		Stored: 7, Removed: 1, Cleared: 1,
		ParentNotFound: 1, BlockNotFound: 1, InvalidSequence: 1, Unsupported: 1, Conflicts: 1, Duplicates: 2,
	}
	if got := x.Stats(); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Many more targets than fit into one word of a set.
func TestManyTargets(t *testing.T) {
	const n = 300
	x := kvindex.New()
	for w := range uint64(n) {
		if err := x.Apply(kv.Target{Worker: n - w}, root(10, 1, 11, 2, 12, 3)); err != nil {
			t.Fatal(err)
		}
		if w%2 == 0 {
			if err := x.Apply(kv.Target{Worker: n - w}, remove(12)); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := match(x, 1, 2, 3)
	if len(got) != n {
		t.Fatalf("found %d targets, want %d", len(got), n)
	}
	for i, m := range got {
		if want := (kvindex.Match{Target: kv.Target{Worker: uint64(i + 1)}, Blocks: [4]int32{3 - int32(i%2)}}); m != want {
			t.Fatalf("%d: got %v, want %v", i, m, want)
		}
	}
}

// So many holes in one run that no list of them would do.
func TestManyHoles(t *testing.T) {
	const targets, length = 60, 1000
	x := kvindex.New()
	all := kv.Event{Blocks: make([]kv.Block, length)}
	prompt := make([]kv.LocalHash, length)
	for i := range all.Blocks {
		all.Blocks[i] = kv.Block{Engine: kv.EngineHash(i), Local: kv.LocalHash(i % 7)}
		prompt[i] = all.Blocks[i].Local
	}
	for w := range uint64(targets) {
		target := kv.Target{Worker: w}
		for _, e := range []kv.Event{all, on(kv.TierHost, all)} {
			if err := x.Apply(target, e); err != nil {
				t.Fatal(err)
			}
		}
		for i := 1 + int(w)%2; i < length; i += 2 {
			for _, tier := range []kv.Tier{kv.TierDevice, kv.TierHost} {
				if err := x.Apply(target, on(tier, remove(uint64(i)))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for i, m := range match(x, prompt...) {
		if want := (kvindex.Match{Target: kv.Target{Worker: uint64(i)}, Blocks: [4]int32{1 + int32(i%2)}}); m != want {
			t.Fatalf("with holes: got %v, want %v", m, want)
		}
	}
	for w := range uint64(targets) {
		for i := 1 + w%2; i < length; i += 2 {
			if err := x.Apply(kv.Target{Worker: w}, under(kv.EngineHash(i-1), i, uint64(prompt[i]))); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := match(x, prompt...)
	if len(got) != targets {
		t.Fatalf("found %d of %d", len(got), targets)
	}
	for i, m := range got {
		if want := (kvindex.Match{Target: kv.Target{Worker: uint64(i)}, Blocks: [4]int32{length}}); m != want {
			t.Fatalf("mended: got %v, want %v", m, want)
		}
	}
	for w := range uint64(targets) {
		x.RemoveWorker(w)
	}
	if s := x.Stats(); s.Nodes != 0 || s.Prefixes != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// Readers always see some prefix of what one writer stores and removes.
func TestConcurrentUse(t *testing.T) {
	x := kvindex.New()
	var wg sync.WaitGroup
	for w := range uint64(4) {
		wg.Go(func() {
			target := kv.Target{Worker: w}
			for range 200 {
				for _, e := range []kv.Event{root(10, 1, 11, 2), under(11, 12, 3), remove(12, 11)} {
					if err := x.Apply(target, e); err != nil {
						t.Error(err)
					}
				}
			}
			x.RemoveWorker(w)
		})
		wg.Go(func() {
			var m kvindex.Matches
			for range 500 {
				x.Match([]kv.LocalHash{1, 2, 3}, &m)
				for _, f := range m.Found {
					if f.Blocks[0] < 1 || f.Blocks[0] > 3 {
						t.Errorf("impossible match %v", f)
					}
				}
				x.Stats()
			}
		})
	}
	wg.Wait()
	if s := x.Stats(); s.Nodes != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// A target tells on which tiers it holds a block, by its own name for it.
func TestTiersOf(t *testing.T) {
	x := kvindex.New()
	a, b := kv.Target{Worker: 1}, kv.Target{Worker: 2}
	store := func(of kv.Target, tier kv.Tier, key kv.EngineHash) {
		if err := x.Apply(of, kv.Event{Kind: kv.Stored, Tier: tier, Blocks: []kv.Block{{Engine: key, Local: 7}}}); err != nil {
			t.Fatal(err)
		}
	}
	store(a, kv.TierDevice, 10)
	store(a, kv.TierDisk, 10)
	store(b, kv.TierHost, 20)
	for _, tt := range []struct {
		of   kv.Target
		key  kv.EngineHash
		want []kv.Tier
	}{
		{a, 10, []kv.Tier{kv.TierDevice, kv.TierDisk}},
		{a, 20, nil},
		{b, 20, []kv.Tier{kv.TierHost}},
		{kv.Target{Worker: 3}, 10, nil},
	} {
		if got := x.TiersOf(tt.of, tt.key); !slices.Equal(got, tt.want) {
			t.Errorf("%v holds %d on %v, want %v", tt.of, tt.key, got, tt.want)
		}
	}
	if err := x.Apply(a, kv.Event{Kind: kv.Removed, Tier: kv.TierDevice, Blocks: []kv.Block{{Engine: 10}}}); err != nil {
		t.Fatal(err)
	}
	if got := x.TiersOf(a, 10); !slices.Equal(got, []kv.Tier{kv.TierDisk}) {
		t.Errorf("after the loss of one: on %v", got)
	}
}
