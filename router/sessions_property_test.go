package router

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
)

// life is a naive account of sessions: for each binding where it is, who is in it
// and until when it stays, and what the engines keep. Nothing is sorted in it.
type life struct {
	*rapid.T
	s      *sessions
	now    time.Time
	limit  int
	strict bool
	others int // routers that have told of something

	choosing []*visitor
	opening  []*visitor
	running  []*visitor
	waiting  []*visitor
	telling  []*binding

	kept map[sessionKey]map[uint64]bool // workers whose engines keep a session
	seen map[*binding]*account
	bar  context.Context
}

// account is what is expected of a binding.
type account struct {
	target kv.Target
	leases int
	until  time.Time // it lives since the last lease has ended, or another router has told of it
}

// visitor is a request.
type visitor struct {
	wish
	b      *binding
	at     place
	first  bool
	waiter *sessionWaiter
}

func (l *life) account(b *binding) *account {
	if l.seen[b] == nil {
		l.seen[b] = new(account)
	}
	return l.seen[b]
}

func (l *life) drawPlace() place {
	return place{target: kv.Target{Worker: rapid.Uint64Range(1, 3).Draw(l.T, "worker")}, life: l.bar}
}

// comes lets a request do what the table says.
func (l *life) comes(v *visitor) {
	v.waiter = new(sessionWaiter)
	b, turn, use, err := l.s.enter(&v.wish, v.waiter, l.now)
	l.collect()
	v.b = b
	switch {
	case err != nil:
		if !l.strict {
			l.Fatalf("refused: %v", err)
		}
	case turn == follow:
		if a := l.account(b); b.target != a.target || b.gone {
			l.Fatalf("follows to %v, want %v", b.target, a.target)
		}
		v.at = place{target: b.target, life: l.bar}
		l.account(b).leases++
		l.booked(v, l.s.order(b, v.at))
	case turn == selects:
		v.first = true
		l.choosing = append(l.choosing, v)
	case turn == waits:
		l.waiting = append(l.waiting, v)
	case turn == goes:
		v.at = place{target: v.pin, life: l.bar}
		b, _, opens, woken := l.s.pin(&v.wish, v.at, l.now)
		l.collect()
		if v.b = b; b != nil {
			l.account(b).leases++
			l.account(b).target = b.target
			l.booked(v, opens)
		}
		l.wake(woken, nil)
	case turn == free:
		if use == SessionUnknown && (!v.control || v.sets()) {
			l.Fatalf("%+v is unknown", v.wish)
		}
	}
}

func (l *life) booked(v *visitor, opens bool) {
	if opens {
		l.opening = append(l.opening, v)
	} else {
		l.running = append(l.running, v)
	}
}

// wake lets those go on who have waited.
func (l *life) wake(woken []*sessionWaiter, err error) {
	for _, w := range woken {
		i := slices.IndexFunc(l.waiting, func(v *visitor) bool { return v.waiter == w })
		if i < 0 {
			l.Fatal("somebody goes on who does not wait")
		}
		v := l.waiting[i]
		l.waiting = slices.Delete(l.waiting, i, i+1)
		if err != nil && w.opens {
			if v.tried = true; l.strict {
				continue
			}
		}
		l.comes(v)
	}
}

// collect takes over what engines have to be told.
func (l *life) collect() {
	for _, b := range l.s.endings() {
		if b.leases > 0 || slices.Contains(l.telling, b) {
			l.Fatalf("a session is over with %d requests in it, or twice", b.leases)
		}
		l.telling = append(l.telling, b)
	}
}

// some does something to one of a list, if there is one, and takes it out before.
func some[T any](l *life, list *[]T, do func(T)) {
	if len(*list) == 0 {
		return
	}
	i := rapid.IntRange(0, len(*list)-1).Draw(l.T, "which")
	one := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	do(one)
}

// keep notes what the engine of a binding has done.
func (l *life) keep(b *binding, worker uint64, kept bool) {
	if l.kept[b.key] == nil {
		l.kept[b.key] = map[uint64]bool{}
	}
	if kept {
		l.kept[b.key][worker] = true
	} else {
		delete(l.kept[b.key], worker)
	}
}

// chosen ends a selection.
func (l *life) chosen(v *visitor, ok bool) {
	if !ok {
		l.wake(l.s.fail(v.b), nil)
		return
	}
	v.at = l.drawPlace()
	opens, woken := l.s.bind(v.b, v.at, v.final)
	l.account(v.b).leases++
	l.account(v.b).target = v.b.target
	l.booked(v, opens)
	l.wake(woken, nil)
}

// opened ends the opening of a session; the shell has taken back before what the
// engine was still to hear of it.
func (l *life) opened(v *visitor, ok bool) {
	l.retract(v.b.key, v.at.target.Worker)
	var err error
	if l.keep(v.b, v.at.target.Worker, ok || l.kept[v.b.key][v.at.target.Worker]); !ok {
		err = errors.New("no")
	}
	l.running = append(l.running, v)
	l.wake(l.s.opened(v.b, err), err)
}

// abandoned is opened where its client has gone.
func (l *life) abandoned(v *visitor, ok bool) {
	l.retract(v.b.key, v.at.target.Worker)
	l.keep(v.b, v.at.target.Worker, ok || l.kept[v.b.key][v.at.target.Worker])
	woken := l.s.unopened(v.b)
	l.ends(v, false)
	l.wake(woken, nil)
}

func (l *life) retract(key sessionKey, worker uint64) {
	for _, b := range slices.Clone(l.telling) {
		if b.key == key && b.target.Worker == worker {
			l.telling = slices.DeleteFunc(l.telling, func(o *binding) bool { return o == b })
			l.s.told(b)
		}
	}
}

func (l *life) ends(v *visitor, served bool) {
	a := l.account(v.b)
	a.leases--
	a.until = l.now.Add(v.b.Timeout)
	l.s.release(v.b, leased{final: v.final, served: served, first: v.first}, l.now)
	l.collect()
}

func (l *life) lost(v *visitor) {
	a := l.account(v.b)
	a.leases--
	next := l.s.lose(v.b, &v.wish, l.now)
	l.collect()
	if next == nil {
		l.comes(v)
		return
	}
	v.b, v.first = next, true
	l.choosing = append(l.choosing, v)
}

func (l *life) told(b *binding) {
	l.keep(b, b.target.Worker, false)
	l.s.told(b)
}

// adopt lets another router tell of a binding.
func (l *life) adopt(e *BindingEvent) {
	l.s.expire(l.now)
	l.collect()
	var old binding
	b, by, until := l.s.all[e.key()], maker{e.Router, e.Number}, l.now.Add(e.TTL)
	if b != nil {
		old = *b
	}
	took, woken := l.s.adopt(e, place{target: e.Target, life: l.bar}, l.now)
	l.collect()
	want := true
	switch {
	case e.TTL == 0:
		want = b != nil && old.by == by && old.bound && !old.opening && !old.closing
		if want && old.leases == 0 && !old.kept() && l.s.all[e.key()] != nil {
			l.Fatal("it has not ended with that of its router")
		}
	case b == nil || old.closing && old.by != by:
		b = l.s.all[e.key()]
		if want = b != nil && b.by == by; want {
			*l.account(b) = account{target: e.Target, until: until}
		} else if len(l.s.all) < l.limit {
			l.Fatal("it is not taken over, and there is room")
		}
	case old.closing, old.opening:
		want = false
	case old.bound && old.target == e.Target:
		if a := l.account(b); !old.backed && (until.After(a.until) || old.by.compare(by) < 0) {
			a.until = until
		}
	case !old.bound, old.by.router == by.router && old.by.number < by.number && !old.backed:
		l.account(b).target, l.account(b).until = e.Target, until
	default:
		want = false
	}
	if took != want {
		l.Fatalf("took over %v, want %v: %+v", took, want, old)
	}
	l.wake(woken, nil)
}

// hear checks what others are told.
func (l *life) hear() {
	for _, e := range l.s.unsaid(l.now) {
		b := l.s.all[e.key()]
		alive := b != nil && b.by == maker{e.Router, e.Number} && b.bound && (b.leases > 0 || !b.closing)
		if !e.sound() || alive != (e.TTL > 0) || alive && (e.Target != b.target || b.due > 0 && !l.now.Add(e.TTL).Equal(b.deadline)) {
			l.Fatalf("told %+v of %+v", e, b)
		}
	}
	if running := l.s.running.Len(); running > len(l.running)+len(l.opening) {
		l.Fatalf("%d bindings run for %d requests", running, len(l.running)+len(l.opening))
	}
}

// check looks at everything.
func (l *life) check() {
	l.s.expire(l.now)
	l.collect()
	if len(l.s.all) > l.limit {
		l.Fatalf("%d bindings, want %d at the most", len(l.s.all), l.limit)
	}
	idle, spare := 0, 0
	for key, b := range l.s.all {
		a := l.account(b)
		if b.key != key || b.leases != a.leases || b.gone || b.bound && b.target != a.target {
			l.Fatalf("%+v, want %+v", b, a)
		}
		if chosen := slices.ContainsFunc(slices.Concat(l.choosing, l.opening), func(v *visitor) bool { return v.b == b }); !b.bound && !b.closing && !chosen {
			l.Fatal("nobody binds it any more")
		}
		if b.bound && b.leases == 0 && !b.closing {
			idle++
			if b.due == 0 || l.s.dues[b.due-1] != b || !b.deadline.Equal(a.until) || !b.deadline.After(l.now) {
				l.Fatalf("%+v is idle until %v", b, a.until)
			}
			if !b.backed {
				spare++
			}
		}
	}
	bindings, owned := map[string]int{}, 0
	for _, b := range l.s.all {
		bindings[b.tenant]++
	}
	for tenant, o := range l.s.owners {
		owned += o.spare.Len()
		if o.bindings != bindings[tenant] || o.bindings == 0 {
			l.Fatalf("tenant %q has %d bindings, want %d", tenant, o.bindings, bindings[tenant])
		}
	}
	if len(l.s.owners) != len(bindings) || owned != spare {
		l.Fatalf("%d tenants have %d that may make room, want %d and %d", len(l.s.owners), owned, len(bindings), spare)
	}
	if len(l.s.dues) != idle || l.s.spare.Len() != spare {
		l.Fatalf("%d are idle, %d may make room; want %d, %d", len(l.s.dues), l.s.spare.Len(), idle, spare)
	}
	for _, v := range l.waiting {
		if v.waiter.place == nil || v.b.bound && !v.b.opening {
			l.Fatal("somebody waits for nothing")
		}
	}
}

// Whatever happens, nobody waits for nothing, a session stays where it is, the table
// stays small, and in the end it is empty and no engine keeps anything.
func TestSessionsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &life{
			T: t, now: at(0), limit: rapid.IntRange(1, 4).Draw(t, "limit"), strict: rapid.Bool().Draw(t, "strict"),
			kept: map[sessionKey]map[uint64]bool{}, seen: map[*binding]*account{}, bar: context.Background(),
		}
		l.s = newSessions(l.limit, l.strict)
		l.s.router, l.s.tells = "self", true
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				l.now = l.now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "seconds")) * time.Second)
			},
			"request": func(t *rapid.T) {
				id := string(rune('a' + rapid.IntRange(0, 4).Draw(t, "id")))
				v := &visitor{wish: *by(id)}
				if rapid.Bool().Draw(t, "control") {
					action := rapid.SampledFrom([]SessionAction{ContinueSession, BindSession, OpenSession, OpenSession, CloseSession}).Draw(t, "action")
					v.wish = *control(id, action, time.Duration(rapid.IntRange(1, 5).Draw(t, "timeout"))*time.Second)
				} else {
					v.final = rapid.IntRange(0, 4).Draw(t, "final") == 0
				}
				v.tenant = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "tenant")
				if rapid.IntRange(0, 4).Draw(t, "pinned") == 0 {
					v.pinned, v.anyRank, v.pin = true, true, l.drawPlace().target
				}
				l.comes(v)
			},
			"chosen":   func(*rapid.T) { some(l, &l.choosing, func(v *visitor) { l.chosen(v, true) }) },
			"failed":   func(*rapid.T) { some(l, &l.choosing, func(v *visitor) { l.chosen(v, false) }) },
			"opened":   func(*rapid.T) { some(l, &l.opening, func(v *visitor) { l.opened(v, true) }) },
			"unopened": func(*rapid.T) { some(l, &l.opening, func(v *visitor) { l.opened(v, false) }) },
			"abandoned": func(t *rapid.T) {
				some(l, &l.opening, func(v *visitor) { l.abandoned(v, rapid.Bool().Draw(t, "heard")) })
			},
			"served":   func(*rapid.T) { some(l, &l.running, func(v *visitor) { l.ends(v, true) }) },
			"unserved": func(*rapid.T) { some(l, &l.running, func(v *visitor) { l.ends(v, false) }) },
			"lost":     func(*rapid.T) { some(l, &l.running, l.lost) },
			"told":     func(*rapid.T) { some(l, &l.telling, l.told) },
			"impatient": func(*rapid.T) {
				some(l, &l.waiting, func(v *visitor) {
					if !l.s.cancel(v.b, v.waiter) || l.s.cancel(v.b, v.waiter) {
						l.Fatal("it did not wait, or twice")
					}
				})
			},
			"adopt": func(t *rapid.T) {
				e := &BindingEvent{
					BindingKey: BindingKey{Model: "m", ID: string(rune('a' + rapid.IntRange(0, 4).Draw(t, "id")))},
					Tenant:     rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "tenant"),
					Target:     l.drawPlace().target, TTL: time.Duration(rapid.IntRange(0, 5).Draw(t, "ttl")) * time.Second,
					SessionTerms: SessionTerms{Timeout: time.Duration(rapid.IntRange(1, 5).Draw(t, "timeout")) * time.Second},
				}
				l.others++
				e.Router, e.Number = "other"+strconv.Itoa(l.others), rapid.Uint64Range(0, 9).Draw(t, "number")
				if b := l.s.all[e.key()]; b != nil && rapid.Bool().Draw(t, "known") {
					e.Router, e.Number = b.by.router, b.by.number+rapid.Uint64Range(0, 1).Draw(t, "later")
				}
				l.adopt(e)
			},
			"remind": func(*rapid.T) { l.s.remind(l.now) },
			"": func(*rapid.T) {
				l.hear()
				l.check()
			},
		})
		for len(l.choosing)+len(l.opening)+len(l.running) > 0 {
			some(l, &l.choosing, func(v *visitor) { l.chosen(v, true) })
			some(l, &l.opening, func(v *visitor) { l.opened(v, true) })
			some(l, &l.running, func(v *visitor) { l.ends(v, true) })
			l.check()
		}
		l.now = l.now.Add(time.Hour)
		l.check()
		for len(l.telling) > 0 {
			some(l, &l.telling, l.told)
		}
		if len(l.s.all)+len(l.s.dues)+l.s.spare.Len()+len(l.waiting) > 0 {
			t.Fatalf("%d bindings are left, %d requests wait", len(l.s.all), len(l.waiting))
		}
		for key, workers := range l.kept {
			if len(workers) > 0 {
				t.Fatalf("the engines of %v keep session %s", workers, key.id)
			}
		}
	})
}
