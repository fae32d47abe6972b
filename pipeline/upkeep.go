package pipeline

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
)

// upkeepTime is how long an engine may take to do what operators want of its cache.
const upkeepTime = 60 * time.Second

// Upkeep is what became at one worker of what an operator wanted of all caches.
type Upkeep struct {
	Worker      uint64
	Name, Model string
	Updated     int             // blocks that are worth something else now
	Answer      json.RawMessage // of the engine, if it said something
	Err         error
}

// Flush lets the workers of a model forget what they have cached, or those of all
// models if it is "". A worker that cannot is one that has failed.
func (p *Pipeline) Flush(ctx context.Context, model string) []Upkeep {
	return p.upkeep(ctx, model, func(ctx context.Context, w *fleet.Worker, card *engine.Card, u *Upkeep) error {
		c, ok := engine.As[engine.Controller](w.Engine())
		if !ok || !slices.Contains(card.Controls, engine.ControlReset) {
			return engine.Errorf(engine.Unsupported, "the engine %s cannot be told to forget its cache", card.Engine)
		}
		wiped := func(bool) {}
		if p.Router != nil {
			wiped = p.Router.Wiping(w.ID())
		}
		var err error
		u.Answer, err = c.Control(ctx, engine.ControlReset, json.RawMessage(`{}`))
		wiped(err == nil)
		return err
	})
}

// Retain changes what blocks are worth to the workers of a model, or of all models.
func (p *Pipeline) Retain(ctx context.Context, model string, r engine.RetentionUpdate) []Upkeep {
	return p.upkeep(ctx, model, func(ctx context.Context, w *fleet.Worker, card *engine.Card, u *Upkeep) error {
		e, ok := engine.As[engine.Pinner](w.Engine())
		if !ok || !card.Features.Has(engine.FeaturePins) {
			return engine.Errorf(engine.Unsupported, "the engine %s cannot be told what blocks are worth", card.Engine)
		}
		var err error
		u.Updated, err = e.Retain(ctx, r)
		return err
	})
}

// upkeep does something at all workers of a model at once, and returns what became of
// it in the order of their ids.
func (p *Pipeline) upkeep(ctx context.Context, model string, do func(context.Context, *fleet.Worker, *engine.Card, *Upkeep) error) []Upkeep {
	ctx, cancel := context.WithTimeoutCause(ctx, upkeepTime, engine.ErrFirstItem)
	defer cancel()
	var (
		list    []*Upkeep
		running sync.WaitGroup
	)
	for _, w := range p.Fleet.Snapshot() {
		card := w.Card()
		if card == nil || model != "" && card.Model != model && !slices.Contains(card.Aliases, model) {
			continue
		}
		u := &Upkeep{Worker: w.ID(), Name: w.Name(), Model: card.Model}
		list = append(list, u)
		running.Go(func() { u.Err = engine.CauseOf(ctx, do(ctx, w, card, u)) })
	}
	running.Wait()
	out := make([]Upkeep, len(list))
	for i, u := range list {
		out[i] = *u
	}
	return out
}
