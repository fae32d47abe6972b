package router

import (
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Bounds of what is believed of a binding that others tell of, in bytes.
const (
	longestSessionID = 256
	longestName      = 1 << 10 // of models and tenants
	longestRouter    = 64
	lastNumber       = 1 << 62
)

// BindingKey names a conversation wherever requests of it are routed.
type BindingKey struct {
	Model, Salt, ID string
	Role            engine.Role // of the workers that it is about, if they do a part of requests
}

// BindingEvent is what routers of the same workers tell each other of a binding.
type BindingEvent struct {
	BindingKey
	Router string // that has made it; see [Router.OnBinding]
	Number uint64 // which of that one's it is; of two for one session the higher is newer
	Tenant string // whose it is, for a fair part of the table
	Target kv.Target
	SessionTerms
	Explicit bool          // the client has set it up itself
	TTL      time.Duration // how long it lives yet if nobody uses it; 0: it has ended
}

func (e *BindingEvent) key() sessionKey {
	return sessionKey{model: e.Model, salt: e.Salt, id: e.ID, role: e.Role}
}

// sound says whether another router can have told this.
func (e *BindingEvent) sound() bool {
	return e.Router != "" && len(e.Router) <= longestRouter && e.Number < lastNumber &&
		e.ID != "" && len(e.ID) <= longestSessionID && len(e.Salt) <= longestSalt &&
		e.Model != "" && len(e.Model) <= longestName && len(e.Tenant) <= longestName &&
		e.TTL >= 0 && e.TTL <= mostSessionTTL &&
		(e.TTL == 0 || e.Timeout > 0 && e.Timeout <= mostSessionTTL)
}

// OnBinding names the router among others, and says who is told of bindings that its
// requests use: when one has been placed, when it has ended, and now and then while it
// runs. note is called with a lock held, in the order of what has happened, and must
// only take note. It must be set before the first request.
func (r *Router) OnBinding(name string, note func(BindingEvent)) {
	a := r.affinity
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note, a.table.router, a.table.tells = note, name, true
}

// Bindings returns the bindings that live, whoever has made them, in any order.
func (r *Router) Bindings() []BindingEvent {
	a := r.affinity
	now := a.now()
	a.mu.Lock()
	defer a.unlock()
	a.table.expire(now)
	list := make([]BindingEvent, 0, len(a.table.all))
	for _, b := range a.table.all {
		if e, some := b.event(now); some && e.TTL > 0 {
			list = append(list, e)
		}
	}
	return list
}

// Adopt takes over what another router tells of a binding, and says whether it did.
// What is bound here and lives stays where it is: the first one wins. Who has ended a
// binding, or moved it, has done so for all. Engines hear nothing of bindings that come
// from elsewhere: the router that has opened a session there closes it.
func (r *Router) Adopt(e *BindingEvent) bool {
	if !e.sound() {
		return false
	}
	a, p := r.affinity, place{target: e.Target}
	if e.TTL > 0 {
		if p.worker = r.fleet.Worker(e.Target.Worker); p.worker == nil {
			return false
		}
		p.life = p.worker.Lost()
		card := p.worker.Card()
		if card == nil || card.Model != e.Model || e.Target.Rank-card.DPStart >= card.Ranks() {
			return false
		}
	}
	now := a.now()
	a.mu.Lock()
	took, woken := a.table.adopt(e, p, now)
	a.unlock()
	resume(woken, nil)
	return took
}
