package pipeline

import (
	"sync"

	"github.com/dynago/dynago/engine"
)

// mostUnheard is of how many models and engines is remembered that people were told.
const mostUnheard = 1024

// unheard are the models, each on an engine, to which requests have come with a
// priority that the engine is not sent. It is safe for concurrent use.
type unheard struct {
	mu   sync.Mutex
	told map[[2]string]bool
}

// first says whether nobody was told yet.
func (u *unheard) first(model, engine string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := [2]string{model, engine}
	if u.told[key] || len(u.told) >= mostUnheard {
		return false
	}
	if u.told == nil {
		u.told = map[[2]string]bool{}
	}
	u.told[key] = true
	return true
}

// priority returns the client's priority for an engine, or nil: one that does not
// schedule by it, or of which nobody knows that, might answer with an error. People
// are told once.
func (j *job) priority(card *engine.Card) *int32 {
	p := j.request.Ext.AgentHints.Priority
	if p == nil || card.Features.Has(engine.FeaturePriority) {
		return p
	}
	if !j.request.Background && j.p.unheard.first(card.Model, card.Engine) {
		j.p.Logger.Info("requests have priorities, of which the engine is not told: it is not known to schedule by them", "model", card.Model, "engine", card.Engine)
	}
	return nil
}
