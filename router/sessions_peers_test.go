package router

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
)

// crowd is the tables of several routers, and what they are yet to hear of each other.
type crowd struct {
	now    time.Time
	tables []*sessions
	ways   map[[2]int][]BindingEvent
	lives  int
}

func newCrowd(n, limit int) *crowd {
	c := &crowd{now: at(0), ways: map[[2]int][]BindingEvent{}}
	for range n {
		c.tables = append(c.tables, c.table(limit))
	}
	return c
}

func (c *crowd) table(limit int) *sessions {
	s := newSessions(limit, false)
	c.lives++
	s.router, s.tells = "r"+strconv.Itoa(c.lives), true
	return s
}

// tell puts what a router has to tell on its ways.
func (c *crowd) tell(i int) {
	c.send(i, c.tables[i].unsaid(c.now))
}

func (c *crowd) send(i int, events []BindingEvent) {
	for j := range c.tables {
		if j != i {
			c.ways[[2]int{i, j}] = append(c.ways[[2]int{i, j}], events...)
		}
	}
}

// all are the bindings of one router that live.
func (c *crowd) all(i int) (list []BindingEvent) {
	c.tables[i].expire(c.now)
	for _, b := range c.tables[i].all {
		if e, some := b.event(c.now); some && e.TTL > 0 {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b BindingEvent) int { return maker{a.Router, a.Number}.compare(maker{b.Router, b.Number}) })
	return list
}

// hear lets j hear the first that i has told.
func (c *crowd) hear(i, j int) {
	way := c.ways[[2]int{i, j}]
	if len(way) == 0 {
		return
	}
	c.ways[[2]int{i, j}] = way[1:]
	c.tables[j].adopt(&way[0], place{target: way[0].Target, life: context.Background()}, c.now)
	if len(c.tables[j].news) > 0 {
		panic("what is heard is told on")
	}
}

// settle lets all hear everything.
func (c *crowd) settle() {
	for i := range c.tables {
		for j := range c.tables {
			for len(c.ways[[2]int{i, j}]) > 0 {
				c.hear(i, j)
			}
		}
	}
}

// begin lets a turn of a session come to a router, and returns what holds it; worker is
// where it goes if nothing is bound.
func (c *crowd) begin(i int, a *wish, worker uint64) *binding {
	s := c.tables[i]
	b, turn, _, _ := s.enter(a, new(sessionWaiter), c.now)
	switch turn {
	case selects:
		s.bind(b, place{target: kv.Target{Worker: worker}, life: context.Background()}, a.final)
	case goes:
		b, _, _, _ = s.pin(a, place{target: a.pin, life: context.Background()}, c.now)
	case free:
		b = nil
	}
	c.tell(i)
	return b
}

func (c *crowd) end(i int, b *binding, final bool) {
	c.tables[i].release(b, leased{final: final, served: true}, c.now)
	c.tell(i)
}

// turn is a whole turn, of which all have heard when it is over.
func (c *crowd) turn(i int, a *wish, worker uint64) {
	if b := c.begin(i, a, worker); b != nil {
		c.settle()
		c.end(i, b, a.final)
	}
	c.settle()
}

// at returns where a session is bound for a router, 0 if it is not.
func (c *crowd) at(i int, id string) uint64 {
	t, _, _ := c.tables[i].look(by(id), c.now)
	return t.Worker
}

func (c *crowd) want(t *testing.T, what string, workers ...uint64) {
	t.Helper()
	for i, want := range workers {
		if got := c.at(i, "a"); got != want {
			t.Errorf("%s: router %d has it on %d, want %d", what, i, got, want)
		}
	}
}

func final(id string) *wish {
	a := by(id)
	a.final = true
	return a
}

func pinned(id string, worker uint64) *wish {
	a := by(id)
	a.pinned, a.anyRank, a.pin = true, true, kv.Target{Worker: worker}
	return a
}

// What one router binds is bound for all, until it is idle for too long everywhere or
// has ended anywhere.
func TestBindingsOfOthers(t *testing.T) {
	c := newCrowd(3, 10)
	c.turn(0, by("a"), 1)
	c.want(t, "bound", 1, 1, 1)
	if s := c.tables[1]; s.info(s.all[chat("a")], c.now).From != "r1" || c.tables[0].info(c.tables[0].all[chat("a")], c.now).From != "" {
		t.Error("it does not say who has bound it")
	}
	c.now = at(8)
	c.turn(1, by("a"), 2)
	c.want(t, "followed elsewhere", 1, 1, 1)
	c.now = at(17) // 10 seconds after the first turn, and not after the second
	c.want(t, "used elsewhere", 1, 1, 1)
	c.now = at(18)
	c.want(t, "idle", 0, 0, 0)
	c.turn(2, by("a"), 3)
	c.want(t, "bound anew", 3, 3, 3)
	c.turn(0, final("a"), 4)
	c.want(t, "ended elsewhere", 0, 0, 0)
	for i, s := range c.tables {
		if len(s.all)+len(s.dues)+s.running.Len() > 0 || s.count.Closed > 1 {
			t.Errorf("router %d: %+v", i, s.stats())
		}
	}
}

// A binding with requests in it lives elsewhere as long as they do.
func TestBindingsThatRunAreToldAgain(t *testing.T) {
	c := newCrowd(2, 10)
	b := c.begin(0, by("a"), 1)
	for range 30 {
		c.now = c.now.Add(time.Second)
		c.tables[0].remind(c.now)
		if told := len(c.tables[0].news); told > 1 {
			t.Fatalf("told %d times at once", told)
		}
		c.tell(0)
		c.settle()
		c.want(t, "it runs", 1, 1)
	}
	if heard := c.tables[1].number; heard == 0 {
		t.Error("nobody counts")
	}
	c.end(0, b, false)
	c.settle()
	c.now = c.now.Add(10 * time.Second)
	c.want(t, "idle", 0, 0)
}

// Who has bound a session at the same moment keeps it; it becomes one when one of them
// ends.
func TestBindingsAtOnce(t *testing.T) {
	c := newCrowd(2, 10)
	x, y := c.begin(0, by("a"), 1), c.begin(1, by("a"), 2)
	c.settle()
	c.want(t, "both", 1, 2)
	c.end(0, x, false)
	c.end(1, y, false)
	c.settle()
	c.want(t, "both, idle", 1, 2)
	c.now = at(9)
	c.turn(1, by("a"), 3)
	c.now = at(10)
	c.want(t, "one is idle", 0, 2)
	c.turn(1, by("a"), 3)
	c.want(t, "one is left", 2, 2)
}

// A request that is about to choose does so for itself; its session goes where it is
// bound by then.
func TestBindingComesWhileChoosing(t *testing.T) {
	c := newCrowd(2, 10)
	s := c.tables[1]
	b := s.must(t, by("a"), nil, c.now, selects)
	w := new(sessionWaiter)
	s.must(t, by("a"), w, c.now, waits)
	c.begin(0, by("a"), 1)
	e := c.ways[[2]int{0, 1}][0]
	if took, woken := s.adopt(&e, place{target: e.Target}, c.now); !took || !slices.Equal(woken, []*sessionWaiter{w}) {
		t.Fatalf("took %v, woken %v", took, woken)
	}
	s.bind(b, on(2), false)
	c.want(t, "chosen elsewhere", 1, 1)
	if s.fail(b) != nil {
		t.Error("somebody waits")
	}
	s.release(b, leased{}, c.now)
	if b.due == 0 {
		t.Error("it never ends")
	}
}

// A session that moves at one router moves at all: by a pin, or since its worker was
// lost, wherever it was bound first.
func TestBindingsMove(t *testing.T) {
	for mover := range 2 {
		c := newCrowd(2, 10)
		c.turn(0, by("a"), 1)
		c.turn(mover, pinned("a", 5), 0)
		c.want(t, "pinned", 5, 5)

		s := c.tables[mover]
		lost := s.must(t, by("a"), nil, c.now, follow)
		next := s.lose(lost, by("a"), c.now)
		c.tell(mover)
		c.settle()
		s.bind(next, on(6), false)
		c.end(mover, next, false)
		c.settle()
		c.want(t, "lost", 6, 6)
	}
}

// An end is that of one binding: what was opened since stays.
func TestBindingsEndByName(t *testing.T) {
	c := newCrowd(2, 10)
	c.turn(0, control("a", BindSession, time.Minute), 1)
	c.want(t, "bound", 1, 1)
	b := c.begin(1, control("a", CloseSession, 0), 0)
	c.end(1, b, true) // which is yet to be heard of
	c.want(t, "closed", 1, 0)
	c.begin(0, control("a", BindSession, time.Minute), 2)
	c.settle()
	c.want(t, "set up anew", 1, 1)

	// Set up at both, it ends for both.
	c = newCrowd(2, 10)
	c.turn(0, control("a", BindSession, time.Minute), 1)
	c.turn(1, control("a", BindSession, time.Minute), 1)
	c.turn(0, control("a", CloseSession, 0), 0)
	c.want(t, "closed by the first", 0, 0)

	// Requests of it that run may finish.
	c = newCrowd(2, 10)
	c.turn(0, by("a"), 1)
	b = c.begin(1, by("a"), 2)
	c.turn(0, final("a"), 0)
	c.want(t, "closed under a request", 0, 0)
	if b.gone {
		t.Error("it has no place for the request that runs")
	}
	c.end(1, b, false)
	if !b.gone {
		t.Error("it is still there")
	}
}

// The engine of a session that was opened here is told of its end here, wherever the
// client has closed it.
func TestBindingsThatEnginesKeep(t *testing.T) {
	c := newCrowd(2, 10)
	s := c.tables[0]
	b := s.must(t, control("a", OpenSession, time.Minute), nil, c.now, selects)
	if opens, _ := s.bind(b, place{target: kv.Target{Worker: 1}, life: context.Background()}, false); !opens {
		t.Fatal("nobody opens it")
	}
	c.tell(0)
	if c.settle(); c.at(1, "a") != 0 {
		t.Error("it is bound before it was opened")
	}
	s.opened(b, nil)
	c.end(0, b, false)
	c.settle()
	c.want(t, "opened", 1, 1)
	if c.tables[1].stats().Kept != 0 || s.stats().Kept != 1 {
		t.Error("the engine is the concern of one")
	}
	// Uses elsewhere do not make it live longer than the engine knows.
	c.now = at(50)
	c.turn(1, by("a"), 0)
	if !b.deadline.Equal(at(60)) {
		t.Errorf("it lives until %v", b.deadline)
	}
	c.turn(1, control("a", CloseSession, 0), 0)
	if ended := s.endings(); len(ended) != 1 || ended[0] != b {
		t.Errorf("engines hear of %v", ended)
	}
	if ended := c.tables[1].endings(); len(ended) > 0 {
		t.Errorf("engines hear of %v from elsewhere", ended)
	}
}

// In a full table what others tell makes only those go that would have gone sooner, and
// those of a tenant with half of it if it is that one's.
func TestBindingsOfOthersInAFullTable(t *testing.T) {
	tell := func(s *sessions, id, tenant string, ttl time.Duration) bool {
		took, _ := s.adopt(&BindingEvent{
			BindingKey: BindingKey{Model: "m", ID: id}, Router: "x", Number: 1, Tenant: tenant, TTL: ttl,
			Target: kv.Target{Worker: 1}, SessionTerms: SessionTerms{Timeout: ttl},
		}, on(1), at(0))
		return took
	}
	s := newSessions(4, false)
	for i, id := range []string{"a", "b", "c", "d"} {
		if !tell(s, id, "", time.Duration(10*(i+1))*time.Second) {
			t.Fatalf("%s: there is room", id)
		}
	}
	if tell(s, "e", "", 5*time.Second) {
		t.Error("what would have lived longer made room")
	}
	if !tell(s, "f", "", 15*time.Second) || s.boundTo("a", at(0)) != nil || s.boundTo("b", at(0)) == nil {
		t.Error("what would have ended first made no room")
	}
	if !tell(s, "g", "y", time.Minute) || !tell(s, "h", "y", time.Minute) {
		t.Error("another tenant finds no room")
	}
	if tell(s, "i", "y", 50*time.Second) {
		t.Error("a tenant with half of the table took more")
	}
	if len(s.all) != 4 || s.count.Evicted != 3 || s.count.Unbound != 2 {
		t.Errorf("%+v", s.stats())
	}
}

// Whatever is told, lost and told again, tables stay small, and what is adopted is what
// somebody has told. Once all is quiet and told, who knows a session of which another
// one knows has it as well; and where nobody spoke before he had heard, all have it in
// one place.
func TestBindingsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		heeding := rapid.Bool().Draw(t, "heeding")
		limit := rapid.SampledFrom([]int{2, 1000}).Draw(t, "limit")
		c := newCrowd(3, limit)
		type request struct {
			at    int
			b     *binding
			final bool
		}
		var running []request
		ids := rapid.SampledFrom([]string{"a", "b", "c"})
		router := rapid.IntRange(0, 2)
		worker := rapid.Uint64Range(1, 4)
		quiet := func() {
			if heeding {
				c.settle()
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				for range rapid.IntRange(0, 3).Draw(t, "seconds") {
					c.now = c.now.Add(time.Second)
					for i, s := range c.tables {
						s.expire(c.now)
						s.remind(c.now)
						c.tell(i)
					}
					quiet()
				}
			},
			"turn": func(t *rapid.T) {
				i, a := router.Draw(t, "router"), by(ids.Draw(t, "id"))
				switch rapid.IntRange(0, 5).Draw(t, "kind") {
				case 0:
					a.final = true
				case 1:
					a = pinned(a.key.id, worker.Draw(t, "pin"))
				case 2:
					a = control(a.key.id, BindSession, 5*time.Second)
				}
				if b := c.begin(i, a, worker.Draw(t, "worker")); b != nil {
					running = append(running, request{i, b, a.final})
				}
				quiet()
			},
			"end": func(t *rapid.T) {
				if len(running) == 0 {
					return
				}
				n := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				r := running[n]
				running = slices.Delete(running, n, n+1)
				c.end(r.at, r.b, r.final)
				quiet()
			},
			"hear": func(t *rapid.T) { c.hear(router.Draw(t, "from"), router.Draw(t, "to")) },
			"lose": func(t *rapid.T) {
				if !heeding {
					delete(c.ways, [2]int{router.Draw(t, "from"), router.Draw(t, "to")})
				}
			},
			"": func(t *rapid.T) {
				for i, s := range c.tables {
					if len(s.all) > limit {
						t.Fatalf("router %d has %d bindings", i, len(s.all))
					}
				}
				if !heeding || limit < 1000 {
					return
				}
				for _, id := range []string{"a", "b", "c"} {
					homes := map[uint64]bool{}
					for i := range c.tables {
						if w := c.at(i, id); w != 0 {
							homes[w] = true
						}
					}
					if len(homes) > 1 {
						t.Fatalf("%s is bound to %v", id, homes)
					}
				}
			},
		})
		for _, r := range running {
			c.end(r.at, r.b, r.final)
		}
		c.settle()
		for i := range c.tables {
			c.send(i, c.all(i))
		}
		c.settle()
		for i, s := range c.tables {
			for _, b := range s.all {
				for j, other := range c.tables {
					if limit == 1000 && b.bound && other.all[b.key] == nil {
						t.Fatalf("router %d knows %s, and %d does not", i, b.key.id, j)
					}
				}
			}
			c.tables[i] = s
		}
		c.now = c.now.Add(time.Hour)
		for i, s := range c.tables {
			s.expire(c.now)
			if len(s.all)+len(s.dues)+s.spare.Len()+s.running.Len() > 0 {
				t.Fatalf("router %d keeps %d bindings", i, len(s.all))
			}
		}
	})
}
