package kvindex_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
	"pgregory.net/rapid"
)

// sent is a naive record of what went to one target: when each prefix was last
// sent there, and in which order.
type sent struct {
	key   kv.SeqHash
	until time.Time
}

// The index has what a list would have: prompts and their beginnings for as long
// as the TTL, to within a tenth of a second, and as many as there is room for,
// the ends of the oldest prompts going first.
func TestRoutedIsAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ttl = 2 * time.Second
		x := kvindex.New()
		r := kvindex.NewRouted(x, ttl)
		now := time.Unix(1000, 0)
		room := rapid.IntRange(0, 12).Draw(t, "room")
		lists := map[kv.Target][]sent{}
		targets := []kv.Target{{Worker: 1}, {Worker: 1, Rank: 1}, {Worker: 2}}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "ticks")) * 100 * time.Millisecond)
			for target, list := range lists {
				lists[target] = slices.DeleteFunc(list, func(s sent) bool { return !s.until.After(now) })
			}
			target := rapid.SampledFrom(targets).Draw(t, "target")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				r.RemoveWorker(target.Worker)
				x.RemoveWorker(target.Worker)
				for other := range lists {
					if other.Worker == target.Worker {
						delete(lists, other)
					}
				}
			case 1:
				r.RemoveTarget(target)
				x.RemoveTarget(target)
				delete(lists, target)
			case 2:
				r.Expire(now)
			default:
				local := rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 3), func(i int) kv.LocalHash { return kv.LocalHash(i) }), 0, 8).Draw(t, "prompt")
				seq := kv.AppendSeqHashes(nil, local)
				r.Add(target, local, seq, room, now)
				list := lists[target]
				for _, key := range slices.Backward(seq[:min(room, len(seq))]) {
					list = slices.DeleteFunc(list, func(s sent) bool { return s.key == key })
					list = append(list, sent{key, now.Add(ttl)})
				}
				lists[target] = list[max(0, len(list)-room):]
			}
			r.Expire(now)
			local := rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 3), func(i int) kv.LocalHash { return kv.LocalHash(i) }), 0, 8).Draw(t, "query")
			seq := kv.AppendSeqHashes(nil, local)
			found := match(x, local...)
			for _, target := range targets {
				has := func(key kv.SeqHash) bool {
					return slices.ContainsFunc(lists[target], func(s sent) bool { return s.key == key })
				}
				want := 0
				for want < len(seq) && has(seq[want]) {
					want++
				}
				got := 0
				for _, m := range found {
					if m.Target == target {
						got = int(m.Blocks[kv.TierDevice])
					}
				}
				if got != want || r.Blocks(target) != len(lists[target]) {
					t.Fatalf("%v has %d of %v and %d blocks, want %d and %d", target, got, local, r.Blocks(target), want, len(lists[target]))
				}
			}
		}
		if s := x.Stats(); s.BlockNotFound != 0 || s.ParentNotFound != 0 {
			t.Fatalf("the record disagrees with the index: %+v", s)
		}
	})
}

// A block lives at least as long as the TTL, and a tenth of a second more at
// most.
func TestRoutedExpiry(t *testing.T) {
	x := kvindex.New()
	r := kvindex.NewRouted(x, time.Second)
	start := time.Unix(1000, 30_000_000)
	r.Add(a, []kv.LocalHash{1}, []kv.SeqHash{1}, 9, start)
	r.Expire(start.Add(time.Second - 1))
	if r.Blocks(a) != 1 {
		t.Error("forgotten too early")
	}
	r.Expire(start.Add(time.Second + 100*time.Millisecond))
	if s := x.Stats(); r.Blocks(a) != 0 || s.Blocks != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

func BenchmarkRouted(b *testing.B) {
	x := kvindex.New()
	r := kvindex.NewRouted(x, time.Minute)
	local := make([]kv.LocalHash, 128)
	now := time.Unix(1000, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for at := range local {
			local[at] = kv.LocalHash(i%64*1000 + at)
		}
		r.Add(kv.Target{Worker: uint64(i % 8)}, local, kv.AppendSeqHashes(nil, local), 4096, now)
		now = now.Add(time.Millisecond)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/128, "ns/block")
}
