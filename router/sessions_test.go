package router

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

func chat(id string) sessionKey { return sessionKey{model: "m", id: id} }

func at(seconds int) time.Time { return time.Unix(1e9+int64(seconds), 0) }

// by is a turn of a session of which its client says nothing.
func by(id string) *wish {
	return &wish{key: chat(id), binds: true, SessionTerms: SessionTerms{Timeout: 10 * time.Second}}
}

// control is a turn of a session of which it does.
func control(id string, action SessionAction, timeout time.Duration) *wish {
	return &wish{
		key: chat(id), control: true, action: action, SessionTerms: SessionTerms{Timeout: timeout},
		binds: action == BindSession || action == OpenSession, engine: action == OpenSession, final: action == CloseSession,
	}
}

func on(worker uint64) place { return place{target: kv.Target{Worker: worker}} }

func (s *sessions) must(t *testing.T, a *wish, w *sessionWaiter, now time.Time, want turn) *binding {
	t.Helper()
	b, turn, _, err := s.enter(a, w, now)
	if turn != want || err != nil {
		t.Fatalf("turn %d, %v; want %d", turn, err, want)
	}
	return b
}

// bound says whether a session is bound.
func (s *sessions) boundTo(id string, now time.Time) *binding {
	if _, bound, _ := s.look(by(id), now); bound {
		return s.all[chat(id)]
	}
	return nil
}

// The life of a binding: it is made, followed, kept by leases, and expires.
func TestSessions(t *testing.T) {
	s := newSessions(2, false)
	b := s.must(t, by("a"), nil, at(0), selects)
	w := new(sessionWaiter)
	if again := s.must(t, by("a"), w, at(1), waits); again != b {
		t.Fatal("another binding")
	}
	p := place{target: kv.Target{Worker: 3, Rank: 1}}
	if opens, woken := s.bind(b, p, false); opens || !slices.Equal(woken, []*sessionWaiter{w}) {
		t.Fatalf("opens %v, woken: %v", opens, woken)
	}
	if again := s.must(t, by("a"), w, at(2), follow); again.target != p.target {
		t.Fatalf("after the first: %v", again.target)
	}
	s.release(b, leased{}, at(3))
	if got := s.boundTo("a", at(1000)); got != b {
		t.Error("a session with a request in flight expired")
	}
	s.release(b, leased{}, at(1000))
	if got := s.boundTo("a", at(1009)); got != b {
		t.Error("the session expired early")
	}
	if got := s.boundTo("a", at(1010)); got != nil {
		t.Error("the session has not expired")
	}
	s.expire(at(1010))
	if c := s.stats(); c != (SessionStats{Made: 1, Followed: 1, Waited: 1, Expired: 1}) {
		t.Errorf("%+v", c)
	}
}

func TestSessionsAreApart(t *testing.T) {
	s := newSessions(10, false)
	keys := []sessionKey{
		{model: "m", id: "a"},
		{model: "m", id: "a", salt: "tenant"},
		{model: "n", id: "a"},
		{model: "m", id: "a", role: engine.Prefill},
	}
	for i, key := range keys {
		b := s.must(t, &wish{key: key, binds: true}, nil, at(0), selects)
		s.bind(b, on(uint64(i)), false)
	}
	for i, key := range keys {
		if got, bound, _ := s.look(&wish{key: key}, at(0)); !bound || got.Worker != uint64(i) {
			t.Errorf("%+v: %+v", key, got)
		}
	}
}

func TestFailedSelection(t *testing.T) {
	s := newSessions(10, false)
	b := s.must(t, by("a"), nil, at(0), selects)
	w1, w2, w3 := new(sessionWaiter), new(sessionWaiter), new(sessionWaiter)
	for _, w := range []*sessionWaiter{w1, w2, w3} {
		s.must(t, by("a"), w, at(0), waits)
	}
	if !s.cancel(b, w2) || s.cancel(b, w2) {
		t.Error("who waits is to be taken out once")
	}
	if woken := s.fail(b); !slices.Equal(woken, []*sessionWaiter{w1, w3}) {
		t.Errorf("woken: %v", woken)
	}
	if s.cancel(b, w1) {
		t.Error("one who was woken still waited")
	}
	s.must(t, by("a"), w1, at(0), selects)
}

func TestPinnedSession(t *testing.T) {
	s := newSessions(10, false)
	first := s.must(t, by("a"), nil, at(0), selects)
	w := new(sessionWaiter)
	s.must(t, by("a"), w, at(0), waits)
	// A pin overtakes the selection that still goes on.
	pinned, use, _, woken := s.pin(by("a"), on(2), at(0))
	if pinned != first || use != SessionBound || !slices.Equal(woken, []*sessionWaiter{w}) {
		t.Fatalf("%+v, woken %v", pinned, woken)
	}
	if s.bind(first, on(1), false); first.target.Worker != 2 || first.leases != 2 {
		t.Errorf("the late selection: %+v", first)
	}
	// A later pin moves the binding, and one to the same target does not.
	for _, want := range []SessionUse{SessionPinned, SessionFollowed} {
		if b, use, _, _ := s.pin(by("a"), on(3), at(0)); b != first || b.target.Worker != 3 || use != want {
			t.Errorf("moved: %+v, use %d", b, use)
		}
	}
	if c := s.stats(); c.Moved != 1 || c.Made != 1 || first.leases != 4 {
		t.Errorf("%+v, %d leases", c, first.leases)
	}
}

// A selection that fails after a pin has bound the session changes nothing.
func TestFailedSelectionAfterAPin(t *testing.T) {
	s := newSessions(10, false)
	b := s.must(t, by("a"), nil, at(0), selects)
	s.pin(by("a"), on(2), at(0))
	if woken := s.fail(b); woken != nil || s.boundTo("a", at(0)) != b {
		t.Errorf("woken %v, binding %v", woken, s.boundTo("a", at(0)))
	}
}

func TestLostBinding(t *testing.T) {
	s := newSessions(10, false)
	old := s.must(t, by("a"), nil, at(0), selects)
	s.bind(old, on(1), false)
	s.must(t, by("a"), nil, at(0), follow)
	b := s.lose(old, by("a"), at(0))
	if b == nil || b == old {
		t.Fatal("nothing has taken its place")
	}
	s.must(t, by("a"), new(sessionWaiter), at(0), waits)
	s.bind(b, on(2), false)
	s.release(old, leased{final: false, served: true}, at(0)) // what ran on the old one ends
	if s.boundTo("a", at(0)) != b || old.leases != 0 {
		t.Errorf("the new binding has gone with the old one; %d leases", old.leases)
	}
}

// To others a session is gone as soon as its last request begins, and it comes back
// if that is not served.
func TestFinalRequest(t *testing.T) {
	for _, served := range []bool{true, false} {
		s := newSessions(10, false)
		b := s.must(t, by("a"), nil, at(0), selects)
		s.bind(b, on(1), false)
		last := by("a")
		last.final = true
		s.must(t, last, nil, at(0), follow)
		if s.boundTo("a", at(0)) != nil {
			t.Error("the session is still bound")
		}
		s.release(b, leased{final: true, served: served}, at(0))
		if (s.boundTo("a", at(0)) == b) == served {
			t.Errorf("served %v: %+v", served, b)
		}
		s.release(b, leased{served: true}, at(1))
		s.expire(at(2))
		if c := s.stats(); (c.Bindings == 0) != served || c.Closed != uint64(map[bool]int{true: 1}[served]) {
			t.Errorf("served %v: %+v", served, c)
		}
	}
}

func TestFullTable(t *testing.T) {
	s := newSessions(3, false)
	hold := map[string]*binding{}
	for i, id := range []string{"a", "b", "c"} {
		hold[id] = s.must(t, by(id), nil, at(i), selects)
		s.bind(hold[id], on(uint64(i)), false)
	}
	s.must(t, by("d"), nil, at(3), free)
	if b, use, _, _ := s.pin(by("d"), place{}, at(3)); b != nil || use != SessionUnbound {
		t.Errorf("all are in use: %+v", b)
	}
	hold["b"].Timeout = time.Hour // when it expires says nothing of who makes room
	s.release(hold["b"], leased{}, at(4))
	s.release(hold["a"], leased{}, at(5))
	s.must(t, by("d"), nil, at(6), selects)
	if s.boundTo("b", at(6)) != nil || s.boundTo("a", at(6)) == nil || s.boundTo("c", at(6)) == nil {
		t.Error("not the one that had been idle longest went")
	}
	if c := s.stats(); c.Evicted != 1 || c.Unbound != 2 || c.Bindings != 3 {
		t.Errorf("%+v", c)
	}
}

// What an engine keeps makes no room for others: nobody would tell it.
func TestKeptSessionsStay(t *testing.T) {
	s := newSessions(1, false)
	b := s.must(t, control("a", OpenSession, time.Minute), nil, at(0), selects)
	if opens, _ := s.bind(b, on(1), false); !opens {
		t.Fatal("nobody opens it")
	}
	s.opened(b, nil)
	s.release(b, leased{served: true, first: true}, at(0))
	s.must(t, by("b"), nil, at(1), free)
	if c := s.stats(); c.Kept != 1 || c.Unbound != 1 {
		t.Errorf("%+v", c)
	}
}

// Sessions that engines keep, maybe for a year, leave half of the table to others.
func TestKeptSessionsLeaveRoom(t *testing.T) {
	for _, strict := range []bool{false, true} {
		s := newSessions(4, strict)
		for i, id := range []string{"a", "b"} {
			b := s.must(t, control(id, OpenSession, mostSessionTTL), nil, at(i), selects)
			if opens, _ := s.bind(b, on(1), false); !opens {
				t.Fatalf("nobody opens %s", id)
			}
			s.opened(b, nil)
			s.release(b, leased{served: true, first: true}, at(i))
		}
		open := control("c", OpenSession, mostSessionTTL)
		if strict {
			if _, _, _, err := s.enter(open, nil, at(2)); engine.KindOf(err) != engine.ResourceExhausted {
				t.Errorf("a third one: %v", err)
			}
		} else {
			b := s.must(t, open, nil, at(2), selects)
			if opens, _ := s.bind(b, on(1), false); opens {
				t.Error("a third one is opened")
			}
			s.release(b, leased{served: true, first: true}, at(2))
			if b = s.must(t, open, nil, at(2), follow); s.order(b, on(1)) {
				t.Error("a third one is opened by its second turn")
			}
			s.release(b, leased{served: true}, at(2))
		}
		for i, id := range []string{"d", "e", "f"} {
			b := s.must(t, by(id), nil, at(3+i), selects)
			s.bind(b, on(1), false)
			s.release(b, leased{served: true, first: true}, at(3+i))
		}
		c := s.stats()
		if want := map[bool]uint64{false: 1}[strict]; c.Kept != 2 || c.Bindings != 4 || c.Degraded != want {
			t.Errorf("strict %v: %+v", strict, c)
		}
		// Who ends makes room for another one.
		s.release(s.must(t, control("a", CloseSession, 0), nil, at(7), follow), leased{final: true, served: true}, at(7))
		for _, b := range s.endings() {
			s.told(b)
		}
		b := s.must(t, control("g", OpenSession, time.Minute), nil, at(8), selects)
		if opens, _ := s.bind(b, on(1), false); !opens {
			t.Error("no room when one has ended")
		}
	}
}

func BenchmarkSessions(b *testing.B) {
	s := newSessions(mostSessions, false)
	wishes := make([]*wish, mostSessions)
	for i := range wishes {
		wishes[i] = by(fmt.Sprint("conversation ", i))
		wishes[i].Timeout = time.Minute
		e, _, _, _ := s.enter(wishes[i], nil, at(0))
		s.bind(e, on(1), false)
		s.release(e, leased{}, at(0))
	}
	i := 0
	for b.Loop() {
		e, _, _, _ := s.enter(wishes[i%len(wishes)], nil, at(1))
		s.release(e, leased{}, at(1))
		i += 7919
	}
}

// A tenant that has half of a full table takes its own place for more, and no other
// one's; who has less takes that of whoever has been idle longest.
func TestSessionsOfTenants(t *testing.T) {
	s := newSessions(4, false)
	now := 0
	turn := func(tenant, id string) bool {
		now++
		a := by(id)
		a.tenant, a.Timeout = tenant, time.Hour
		b, turn, _, err := s.enter(a, new(sessionWaiter), at(now))
		if err != nil || turn == free {
			return false
		}
		s.bind(b, place{target: kv.Target{Worker: 1}}, false)
		s.release(b, leased{served: true}, at(now))
		return true
	}
	has := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			if s.all[chat(id)] == nil {
				t.Errorf("%s has no place", id)
			}
		}
		if len(s.all) != len(ids) {
			t.Errorf("%d bindings, want those of %v", len(s.all), ids)
		}
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} { // nobody else wants any
		turn("big", id)
	}
	has("b", "c", "d", "e")
	turn("small", "f")
	turn("small", "g")
	has("d", "e", "f", "g")
	turn("big", "h")
	has("e", "h", "f", "g")
	turn("third", "i")
	has("h", "f", "g", "i")
	turn("small", "j")
	has("h", "g", "i", "j")
	turn("big", "k")
	has("h", "i", "j", "k") // it had less than half
	for _, id := range []string{"h", "k"} {
		s.lease(s.all[chat(id)], false)
	}
	if turn("big", "l") {
		t.Error("who has half of the table, all of it in use, gets more")
	}
}
