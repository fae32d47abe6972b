package router

import (
	"cmp"
	"container/list"
	"time"
)

// Routers of the same workers tell each other of bindings. One that comes from
// elsewhere is taken over where the session has none that lives: the first one wins, so
// that two which were made at the same moment stay as they are.
//
// A binding has the name of who made it and a number, and keeps them wherever it is
// taken over. So an end ends that one everywhere, and none that was made since. Numbers
// are Lamport's clock: whoever makes a binding gives it a higher one than any that he
// has seen.

// maker says who has made a binding, and which of his it is.
type maker struct {
	router string
	number uint64
}

// compare orders the makers of one session's bindings in time, as far as they have
// known of each other.
func (m maker) compare(other maker) int {
	return cmp.Or(cmp.Compare(m.number, other.number), cmp.Compare(m.router, other.router))
}

// mark returns the name of a binding that is made here.
func (s *sessions) mark() maker {
	s.number++
	return maker{s.router, s.number}
}

// adopt takes over what another router tells of a binding, and says whether it did. It
// returns those who have waited for the session to be bound.
func (s *sessions) adopt(e *BindingEvent, p place, now time.Time) (took bool, woken []*sessionWaiter) {
	s.expire(now)
	by := maker{e.Router, e.Number}
	s.number = max(s.number, by.number)
	b, deadline := s.all[e.key()], now.Add(e.TTL)
	switch {
	case e.TTL == 0:
		return s.withdraw(b, by), nil
	case b == nil, b.closing && b.by != by:
		if b = s.vacate(e, deadline); b == nil {
			s.count.Unbound++
			return false, nil
		}
		s.put(b)
	case b.closing, b.opening:
		return false, nil
	case !b.bound: // somebody is about to choose
		if b.explicit {
			by = s.mark()
		}
	case b.target == e.Target:
		s.refresh(b, e, deadline)
		return true, nil
	case b.due > 0 && !b.lives(): // what was cached there has gone
		b.SessionTerms, b.wanted, b.backed, b.maybe = e.SessionTerms, false, false, false
	case b.by.router == by.router && b.by.number < by.number && !b.kept(): // it has moved
		b.SessionTerms = e.SessionTerms
	default:
		return false, nil
	}
	s.count.Adopted++
	b.bound, b.by, b.target, b.worker, b.life = true, by, p.target, p.worker, p.life
	if b.leases == 0 {
		s.unidle(b)
		s.idleUntil(b, deadline)
	}
	return true, b.wake()
}

// refresh lets a binding live on that is used elsewhere, too, or that was set up anew
// there, in which case it lives as that says. What an engine keeps lives no longer than
// the engine knows.
func (s *sessions) refresh(b *binding, e *BindingEvent, deadline time.Time) {
	by := maker{e.Router, e.Number}
	newer := b.by.compare(by) < 0
	if newer {
		b.by, b.explicit = by, b.explicit || e.Explicit
	}
	if b.kept() {
		return
	}
	if newer {
		b.SessionTerms = e.SessionTerms
	}
	if b.due > 0 && (newer || deadline.After(b.deadline)) {
		s.unidle(b)
		s.idleUntil(b, deadline)
	}
}

// withdraw ends a binding that has ended elsewhere, behind the requests that use it
// here.
func (s *sessions) withdraw(b *binding, by maker) bool {
	switch {
	case b == nil || b.by != by || !b.bound || b.opening || b.closing:
		return false
	case b.leases > 0:
		b.closing, b.over = true, true
	default:
		s.end(b)
	}
	return true
}

// vacate returns a binding for what another router tells, or nil if there is no room.
// In a full table only those make room that would have ended sooner.
func (s *sessions) vacate(e *BindingEvent, deadline time.Time) *binding {
	b := &binding{key: e.key(), tenant: e.Tenant, SessionTerms: e.SessionTerms, explicit: e.Explicit}
	if len(s.all) < s.limit || s.all[b.key] != nil {
		return b
	}
	first := s.spareOf(e.Tenant).Front()
	if first == nil || !first.Value.(*binding).deadline.Before(deadline) {
		return nil
	}
	s.evict(first.Value.(*binding))
	return b
}

// spareOf returns those who may make room for one more of a tenant in a full table. A
// tenant that has half of it makes that room itself.
func (s *sessions) spareOf(tenant string) *list.List {
	if o := s.owners[tenant]; o != nil && o.bindings >= s.limit/2 {
		return &o.spare
	}
	return &s.spare
}

// used notes that a request has begun or ended to use a binding.
func (s *sessions) used(b *binding) {
	if !s.tells {
		return
	}
	s.news = append(s.news, b)
	switch {
	case b.leases > 0 && b.running == nil:
		b.running = s.running.PushBack(b)
	case b.leases == 0 && b.running != nil:
		s.running.Remove(b.running)
		b.running = nil
	}
}

// moved notes that a binding is about to become another one.
func (s *sessions) moved(b *binding) {
	if s.tells {
		s.news = append(s.news, &binding{key: b.key, tenant: b.tenant, by: b.by, target: b.target, SessionTerms: b.SessionTerms, gone: true})
	}
}

// remind notes the bindings that would end elsewhere before requests that use them
// here.
func (s *sessions) remind(now time.Time) {
	for e := s.running.Front(); e != nil; e = e.Next() {
		if b := e.Value.(*binding); !b.gone && now.Sub(b.said) >= b.Timeout/2 {
			s.news = append(s.news, b)
		}
	}
}

// unsaid returns what others are to be told of, once.
func (s *sessions) unsaid(now time.Time) (events []BindingEvent) {
	for _, b := range s.news {
		b.said = now
		if e, some := b.event(now); some {
			events = append(events, e)
		}
	}
	clear(s.news)
	s.news = s.news[:0]
	return events
}

// event returns what others are to know of a binding, if there is anything.
func (b *binding) event(now time.Time) (e BindingEvent, some bool) {
	e = BindingEvent{
		BindingKey: BindingKey{b.key.model, b.key.salt, b.key.id, b.key.role},
		Router:     b.by.router, Number: b.by.number,
		Tenant: b.tenant, Target: b.target, SessionTerms: b.SessionTerms, Explicit: b.explicit,
	}
	switch {
	case b.gone, b.closing && b.leases == 0:
		return e, true
	case b.closing, !b.bound:
		return e, false
	case b.due == 0:
		e.TTL = b.Timeout
	default:
		e.TTL = max(0, b.deadline.Sub(now))
	}
	return e, true
}
