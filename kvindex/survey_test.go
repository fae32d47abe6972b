package kvindex_test

import (
	"slices"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

func TestStatsOf(t *testing.T) {
	x := kvindex.New()
	for _, s := range []step{
		{target: a, event: root(10, 1, 11, 2, 12, 3)},
		{target: a, event: root(20, 1)}, // another key for the first block
		{target: a, event: on(kv.TierHost, root(10, 1, 11, 2))},
		{target: a, event: on(kv.TierDisk, under(12, 13, 4))},
		{target: b, event: root(50, 1, 51, 2)},
		{target: b, event: remove(50)}, // the second block alone is left
		{target: c, event: on(kv.TierShared, root(60, 1, 61, 2, 62, 3, 63, 4, 64, 5))},
	} {
		if err := x.Apply(s.target, s.event); err != nil {
			t.Fatal(err)
		}
	}
	for target, want := range map[kv.Target]kvindex.TargetStats{
		a:           {Keys: 5, Blocks: [4]int{3, 2, 1, 0}, Distinct: 4, Shared: 4},
		b:           {Keys: 1, Blocks: [4]int{1}, Distinct: 1, Shared: 1},
		c:           {Keys: 5, Blocks: [4]int{0, 0, 0, 5}, Distinct: 5, Shared: 4},
		{Worker: 9}: {},
	} {
		if got := x.StatsOf(target); got != want {
			t.Errorf("%v: got %+v, want %+v", target, got, want)
		}
	}
	wantBlocksOn(t, x, a, 4, 2, 1, 0) // of the device, two keys are of one block
	wantBlocksOn(t, x, b, 1, 0, 0, 0)
	wantBlocksOn(t, x, c, 0, 0, 0, 5)
	_ = x.Apply(a, on(kv.TierHost, remove(10, 12, 99))) // 12 is not there, 99 nowhere
	wantBlocksOn(t, x, a, 4, 1, 1, 0)
	x.RemoveTarget(a)
	wantBlocksOn(t, x, a, 0, 0, 0, 0)
}

func wantBlocksOn(t *testing.T, x *kvindex.Index, target kv.Target, want ...int) {
	t.Helper()
	for tier, n := range want {
		if got := x.BlocksOn(target, kv.Tier(tier)); got != n {
			t.Errorf("%v: %d blocks on %v, want %d", target, got, kv.Tier(tier), n)
		}
	}
}

// A block that is lacked between others comes back as one that is stored and
// removed.
func TestDump(t *testing.T) {
	x := kvindex.New()
	for _, e := range []kv.Event{root(1, 1, 11, 2, 12, 3, 13, 4), on(kv.TierHost, root(1, 1, 11, 2)), remove(12)} {
		if err := x.Apply(a, e); err != nil {
			t.Fatal(err)
		}
	}
	got := slices.Collect(x.Dump(a))
	want := []kv.Event{
		root(1, 1, 11, 2),
		on(kv.TierHost, root(1, 1, 11, 2)),
		under(11, 0, 3, 13, 4),
		{Kind: kv.Removed, Blocks: []kv.Block{{Engine: 0}}},
	}
	if !slices.EqualFunc(got, want, func(a, b kv.Event) bool {
		return a.Kind == b.Kind && a.Tier == b.Tier && a.HasParent == b.HasParent && a.Parent == b.Parent && slices.Equal(a.Blocks, b.Blocks)
	}) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	y := kvindex.New()
	for e := range x.Dump(a) {
		if err := y.Apply(a, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, prompt := range [][]kv.LocalHash{{1, 2, 3, 4}, {1, 3}, {1, 2, 4}} {
		if got, want := match(y, prompt...), match(x, prompt...); !slices.Equal(got, want) {
			t.Errorf("%v: got %v, want %v", prompt, got, want)
		}
	}
	for range x.Dump(b) {
		t.Error("something is known of a target that has never been heard of")
	}
}
