package kvindex_test

import (
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

func TestRouted(t *testing.T) {
	x := kvindex.New()
	r := kvindex.NewRouted(x, time.Minute)
	start := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	held := func(target kv.Target, local ...kv.LocalHash) int32 {
		for _, m := range match(x, local...) {
			if m.Target == target {
				return m.Blocks[kv.TierDevice]
			}
		}
		return 0
	}
	r.Add(a, []kv.LocalHash{1, 2}, at(0))
	r.Add(b, []kv.LocalHash{1}, at(0))
	r.Add(b, nil, at(0))
	r.Add(a, []kv.LocalHash{1, 2, 3}, at(30*time.Second)) // renews the first two
	if n := held(a, 1, 2, 3); n != 3 {
		t.Errorf("a holds %d", n)
	}
	r.Expire(at(time.Minute - 1))
	if n := held(b, 1); n != 1 {
		t.Error("b has forgotten too early")
	}
	r.Expire(at(time.Minute))
	if held(a, 1, 2, 3) != 3 || held(b, 1) != 0 {
		t.Errorf("after a minute a holds %d and b %d", held(a, 1, 2, 3), held(b, 1))
	}
	r.Expire(at(90 * time.Second))
	if s := x.Stats(); s.Blocks != 0 || s.Nodes != 0 {
		t.Errorf("left behind: %+v", s)
	}

	// What was sent to a worker that left does not outlive its return.
	r.Add(a, []kv.LocalHash{1, 2}, at(100*time.Second))
	r.RemoveWorker(a.Worker)
	x.RemoveWorker(a.Worker)
	r.Add(a, []kv.LocalHash{1}, at(110*time.Second))
	r.Expire(at(160 * time.Second))
	if n := held(a, 1, 2); n != 1 {
		t.Errorf("after the return a holds %d", n)
	}
	if s := x.Stats(); s.BlockNotFound != 0 || s.ParentNotFound != 0 {
		t.Errorf("the record disagrees with the index: %+v", s)
	}
}
