package kvcache_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// turnOf runs one request of a session from beginning to end, and tags what it
// stores at once.
func turnOf(t testing.TB, p *kvcache.Pool, id kvcache.SessionID, o kvcache.SessionOptions, seq []kv.SeqHash) (found int) {
	t.Helper()
	found, end := start(t, p, id, o, seq)
	end()
	return found
}

// start begins a request and returns what ends it.
func start(t testing.TB, p *kvcache.Pool, id kvcache.SessionID, o kvcache.SessionOptions, seq []kv.SeqHash) (found int, end func()) {
	t.Helper()
	p.BeginTurn(id, o, seq)
	refs := p.MatchFor(id, nil, seq)
	found = len(refs)
	refs, _, ok := p.Allocate(refs, len(seq)-found)
	if !ok {
		t.Fatalf("no room for %d blocks: %+v", len(seq)-found, p.Stats())
	}
	for k := found; k < len(refs); k++ {
		parent := kvcache.Root
		if k > 0 {
			parent = refs[k-1]
		}
		p.Register(refs[k], seq[k], parent)
	}
	p.Tag(id, refs[found:])
	return found, func() {
		p.EndTurn(id, refs)
		p.Release(refs)
	}
}

// byClass counts the blocks of a sequence that are of a class.
func byClass(p *kvcache.Pool, seq []kv.SeqHash, c kvcache.Class) (n int) {
	for _, h := range seq {
		if r, ok := p.Find(h); ok && p.Class(r) == c {
			n++
		}
	}
	return n
}

func skipped(p *kvcache.Pool, seq []kv.SeqHash) (n int) {
	for _, h := range seq {
		if r, ok := p.Find(h); ok && p.SkipWrite(r) {
			n++
		}
	}
	return n
}

// A sub-agent shares 100 blocks with its lead and has 200 of its own. While it
// runs and after, exactly the 200 go first and are kept from lower tiers.
func TestSubAgentLeavesNothingBehind(t *testing.T) {
	const lead, first, second = 1, 2, 3
	p := kvcache.New(1000)
	prefix := run(1, 100)
	turnOf(t, p, lead, kvcache.SessionOptions{}, prefix)
	sub := kvcache.SessionOptions{Ephemeral: true}
	a, b := slices.Concat(prefix, run(1001, 200)), slices.Concat(prefix, run(2001, 200))
	found, end := start(t, p, first, sub, a)
	if found != 100 || skipped(p, a) != 200 || skipped(p, prefix) != 0 {
		t.Fatalf("while it runs: found %d, %d blocks kept from lower tiers", found, skipped(p, a))
	}
	end()
	if found := turnOf(t, p, second, sub, b); found != 100 {
		t.Fatalf("the second one found %d", found)
	}
	if was := p.CloseSession(first); was != kvcache.SessionIdle {
		t.Errorf("closed while %v", was)
	}
	if n := byClass(p, a, kvcache.Ephemeral); n != 200 {
		t.Errorf("%d blocks go first, want 200", n)
	}
	if n := byClass(p, prefix, kvcache.Plain); n != 100 {
		t.Errorf("%d blocks of the prefix are plain, want 100", n)
	}
	if p.Held(second) != 300 || p.Held(lead) != 100 || p.Held(first) != 0 {
		t.Errorf("held %d, %d, %d", p.Held(lead), p.Held(first), p.Held(second))
	}
	// What was closed goes before what is merely ephemeral and older or younger,
	// deepest first.
	evicted := victims(p, 500+10)
	if want := run(1191, 10); !slices.Equal(evicted, reversed(want)) {
		t.Errorf("evicted %v", evicted)
	}
}

func reversed(s []kv.SeqHash) []kv.SeqHash {
	s = slices.Clone(s)
	slices.Reverse(s)
	return s
}

func TestSessionLife(t *testing.T) {
	p := kvcache.New(100)
	o := kvcache.SessionOptions{Timeout: time.Minute, Ephemeral: true}
	seq := run(1, 5)
	if was := p.CloseSession(7); was != kvcache.SessionUnknown {
		t.Errorf("closing an unknown session: %v", was)
	}
	_, end := start(t, p, 7, o, seq)
	if s := p.SessionState(7); s != kvcache.SessionActive {
		t.Errorf("while it runs: %v", s)
	}
	if was := p.CloseSession(7); was != kvcache.SessionActive || p.SessionState(7) != kvcache.SessionClosing {
		t.Errorf("closed while running: %v, then %v", was, p.SessionState(7))
	}
	if was := p.CloseSession(7); was != kvcache.SessionClosing || p.Held(7) != 5 {
		t.Errorf("closed twice: %v, holds %d", was, p.Held(7))
	}
	end()
	if s := p.SessionState(7); s != kvcache.SessionUnknown || p.Sessions() != 0 {
		t.Errorf("after the last request: %v", s)
	}
	if n := byClass(p, seq, kvcache.Ephemeral); n != 5 {
		t.Errorf("%d blocks go first, want 5", n)
	}

	// Nobody says that it is over: the timeout does, since the last request.
	p = kvcache.New(100)
	turnOf(t, p, 7, o, seq)
	p.Advance(50 * time.Second)
	turnOf(t, p, 7, o, seq)
	p.Advance(109 * time.Second)
	p.Available()
	if s := p.SessionState(7); s != kvcache.SessionIdle {
		t.Errorf("before the timeout: %v", s)
	}
	p.Advance(110 * time.Second)
	p.Available()
	if s := p.SessionState(7); s != kvcache.SessionUnknown {
		t.Errorf("after the timeout: %v", s)
	}
}

func TestNormalSessionChangesNothing(t *testing.T) {
	p := kvcache.New(8)
	turnOf(t, p, 1, kvcache.SessionOptions{}, run(1, 3))
	request(p, run(11, 3), nil)
	p.CloseSession(1)
	if got, want := victims(p, 8), []kv.SeqHash{3, 2, 1, 13, 12, 11}; !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
}

// Whoever else finds an ephemeral block makes it one like others, to be written
// through after all, and the session's end does not change that. Another
// ephemeral session does not count; its own end does.
func TestPromotion(t *testing.T) {
	for _, c := range []struct {
		name  string
		by    kvcache.SessionID
		o     kvcache.SessionOptions
		keeps bool
	}{
		{"nobody", 0, kvcache.SessionOptions{}, false},
		{"a normal session", 2, kvcache.SessionOptions{}, false},
		{"an ephemeral session", 3, kvcache.SessionOptions{Ephemeral: true}, true},
		{"the session itself", 1, kvcache.SessionOptions{Ephemeral: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := kvcache.New(50)
			seq := run(1, 10)
			turnOf(t, p, 1, kvcache.SessionOptions{Ephemeral: true}, seq)
			if n := turnOf(t, p, c.by, c.o, seq[:4]); n != 4 {
				t.Fatalf("found %d", n)
			}
			var want []kvcache.Ref
			for _, h := range seq[:4] {
				if r, _ := p.Find(h); !c.keeps {
					want = append(want, r)
				}
			}
			if got := p.TakePromoted(nil); !slices.Equal(got, want) {
				t.Errorf("promoted %v, want %v", got, want)
			}
			if got := p.TakePromoted(nil); len(got) > 0 {
				t.Errorf("promoted twice: %v", got)
			}
			p.CloseSession(1)
			if n := byClass(p, seq, kvcache.Ephemeral); n != 10-len(want) {
				t.Errorf("%d blocks go first, want %d", n, 10-len(want))
			}
			if n := skipped(p, seq); n != 10-len(want) {
				t.Errorf("%d blocks are kept from lower tiers, want %d", n, 10-len(want))
			}
		})
	}
}

// What was closed last goes first, deepest block first, and before what was made
// ephemeral otherwise.
func TestClosedGoesFirst(t *testing.T) {
	p := kvcache.New(9)
	request(p, run(1, 2), nil)
	refs := store(t, p, 11)
	p.SetEphemeral(refs[0])
	p.Release(refs)
	for id := range kvcache.SessionID(3) {
		turnOf(t, p, 1+id, kvcache.SessionOptions{Ephemeral: true}, run(int(100+100*id), 2))
	}
	for _, id := range []kvcache.SessionID{2, 1, 3} {
		p.CloseSession(id)
	}
	if got, want := victims(p, 9), []kv.SeqHash{301, 300, 101, 100, 201, 200, 11, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
}

// The same holds of a session that ends with its last request, whose blocks fall
// idle only after that.
func TestClosedWhileRunningGoesFirst(t *testing.T) {
	p := kvcache.New(6)
	refs := store(t, p, 11)
	p.SetEphemeral(refs[0])
	p.Release(refs)
	for id := range kvcache.SessionID(2) {
		_, end := start(t, p, 1+id, kvcache.SessionOptions{Ephemeral: true}, run(int(100+100*id), 2))
		p.CloseSession(1 + id)
		end()
	}
	if got, want := victims(p, 6), []kv.SeqHash{201, 200, 101, 100, 11}; !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
}

// Whoever opens a session that is closing gets a new one, once the old one has
// ended; closing it again is the end of that, too.
func TestReopenedWhileClosing(t *testing.T) {
	for _, again := range []bool{false, true} {
		p := kvcache.New(20)
		_, end := start(t, p, 7, kvcache.SessionOptions{Ephemeral: true}, run(1, 3))
		p.CloseSession(7)
		if p.OpenSession(7, kvcache.SessionOptions{Timeout: time.Hour}) {
			t.Error("a session that is closing was known")
		}
		if again {
			p.CloseSession(7)
		}
		end()
		want := kvcache.SessionIdle
		if again {
			want = kvcache.SessionUnknown
		}
		if s := p.SessionState(7); s != want || p.Held(7) != 0 || byClass(p, run(1, 3), kvcache.Ephemeral) != 3 {
			t.Errorf("closed again %v: %v, want %v, holding %d", again, s, want, p.Held(7))
		}
		if p.Advance(time.Hour - 1); p.SessionState(7) != want {
			t.Error("the new timeout does not count")
		}
	}
}

// What somebody without a session computes at the same time is no longer the
// session's alone, and neither is what another session does; what the session
// itself computes twice still is.
func TestComputedTwice(t *testing.T) {
	for by, want := range map[kvcache.SessionID]kvcache.Class{
		0: kvcache.Plain, 1: kvcache.Ephemeral, 2: kvcache.Plain, 3: kvcache.Ephemeral,
	} {
		p := kvcache.New(8)
		p.OpenSession(2, kvcache.SessionOptions{})
		p.OpenSession(3, kvcache.SessionOptions{Ephemeral: true})
		_, end := start(t, p, 1, kvcache.SessionOptions{Ephemeral: true}, run(1, 1))
		refs, _, _ := p.Allocate(nil, 1)
		if p.Register(refs[0], 1, kvcache.Root) {
			t.Fatal("no duplicate")
		}
		p.Tag(by, refs)
		end()
		p.Release(refs)
		p.CloseSession(1)
		p.CloseSession(by)
		if n := byClass(p, run(1, 1), want); n != 1 {
			t.Errorf("computed by %d, too: not %v", by, want)
		}
	}
}

// A block that an anonymous request has stored is nobody's, and no session's end
// makes it worthless.
func TestWhatOthersStoredIsNotTheSessions(t *testing.T) {
	p := kvcache.New(50)
	seq := run(1, 6)
	request(p, seq[:3], nil)
	turnOf(t, p, 1, kvcache.SessionOptions{Ephemeral: true}, seq)
	p.CloseSession(1)
	if n := byClass(p, seq, kvcache.Ephemeral); n != 3 || byClass(p, seq[:3], kvcache.Plain) != 3 {
		t.Errorf("%d blocks go first, want the last 3", n)
	}
}

// Eight sessions of a block are known, in the order in which they came; with a
// ninth none is.
func TestTags(t *testing.T) {
	p := kvcache.New(50)
	var want []kvcache.SessionID
	for id := kvcache.SessionID(1); id <= 8; id++ {
		turnOf(t, p, id, kvcache.SessionOptions{}, run(1, 1))
		want = append(want, id)
	}
	turnOf(t, p, 3, kvcache.SessionOptions{}, run(1, 1))
	r, _ := p.Find(1)
	if tags := p.Tags(nil, r); !slices.Equal(tags, want) || p.Shared(r) {
		t.Fatalf("tags %v, shared %v", tags, p.Shared(r))
	}
	p.CloseSession(3)
	if tags := p.Tags(nil, r); !slices.Equal(tags, []kvcache.SessionID{1, 2, 4, 5, 6, 7, 8}) {
		t.Errorf("tags %v without 3", tags)
	}
	turnOf(t, p, 3, kvcache.SessionOptions{}, run(1, 1))
	turnOf(t, p, 9, kvcache.SessionOptions{}, run(1, 1))
	if tags := p.Tags(nil, r); len(tags) != 0 || !p.Shared(r) || p.Held(3) != 0 {
		t.Errorf("with nine: tags %v, shared %v, held %d", tags, p.Shared(r), p.Held(3))
	}
}

// A session that comes and goes, or whose blocks are evicted and stored again
// without end, leaves nothing that grows.
func TestSessionsDoNotGrow(t *testing.T) {
	p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 16, PinBudget: 4})
	for i := range 5000 {
		turnOf(t, p, 1, kvcache.SessionOptions{Timeout: time.Hour}, run(1+i%7*100, 10))
		turnOf(t, p, kvcache.SessionID(2+i), kvcache.SessionOptions{Ephemeral: true}, run(10_000, 3))
		p.CloseSession(kvcache.SessionID(2 + i))
		p.Pin(run(1+i%7*100, 10), kvcache.Pin{Owner: 1, TTL: time.Hour})
	}
	if n := p.Footprint(); n > 400 {
		t.Errorf("%d entries are kept for 2 sessions and 16 blocks", n)
	}
}

// One id under two salts, or two models, is two sessions. The hashes were
// computed with the xxhash package of PyPI.
func TestSessionOf(t *testing.T) {
	for key, want := range map[kv.SessionKey]kvcache.SessionID{
		{Model: "m", ID: "one"}:            0xc4f2fb66be86de29,
		{Model: "m", Salt: "s", ID: "one"}: 0x6441fbb34d2782e6,
		{Model: "m", Salt: "s"}:            0,
	} {
		if got := kvcache.SessionOf(key); got != want {
			t.Errorf("%+v: %x, want %x", key, uint64(got), uint64(want))
		}
	}
	if kvcache.SessionOf(kv.SessionKey{Model: "ab", ID: "c"}) == kvcache.SessionOf(kv.SessionKey{Model: "a", Salt: "b", ID: "c"}) {
		t.Error("parts of a key run into each other")
	}
}

// A lead agent and a sub-agent of it share the system prompt, which is pinned. When
// the sub-agent has ended, what it alone had goes first, and then the lead's history.
func ExamplePool_sessions() {
	pool := kvcache.NewPool(kvcache.PoolConfig{Blocks: 8, PinBudget: 2})
	turn := func(id kvcache.SessionID, o kvcache.SessionOptions, seq ...kv.SeqHash) {
		pool.BeginTurn(id, o, seq)
		refs := pool.MatchFor(id, nil, seq)
		fmt.Println("found", len(refs))
		found, parent := len(refs), kvcache.Root
		refs, _, _ = pool.Allocate(refs, len(seq)-found)
		for k, r := range refs {
			if k >= found {
				pool.Register(r, seq[k], parent)
			}
			parent = r
		}
		pool.EndTurn(id, refs)
		pool.Release(refs)
	}
	const lead, sub = 1, 2
	turn(lead, kvcache.SessionOptions{}, 0xa, 0xb, 0xc, 0xd)
	pool.Pin([]kv.SeqHash{0xa, 0xb}, kvcache.Pin{Owner: lead, TTL: time.Hour})
	turn(sub, kvcache.SessionOptions{Ephemeral: true}, 0xa, 0xb, 0xe, 0xf)
	pool.CloseSession(sub)

	_, evicted, _ := pool.Allocate(nil, 6)
	fmt.Printf("evicted %x\n", evicted)
	// Output:
	// found 0
	// found 2
	// evicted [f e d c]
}

// Sessions that nobody closes make room for others when there are too many: the
// longest idle ones first, but for those that run, or hold pins.
func TestSessionsAreBounded(t *testing.T) {
	const most, year = 1 << 16, 365 * 24 * time.Hour
	p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 8, PinBudget: 2})
	o := kvcache.SessionOptions{Timeout: year}
	turnOf(t, p, 1, o, run(1, 2))
	p.Pin(run(1, 2), kvcache.Pin{Owner: 1, TTL: year})
	_, end := start(t, p, 2, o, run(11, 2))
	for id := range kvcache.SessionID(2 * most) {
		p.OpenSession(id+3, o)
		p.OpenSession(4, o) // is in use, again and again
	}
	end()
	if n := p.Sessions(); n != most {
		t.Errorf("%d sessions, want %d", n, most)
	}
	for id, want := range map[kvcache.SessionID]kvcache.SessionState{
		1: kvcache.SessionIdle, 2: kvcache.SessionIdle, 3: kvcache.SessionUnknown, 4: kvcache.SessionIdle, 5: kvcache.SessionUnknown,
		most: kvcache.SessionUnknown, 2*most + 2: kvcache.SessionIdle,
	} {
		if got := p.SessionState(id); got != want {
			t.Errorf("session %d is %v, want %v", id, got, want)
		}
	}
	if n := byClass(p, run(1, 2), kvcache.SoftPinned); n != 2 {
		t.Errorf("%d blocks are pinned, want 2", n)
	}
}
