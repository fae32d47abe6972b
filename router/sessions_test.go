package router

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

func chat(id string) sessionKey { return sessionKey{model: "m", id: id} }

func at(seconds int) time.Time { return time.Unix(1e9+int64(seconds), 0) }

// The life of a binding: it is made, followed, kept by leases, and expires.
func TestSessions(t *testing.T) {
	s := newSessions(10*time.Second, 2)
	b, turn := s.enter(chat("a"), nil, at(0))
	if turn != selects {
		t.Fatalf("first request: %v", turn)
	}
	w := new(sessionWaiter)
	if again, turn := s.enter(chat("a"), w, at(1)); turn != waits || again != b {
		t.Fatalf("second request: %v", turn)
	}
	target := kv.Target{Worker: 3, Rank: 1}
	if woken := s.bind(b, target); !slices.Equal(woken, []*sessionWaiter{w}) {
		t.Fatalf("woken: %v", woken)
	}
	if again, turn := s.enter(chat("a"), w, at(2)); turn != follow || again.target != target {
		t.Fatalf("after the first: %v", turn)
	}
	s.release(b, false, at(3))
	if got := s.peek(chat("a"), at(1000)); got != b {
		t.Error("a session with a request in flight expired")
	}
	s.release(b, false, at(1000))
	if got := s.peek(chat("a"), at(1009)); got != b {
		t.Error("the session expired early")
	}
	if got := s.peek(chat("a"), at(1010)); got != nil {
		t.Error("the session has not expired")
	}
	if c := s.stats(); c != (SessionStats{Made: 1, Followed: 1, Waited: 1, Expired: 1}) {
		t.Errorf("%+v", c)
	}
}

func TestSessionsAreApart(t *testing.T) {
	s := newSessions(time.Minute, 10)
	keys := []sessionKey{
		{model: "m", id: "a"},
		{model: "m", id: "a", salt: "tenant"},
		{model: "n", id: "a"},
		{model: "m", id: "a", role: engine.Prefill},
	}
	for i, key := range keys {
		b, turn := s.enter(key, nil, at(0))
		if turn != selects {
			t.Fatalf("%+v met another session: %v", key, turn)
		}
		s.bind(b, kv.Target{Worker: uint64(i)})
	}
	for i, key := range keys {
		if b := s.peek(key, at(0)); b == nil || b.target.Worker != uint64(i) {
			t.Errorf("%+v: %+v", key, b)
		}
	}
}

func TestFailedSelection(t *testing.T) {
	s := newSessions(time.Minute, 10)
	b, _ := s.enter(chat("a"), nil, at(0))
	w1, w2, w3 := new(sessionWaiter), new(sessionWaiter), new(sessionWaiter)
	for _, w := range []*sessionWaiter{w1, w2, w3} {
		s.enter(chat("a"), w, at(0))
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
	if _, turn := s.enter(chat("a"), w1, at(0)); turn != selects {
		t.Errorf("the next one: %v", turn)
	}
}

func TestPinnedSession(t *testing.T) {
	s := newSessions(time.Minute, 10)
	first, _ := s.enter(chat("a"), nil, at(0))
	w := new(sessionWaiter)
	s.enter(chat("a"), w, at(0))
	// A pin overtakes the selection that still goes on.
	pinned, use, woken := s.pin(chat("a"), kv.Target{Worker: 2}, at(0))
	if pinned != first || use != SessionBound || !slices.Equal(woken, []*sessionWaiter{w}) {
		t.Fatalf("%+v, woken %v", pinned, woken)
	}
	if s.bind(first, kv.Target{Worker: 1}); first.target.Worker != 2 || first.leases != 2 {
		t.Errorf("the late selection: %+v", first)
	}
	// A later pin moves the binding, and one to the same target does not.
	for _, want := range []SessionUse{SessionPinned, SessionFollowed} {
		if b, use, _ := s.pin(chat("a"), kv.Target{Worker: 3}, at(0)); b != first || b.target.Worker != 3 || use != want {
			t.Errorf("moved: %+v, use %d", b, use)
		}
	}
	if c := s.stats(); c.Moved != 1 || c.Made != 1 || first.leases != 4 {
		t.Errorf("%+v, %d leases", c, first.leases)
	}
}

// A selection that fails after a pin has bound the session changes nothing.
func TestFailedSelectionAfterAPin(t *testing.T) {
	s := newSessions(time.Minute, 10)
	b, _ := s.enter(chat("a"), nil, at(0))
	s.pin(chat("a"), kv.Target{Worker: 2}, at(0))
	if woken := s.fail(b); woken != nil || s.peek(chat("a"), at(0)) != b {
		t.Errorf("woken %v, binding %v", woken, s.peek(chat("a"), at(0)))
	}
}

func TestLostBinding(t *testing.T) {
	s := newSessions(time.Minute, 10)
	old, _ := s.enter(chat("a"), nil, at(0))
	s.bind(old, kv.Target{Worker: 1})
	s.enter(chat("a"), nil, at(0))
	s.lose(old)
	b, turn := s.enter(chat("a"), nil, at(0))
	if turn != selects || b == old {
		t.Fatalf("after a loss: %v", turn)
	}
	s.bind(b, kv.Target{Worker: 2})
	s.release(old, true, at(0)) // what ran on the old one ends
	if s.peek(chat("a"), at(0)) != b || old.leases != 0 {
		t.Errorf("the new binding has gone with the old one; %d leases", old.leases)
	}
}

func TestFinalRequest(t *testing.T) {
	s := newSessions(time.Minute, 10)
	b, _ := s.enter(chat("a"), nil, at(0))
	s.bind(b, kv.Target{Worker: 1})
	s.enter(chat("a"), nil, at(0)) // one more that still runs
	s.release(b, true, at(0))
	if s.peek(chat("a"), at(0)) != nil {
		t.Error("the session is still bound")
	}
	s.release(b, false, at(1))
	if c := s.stats(); c.Bindings != 0 || s.idle.Len() != 0 {
		t.Errorf("%+v, %d idle", c, s.idle.Len())
	}
}

func TestFullTable(t *testing.T) {
	s := newSessions(time.Minute, 3)
	hold := map[string]*binding{}
	for i, id := range []string{"a", "b", "c"} {
		hold[id], _ = s.enter(chat(id), nil, at(i))
		s.bind(hold[id], kv.Target{Worker: uint64(i)})
	}
	if _, turn := s.enter(chat("d"), nil, at(3)); turn != free {
		t.Errorf("all are in use: %v", turn)
	}
	if b, use, _ := s.pin(chat("d"), kv.Target{}, at(3)); b != nil || use != SessionUnbound {
		t.Errorf("all are in use: %+v", b)
	}
	s.release(hold["b"], false, at(4))
	s.release(hold["a"], false, at(5))
	if _, turn := s.enter(chat("d"), nil, at(6)); turn != selects {
		t.Errorf("one is idle: %v", turn)
	}
	if s.peek(chat("b"), at(6)) != nil || s.peek(chat("a"), at(6)) == nil || s.peek(chat("c"), at(6)) == nil {
		t.Error("not the one that had been idle longest went")
	}
	if c := s.stats(); c.Evicted != 1 || c.Unbound != 2 || c.Bindings != 3 {
		t.Errorf("%+v", c)
	}
}

// sessionModel is a naive table: everything is looked for by walking.
type sessionModel struct {
	ttl     time.Duration
	limit   int
	entries []*modelEntry // in no order
	clock   int           // of releases
}

type modelEntry struct {
	key      sessionKey
	b        *binding
	bound    bool
	target   kv.Target
	leases   int
	waiting  []*sessionWaiter
	deadline time.Time
	idled    int
}

func (m *sessionModel) find(key sessionKey, now time.Time) *modelEntry {
	m.entries = slices.DeleteFunc(m.entries, func(e *modelEntry) bool {
		return e.bound && e.leases == 0 && !e.deadline.After(now)
	})
	for _, e := range m.entries {
		if e.key == key {
			return e
		}
	}
	return nil
}

func (m *sessionModel) of(b *binding) *modelEntry {
	for _, e := range m.entries {
		if e.b == b {
			return e
		}
	}
	return nil
}

func (m *sessionModel) drop(e *modelEntry) {
	m.entries = slices.DeleteFunc(m.entries, func(o *modelEntry) bool { return o == e })
}

// add returns a new entry, or nil if there is no room.
func (m *sessionModel) add(key sessionKey) *modelEntry {
	if len(m.entries) >= m.limit {
		var oldest *modelEntry
		for _, e := range m.entries {
			if e.bound && e.leases == 0 && (oldest == nil || e.idled < oldest.idled) {
				oldest = e
			}
		}
		if oldest == nil {
			return nil
		}
		m.drop(oldest)
	}
	e := &modelEntry{key: key}
	m.entries = append(m.entries, e)
	return e
}

// Random requests, pins, ends and failures do to the table what they do to the
// model.
func TestSessionsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &sessionModel{ttl: 5 * time.Second, limit: rapid.IntRange(1, 4).Draw(t, "limit")}
		s := newSessions(m.ttl, m.limit)
		now := at(0)
		type running struct {
			b *binding
		}
		var leases []running // requests in flight
		var choosing []*binding
		type waiting struct {
			b *binding
			w *sessionWaiter
		}
		var queue []waiting

		woken := func(got []*sessionWaiter, want []*sessionWaiter) {
			if !slices.Equal(got, want) {
				t.Fatalf("woken %v, want %v", got, want)
			}
			queue = slices.DeleteFunc(queue, func(q waiting) bool { return slices.Contains(want, q.w) })
		}
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "which") }
		anyKey := rapid.Custom(func(t *rapid.T) sessionKey {
			return chat(string(rune('a' + rapid.IntRange(0, 5).Draw(t, "id"))))
		})
		anyTarget := rapid.Custom(func(t *rapid.T) kv.Target {
			return kv.Target{Worker: rapid.Uint64Range(1, 3).Draw(t, "worker")}
		})
		bind := func(e *modelEntry, target kv.Target) []*sessionWaiter {
			if !e.bound {
				e.bound, e.target = true, target
			}
			e.leases++
			was := e.waiting
			e.waiting = nil
			return was
		}

		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "seconds")) * time.Second)
			},
			"enter": func(t *rapid.T) {
				key, w := anyKey.Draw(t, "key"), new(sessionWaiter)
				e := m.find(key, now)
				b, turn := s.enter(key, w, now)
				switch {
				case e == nil:
					if e = m.add(key); e == nil {
						if turn != free {
							t.Fatalf("no room: %v", turn)
						}
						return
					}
					e.b = b
					choosing = append(choosing, b)
					if turn != selects {
						t.Fatalf("new: %v", turn)
					}
				case !e.bound:
					e.waiting = append(e.waiting, w)
					queue = append(queue, waiting{b, w})
					if turn != waits {
						t.Fatalf("being selected: %v", turn)
					}
				default:
					e.leases++
					leases = append(leases, running{b})
					if turn != follow || b.target != e.target {
						t.Fatalf("bound to %v: %v, %v", e.target, turn, b.target)
					}
				}
				if b != e.b {
					t.Fatal("another binding")
				}
			},
			"selected": func(t *rapid.T) {
				if len(choosing) == 0 {
					t.Skip("nobody selects")
				}
				i := pick(len(choosing))
				b, target := choosing[i], anyTarget.Draw(t, "target")
				choosing = slices.Delete(choosing, i, i+1)
				got := s.bind(b, target)
				leases = append(leases, running{b})
				if e := m.of(b); e != nil {
					woken(got, bind(e, target))
				}
			},
			"failed": func(t *rapid.T) {
				if len(choosing) == 0 {
					t.Skip("nobody selects")
				}
				i := pick(len(choosing))
				b := choosing[i]
				choosing = slices.Delete(choosing, i, i+1)
				got := s.fail(b)
				if e := m.of(b); e != nil && !e.bound {
					woken(got, e.waiting)
					m.drop(e)
				}
			},
			"pin": func(t *rapid.T) {
				key, target := anyKey.Draw(t, "key"), anyTarget.Draw(t, "target")
				e := m.find(key, now)
				b, use, got := s.pin(key, target, now)
				wanted := SessionBound
				if e != nil && e.bound {
					wanted = SessionPinned
					if e.target == target {
						wanted = SessionFollowed
					}
				}
				if b != nil && use != wanted {
					t.Fatalf("use %d, want %d", use, wanted)
				}
				if e == nil {
					if e = m.add(key); e == nil {
						if b != nil {
							t.Fatal("no room, and yet a binding")
						}
						return
					}
					e.b = b
				}
				if e.bound {
					e.target = target
				}
				woken(got, bind(e, target))
				leases = append(leases, running{b})
			},
			"end": func(t *rapid.T) {
				if len(leases) == 0 {
					t.Skip("nothing runs")
				}
				i := pick(len(leases))
				b, final := leases[i].b, rapid.Bool().Draw(t, "final")
				leases = slices.Delete(leases, i, i+1)
				s.release(b, final, now)
				if e := m.of(b); e != nil {
					e.leases--
					switch {
					case final:
						m.drop(e)
					case e.leases == 0:
						m.clock++
						e.deadline, e.idled = now.Add(m.ttl), m.clock
					}
				}
			},
			"lost": func(t *rapid.T) {
				if len(leases) == 0 {
					t.Skip("nothing runs")
				}
				i := pick(len(leases))
				b := leases[i].b
				leases = slices.Delete(leases, i, i+1)
				s.lose(b)
				if e := m.of(b); e != nil {
					m.drop(e)
				}
			},
			"impatient": func(t *rapid.T) {
				if len(queue) == 0 {
					t.Skip("nobody waits")
				}
				i := pick(len(queue))
				q := queue[i]
				queue = slices.Delete(queue, i, i+1)
				if !s.cancel(q.b, q.w) {
					t.Fatal("it did not wait")
				}
				e := m.of(q.b)
				e.waiting = slices.DeleteFunc(e.waiting, func(w *sessionWaiter) bool { return w == q.w })
			},
			"": func(t *rapid.T) {
				m.find(sessionKey{}, now)
				s.expire(now)
				if len(s.all) != len(m.entries) || len(s.all) > m.limit {
					t.Fatalf("%d bindings, want %d, at most %d", len(s.all), len(m.entries), m.limit)
				}
				idle := 0
				for _, e := range m.entries {
					b := s.all[e.key]
					if b == nil || b != e.b || b.bound != e.bound || b.target != e.target || b.leases != e.leases || b.waiting.Len() != len(e.waiting) {
						t.Fatalf("%+v, want %+v", b, e)
					}
					if e.bound && e.leases == 0 {
						idle++
					}
				}
				if s.idle.Len() != idle {
					t.Fatalf("%d idle, want %d", s.idle.Len(), idle)
				}
				if c := s.stats(); c.Bindings != len(m.entries) {
					t.Fatalf("%+v", c)
				}
			},
		})
	})
}

func BenchmarkSessions(b *testing.B) {
	s := newSessions(time.Minute, mostSessions)
	keys := make([]sessionKey, mostSessions)
	for i := range keys {
		keys[i] = chat(fmt.Sprint("conversation ", i))
		e, _ := s.enter(keys[i], nil, at(0))
		s.bind(e, kv.Target{Worker: 1})
		s.release(e, false, at(0))
	}
	i := 0
	for b.Loop() {
		e, _ := s.enter(keys[i%len(keys)], nil, at(1))
		s.release(e, false, at(1))
		i += 7919
	}
}
