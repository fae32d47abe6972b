package router

import (
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Clients whose turns of a session do not fit together are served all the same,
// unless operators want to know: agents outlive routers, and the next version of a
// harness may do things in another order.

// refusal says why strict operators have a request refused, or returns nil.
func (s *sessions) refusal(b *binding, a *wish) error {
	switch {
	case !s.strict:
	case b == nil:
		if a.control && !a.known && !a.sets() && !s.beside(a) {
			return misuse("session %s must be opened or bound before continuation or close", a.key.id)
		}
	case b.closing:
		if a.control {
			return b.closed()
		}
	case !b.bound:
		if a.control && (!a.sets() || b.differs(a)) {
			return misuse("session %s is opening; only a matching open or bind may coalesce", a.key.id)
		}
	case a.sets() && b.differs(a):
		return misuse("conflicting duplicate session setup of session %s", a.key.id)
	case a.elsewhere(b.target):
		return misuse("session %s target conflict: expected %v, got %v", a.key.id, b.target, a.pin)
	case a.control && a.action == CloseSession && b.leases > 0:
		return misuse("session %s cannot close while %d request lease(s) are active", a.key.id, b.leases)
	}
	return nil
}

// differs says whether a client sets up its session in another way than before.
func (b *binding) differs(a *wish) bool {
	return b.explicit && (a.Timeout != b.Timeout || a.engine != (b.wanted || b.backed || b.opening))
}

func (b *binding) closed() error {
	if b.lapsed {
		return misuse("session %s expired and is closing", b.key.id)
	}
	return misuse("session %s is closing and is not routable", b.key.id)
}

// look returns where a session is bound, for those who only want to know: nothing
// is made, refreshed or ended.
func (s *sessions) look(a *wish, now time.Time) (target kv.Target, bound bool, err error) {
	b := s.all[a.key]
	strict := s.strict && a.control
	switch {
	case b == nil:
		if strict && !a.sets() && !s.beside(a) {
			err = misuse("session %s must be opened or bound before continuation or close", a.key.id)
		}
	case b.lapsed, b.due > 0 && !b.deadline.After(now):
		if strict {
			err = misuse("session %s has expired", a.key.id)
		}
	case b.closing:
		if strict {
			err = misuse("session %s is closing and is not routable", a.key.id)
		}
	case !b.bound:
		if strict {
			err = misuse("session %s is opening and is not yet routable", a.key.id)
		}
	default:
		return b.target, true, nil
	}
	return kv.Target{}, false, err
}

// misuse is what a client is told whose turns do not fit together.
func misuse(format string, args ...any) error {
	e := engine.Errorf(engine.InvalidArgument, format, args...)
	e.Param = "nvext.session_control"
	return e
}
