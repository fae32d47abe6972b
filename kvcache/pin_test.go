package kvcache_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// flood sends n blocks through a pool that nobody asks for again.
func flood(t testing.TB, p *kvcache.Pool, n int) {
	t.Helper()
	for i := range n {
		p.Release(store(t, p, kv.SeqHash(1_000_000+i)))
	}
}

func run(from, n int) []kv.SeqHash {
	seq := make([]kv.SeqHash, n)
	for i := range seq {
		seq[i] = kv.SeqHash(from + i)
	}
	return seq
}

func present(p *kvcache.Pool, seq []kv.SeqHash) int {
	n, _ := p.Prefix(seq)
	return n
}

func pinning(blocks int, budget int64) *kvcache.Pool {
	return kvcache.NewPool(kvcache.PoolConfig{Blocks: blocks, PinBudget: budget, HardPins: true})
}

func TestPinSurvivesAFlood(t *testing.T) {
	for _, hard := range []bool{false, true} {
		p := pinning(50, 20)
		seq := run(1, 20)
		p.Release(store(t, p, seq...))
		if got := p.Pin(seq, kvcache.Pin{TTL: time.Minute, Hard: hard}); got.Outcome() != "granted" || got.Pinned != 20 {
			t.Fatalf("pinned %+v", got)
		}
		flood(t, p, 500)
		if n := present(p, seq); n != 20 {
			t.Errorf("hard %v: %d of 20 pinned blocks left", hard, n)
		}
		p.Advance(time.Minute)
		flood(t, p, 500)
		if n := present(p, seq); n != 0 {
			t.Errorf("hard %v: %d blocks left after the pin", hard, n)
		}
		if used, _ := p.PinBudget(); used != 0 {
			t.Errorf("hard %v: %d blocks of the budget in use after the pin", hard, used)
		}
	}
}

func TestPinIsPartialAtTheBudget(t *testing.T) {
	for _, c := range []struct {
		budget  int64
		want    int
		outcome string
	}{{0, 0, "denied"}, {7, 7, "partial"}, {9, 9, "partial"}, {10, 10, "granted"}, {11, 10, "granted"}} {
		p := pinning(40, c.budget)
		seq := run(1, 10)
		refs := store(t, p, seq...)
		if got := p.Pin(seq, kvcache.Pin{TTL: time.Minute}); got.Pinned != c.want || got.Outcome() != c.outcome {
			t.Errorf("budget %d: %+v, %s, want %d, %s", c.budget, got, got.Outcome(), c.want, c.outcome)
		}
		p.Release(refs)
		// Once more costs nothing, and a fork pays for what is new alone.
		if got := p.Pin(seq[:c.want], kvcache.Pin{TTL: time.Hour}); got.Pinned != c.want {
			t.Errorf("budget %d: again: %+v", c.budget, got)
		}
		flood(t, p, 100)
		if n := present(p, seq); n != c.want {
			t.Errorf("budget %d: %d blocks left, want %d", c.budget, n, c.want)
		}
	}
}

func TestPinIsRenewedByAHit(t *testing.T) {
	p := pinning(20, 10)
	seq := run(1, 5)
	p.Release(store(t, p, seq...))
	p.Pin(seq, kvcache.Pin{TTL: time.Minute})
	p.Advance(50 * time.Second)
	p.Release(p.Match(nil, seq[:3]))
	p.Advance(100 * time.Second)
	flood(t, p, 100)
	if n := present(p, seq); n != 3 {
		t.Errorf("%d blocks left, want the 3 that were hit", n)
	}
	p.Advance(110 * time.Second)
	flood(t, p, 100)
	if n := present(p, seq); n != 0 {
		t.Errorf("%d blocks left a minute after the hit", n)
	}
}

func TestHardPinIsNotRenewed(t *testing.T) {
	p := pinning(20, 10)
	seq := run(1, 5)
	p.Release(store(t, p, seq...))
	p.Pin(seq, kvcache.Pin{TTL: time.Minute, Hard: true})
	p.Advance(50 * time.Second)
	p.Release(p.Match(nil, seq))
	p.Advance(60 * time.Second)
	flood(t, p, 100)
	if n := present(p, seq); n != 0 {
		t.Errorf("%d blocks left after a hard pin", n)
	}
}

func TestPinsNeverShorten(t *testing.T) {
	p := pinning(20, 10)
	seq := run(1, 5)
	p.Release(store(t, p, seq...))
	p.Pin(seq, kvcache.Pin{TTL: time.Hour})
	p.Pin(seq, kvcache.Pin{TTL: time.Second})
	p.Advance(time.Minute)
	flood(t, p, 100)
	if n := present(p, seq); n != 5 {
		t.Errorf("%d blocks left, want 5", n)
	}
}

// Two sessions pin sequences with a common root; each keeps its own when the
// other one ends or takes its pins away.
func TestPinsOfSeveralOwners(t *testing.T) {
	for name, part := range map[string]func(*kvcache.Pool, []kv.SeqHash){
		"close": func(p *kvcache.Pool, _ []kv.SeqHash) { p.CloseSession(1) },
		"unpin": func(p *kvcache.Pool, seq []kv.SeqHash) { p.Unpin(seq, 1) },
		"zero":  func(p *kvcache.Pool, seq []kv.SeqHash) { p.Pin(seq, kvcache.Pin{Owner: 1}) },
		"expiry": func(p *kvcache.Pool, _ []kv.SeqHash) {
			p.Advance(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pinning(40, 40)
			root := run(1, 4)
			a, b := slices.Concat(root, run(101, 4)), slices.Concat(root, run(201, 4))
			p.OpenSession(1, kvcache.SessionOptions{Timeout: time.Hour})
			p.OpenSession(2, kvcache.SessionOptions{Timeout: time.Hour})
			request(p, a, nil)
			request(p, b, nil)
			p.Pin(a, kvcache.Pin{Owner: 1, TTL: time.Minute})
			p.Pin(b, kvcache.Pin{Owner: 2, TTL: time.Hour})
			if used, _ := p.PinBudget(); used != 12 {
				t.Errorf("%d blocks pinned, want 12", used)
			}
			part(p, a)
			flood(t, p, 400)
			if x, y := present(p, a), present(p, b); x != 4 || y != 8 {
				t.Errorf("%d and %d blocks left, want the root alone, and all 8", x, y)
			}
			if used, _ := p.PinBudget(); used != 8 {
				t.Errorf("%d blocks pinned, want 8", used)
			}
		})
	}
}

// Memory pressure: copies from other tiers are denied first, then new pins, then
// soft pins are broken, those that end first before others, and only then does an
// allocation fail.
func TestPressure(t *testing.T) {
	p := pinning(10, 10)
	late, soon, hard := run(1, 3), run(11, 3), run(21, 2)
	for _, seq := range [][]kv.SeqHash{late, soon, hard} {
		p.Release(store(t, p, seq...))
	}
	p.Pin(late, kvcache.Pin{TTL: time.Hour})
	p.Pin(soon, kvcache.Pin{TTL: time.Minute})
	p.Pin(hard, kvcache.Pin{TTL: time.Second, Hard: true})
	p.Release(store(t, p, 31, 32))
	if p.Available() != 8 || p.Spare() != 2 {
		t.Fatalf("available %d, spare %d, want 8, 2", p.Available(), p.Spare())
	}
	if _, _, ok := p.AllocateSpare(nil, 3); ok {
		t.Error("pins were broken for a copy")
	}
	held, evicted, ok := p.AllocateSpare(nil, 2)
	if want := []kv.SeqHash{32, 31}; !ok || !slices.Equal(evicted, want) {
		t.Fatalf("evicted %v, want %v", evicted, want)
	}
	if got := p.Pin(run(41, 1), kvcache.Pin{TTL: time.Hour}); got.Pinned != 0 {
		t.Errorf("pinned what is not there: %+v", got)
	}
	p.Register(held[0], 41, kvcache.Root)
	if got := p.Pin(run(41, 1), kvcache.Pin{TTL: time.Hour}); got.Outcome() != "denied" {
		t.Errorf("a new pin under pressure: %+v", got)
	}
	if got := p.Pin(late, kvcache.Pin{TTL: 2 * time.Hour}); got.Outcome() != "granted" {
		t.Errorf("renewing a pin under pressure: %+v", got)
	}
	_, evicted, ok = p.Allocate(nil, 4)
	if want := []kv.SeqHash{13, 12, 11, 3}; !ok || !slices.Equal(evicted, want) {
		t.Errorf("evicted %v, want %v", evicted, want)
	}
	if _, _, ok := p.Allocate(nil, 3); ok {
		t.Error("a hard pin was broken")
	}
	if _, evicted, ok := p.Allocate(nil, 2); !ok || !slices.Equal(evicted, []kv.SeqHash{2, 1}) {
		t.Errorf("evicted %v, %v", evicted, ok)
	}
}

func TestHardPinsNotAllowedAreSoft(t *testing.T) {
	p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 4, PinBudget: 4})
	refs := store(t, p, 1, 2)
	p.Release(refs)
	p.Pin([]kv.SeqHash{1, 2}, kvcache.Pin{TTL: time.Hour, Hard: true})
	if c := p.Class(refs[0]); c != kvcache.SoftPinned || p.Available() != 4 {
		t.Errorf("%s, available %d", c, p.Available())
	}
}

// A tenant's pins come to its share of the budget and no more. A block counts once
// for each tenant, however many sessions of it ask.
func TestTenantShare(t *testing.T) {
	const one, two = kvcache.TenantID(1), kvcache.TenantID(2)
	p := pinning(40, 20)
	seq := run(1, 15)
	p.Release(store(t, p, seq...))
	pin := func(owner kvcache.SessionID, tenant kvcache.TenantID, share float64, n int) int {
		return p.Pin(seq[:n], kvcache.Pin{Owner: owner, TTL: time.Minute, Tenant: tenant, Share: share}).Pinned
	}
	for _, c := range []struct {
		owner     kvcache.SessionID
		tenant    kvcache.TenantID
		share     float64
		n, pinned int
		one, two  int64
	}{
		{1, one, 0.25, 10, 5, 5, 0},
		{2, one, 0.25, 10, 5, 5, 0},
		{1, two, 0.5, 15, 10, 5, 10},
		{0, two, 0.5, 10, 10, 5, 10},
		{0, one, 0, 5, 5, 5, 10},
		{0, one, 0, 6, 5, 5, 10},
		{0, 0, 0, 15, 15, 5, 10},
	} {
		if got := pin(c.owner, c.tenant, c.share, c.n); got != c.pinned || p.PinnedFor(one) != c.one || p.PinnedFor(two) != c.two {
			t.Errorf("%+v: pinned %d, for one %d, for two %d", c, got, p.PinnedFor(one), p.PinnedFor(two))
		}
	}
	if p.Pin(seq, kvcache.Pin{Tenant: two}); p.PinnedFor(two) != 10 {
		t.Errorf("without the pins of nobody in particular: %d for two", p.PinnedFor(two))
	}
	if p.Unpin(seq, 1); p.PinnedFor(one) != 5 || p.PinnedFor(two) != 0 {
		t.Errorf("without those of session 1: %d for one, %d for two", p.PinnedFor(one), p.PinnedFor(two))
	}
	p.Advance(time.Minute)
	if used, _ := p.PinBudget(); used != 0 || p.PinnedFor(one) != 0 {
		t.Errorf("at the end: %d pinned, %d for one", used, p.PinnedFor(one))
	}
}

// A pin lasts as long as was asked, also if the session that asked is idle for
// longer than its timeout: it goes on until then, and can still be closed.
func TestPinsOutlastTheTimeout(t *testing.T) {
	seq := run(1, 4)
	p := pinning(20, 20)
	turnOf(t, p, 7, kvcache.SessionOptions{Timeout: time.Minute}, seq)
	p.Pin(seq, kvcache.Pin{Owner: 7, TTL: time.Hour})
	p.Advance(30 * time.Minute)
	flood(t, p, 100)
	if n := present(p, seq); n != 4 || p.SessionState(7) != kvcache.SessionIdle {
		t.Fatalf("%d blocks are left after half an hour, the session is %s; want all 4, idle", n, p.SessionState(7))
	}
	request(p, seq[:1], nil) // the pin on it is renewed
	p.Advance(61 * time.Minute)
	if used, _ := p.PinBudget(); used != 1 || p.SessionState(7) != kvcache.SessionIdle {
		t.Errorf("%d blocks are pinned, the session is %s; want what was hit, idle", used, p.SessionState(7))
	}
	p.Advance(91 * time.Minute)
	if used, _ := p.PinBudget(); used != 0 || p.SessionState(7) != kvcache.SessionUnknown {
		t.Errorf("in the end %d blocks are pinned, and the session is %s", used, p.SessionState(7))
	}
	turnOf(t, p, 7, kvcache.SessionOptions{Timeout: time.Minute}, seq)
	p.Pin(seq, kvcache.Pin{Owner: 7, TTL: time.Hour})
	p.Advance(2 * time.Hour)
	p.CloseSession(7)
	if used, _ := p.PinBudget(); used != 0 {
		t.Errorf("%d blocks are pinned for a session that was closed", used)
	}
}
