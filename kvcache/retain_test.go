package kvcache_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// A priority that has expired is over, whether or not anybody has looked since,
// and a hit does not bring it back.
func TestLookingChangesNothing(t *testing.T) {
	for _, look := range []bool{false, true} {
		p := kvcache.New(4)
		for h := range kv.SeqHash(3) {
			request(p, []kv.SeqHash{1 + h}, func(refs []kvcache.Ref) {
				if h == 0 {
					p.Retain(refs[0], kvcache.Retention{Priority: 80, TTL: time.Second})
				}
			})
		}
		p.Advance(2 * time.Second)
		if look {
			p.Available()
		}
		p.Release(p.Match(nil, []kv.SeqHash{1}))
		p.Release(p.Match(nil, []kv.SeqHash{2}))
		if got, want := victims(p, 4), []kv.SeqHash{3, 1, 2}; !slices.Equal(got, want) {
			t.Errorf("looked %v: evicted %v, want %v", look, got, want)
		}
	}
}

// Whether the clock goes in one step or in many, what ends first goes first, be it
// a priority or a session's pin.
func TestStepsOfTheClock(t *testing.T) {
	for _, step := range []time.Duration{time.Second, 7 * time.Second, time.Minute} {
		p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 4, PinBudget: 4})
		turnOf(t, p, 1, kvcache.SessionOptions{Timeout: 10 * time.Second}, []kv.SeqHash{1})
		p.Pin([]kv.SeqHash{1}, kvcache.Pin{Owner: 1, TTL: 10 * time.Second})
		for h, ttl := range map[kv.SeqHash]time.Duration{2: 20 * time.Second, 3: 5 * time.Second} {
			request(p, []kv.SeqHash{h}, func(refs []kvcache.Ref) {
				p.Retain(refs[0], kvcache.Retention{Priority: 80, TTL: ttl})
			})
		}
		for now := time.Duration(0); now <= time.Minute; now += step {
			p.Advance(now)
		}
		p.Advance(time.Minute)
		if got, want := victims(p, 4), []kv.SeqHash{3, 1, 2}; !slices.Equal(got, want) {
			t.Errorf("in steps of %v: evicted %v, want %v", step, got, want)
		}
	}
}

// The end of time is no moment like others: what is asked until then is never
// over, and nothing comes round to the beginning.
func TestTimeHasAnEnd(t *testing.T) {
	const end = time.Duration(1<<63 - 1)
	for _, now := range []time.Duration{-time.Hour, 0, 1 << 62, end - 1, end} {
		p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 4, PinBudget: 2})
		p.Advance(now)
		turnOf(t, p, 1, kvcache.SessionOptions{Timeout: end}, run(1, 3))
		refs := p.Match(nil, run(1, 3))
		p.Retain(refs[2], kvcache.Retention{Priority: 80, TTL: end})
		p.Release(refs)
		p.Pin(run(1, 2), kvcache.Pin{Owner: 1, TTL: end})
		p.Advance(end)
		p.Advance(now)
		if c := []kvcache.Class{p.Class(refs[0]), p.Class(refs[1]), p.Class(refs[2])}; !slices.Equal(c,
			[]kvcache.Class{kvcache.SoftPinned, kvcache.SoftPinned, kvcache.High}) || p.Sessions() != 1 {
			t.Errorf("at %v: classes %v, %d sessions", now, c, p.Sessions())
		}
	}
}

// What was asked for and taken back leaves nothing.
func TestNeutralAgain(t *testing.T) {
	p := kvcache.New(4)
	before := p.Footprint()
	request(p, run(1, 3), func(refs []kvcache.Ref) {
		for _, r := range refs {
			p.Retain(r, kvcache.Retention{Priority: 80, TTL: time.Second})
			p.Retain(r, kvcache.Retention{Priority: kvcache.Neutral})
		}
	})
	first := p.Footprint()
	request(p, run(11, 1), func(refs []kvcache.Ref) {
		p.Retain(refs[0], kvcache.Retention{Priority: 80})
		p.Retain(refs[0], kvcache.Retention{Priority: kvcache.Neutral})
	})
	if n := p.Footprint(); first > before+1 || n > first {
		t.Errorf("%d, then %d entries where there were %d", first, n, before)
	}
}

// A block that is to be used once more goes first until then, and if it has
// children by the end of that use it waits for them.
func TestOnceWithChildren(t *testing.T) {
	seq, other := run(1, 2), run(11, 2)
	for _, c := range []struct {
		once  kv.SeqHash
		used  bool
		order []kv.SeqHash
	}{
		{1, true, []kv.SeqHash{12, 11, 2, 1}},
		{2, false, []kv.SeqHash{2, 12, 11, 1}},
		{12, false, []kv.SeqHash{12, 11, 2, 1}},
	} {
		p := kvcache.New(4)
		request(p, other, nil)
		request(p, seq, nil)
		r, _ := p.Find(c.once)
		p.SetOnce(r)
		if c.used {
			p.Release(p.Match(nil, seq))
		}
		p.Touch(seq[:1])
		if got := p.Class(r); got != kvcache.Ephemeral {
			t.Errorf("%d is %v", c.once, got)
		}
		if got := victims(p, 4); !slices.Equal(got, c.order) {
			t.Errorf("%d: evicted %v, want %v", c.once, got, c.order)
		}
	}
}
