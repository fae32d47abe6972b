package router

import (
	"cmp"
	"slices"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// SessionInfo is what operators see of a binding.
type SessionInfo struct {
	Model, Tenant, ID string
	Role              engine.Role // of the workers that it is about, if they do a part of requests
	From              string      // the router that has bound it; "": this one
	State             SessionPhase
	Target            kv.Target // unless it is yet to be chosen
	Running           int       // requests in flight
	Kept              bool      // by the engine, too
	Ephemeral         bool
	Timeout           time.Duration
	ExpiresIn         time.Duration // while it is idle
}

// SessionPhase is where a binding is in its life.
type SessionPhase string

// The phases. One that closes is known to engines alone.
const (
	SessionChoosing SessionPhase = "choosing" // somebody chooses its worker, or opens it there
	SessionActive   SessionPhase = "active"
	SessionIdle     SessionPhase = "idle"
	SessionClosing  SessionPhase = "closing"
)

// SessionList returns the bindings of a model, or of all models if it is "", by model,
// tenant and id. It looks at the whole table, while nobody else can.
func (r *Router) SessionList(model string) []SessionInfo {
	list := r.affinity.list(model)
	slices.SortFunc(list, func(a, b SessionInfo) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Role, b.Role))
	})
	return list
}

func (a *affinity) list(model string) []SessionInfo {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	list := []SessionInfo{}
	for _, b := range a.table.all {
		if model == "" || b.key.model == model {
			list = append(list, a.table.info(b, now))
		}
	}
	return list
}

func (s *sessions) info(b *binding, now time.Time) SessionInfo {
	i := SessionInfo{
		Model: b.key.model, Tenant: b.tenant, ID: b.key.id, Role: b.key.role,
		State: SessionActive, Target: b.target, Running: b.leases, Kept: b.kept(), Ephemeral: b.Ephemeral, Timeout: b.Timeout,
	}
	if b.by.router != s.router {
		i.From = b.by.router
	}
	switch {
	case b.closing:
		i.State = SessionClosing
	case !b.bound:
		i.State = SessionChoosing
	case b.due > 0:
		i.State, i.ExpiresIn = SessionIdle, max(0, b.deadline.Sub(now))
	}
	return i
}

// Holding is a rank that has told of a block.
type Holding struct {
	Target kv.Target
	Tiers  []kv.Tier
}

// Holders returns who has told that it holds a block, by the name that its engine has
// for it, in the order of targets.
func (r *Router) Holders(block kv.EngineHash) (list []Holding) {
	for _, w := range r.fleet.Snapshot() {
		card := w.Card()
		if card == nil {
			continue
		}
		for i := range card.Ranks() {
			t := kv.Target{Worker: w.ID(), Rank: card.DPStart + i}
			if tiers := r.index.TiersOf(t, block); len(tiers) > 0 {
				list = append(list, Holding{t, tiers})
			}
		}
	}
	slices.SortFunc(list, func(a, b Holding) int { return a.Target.Compare(b.Target) })
	return list
}
