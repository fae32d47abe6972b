package mock

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Card returns what an engine with these arguments tells about itself, as far as
// the arguments say it.
func (a *Args) Card(model string) *engine.Card {
	c := &engine.Card{
		Model:            model,
		Engine:           "mock (" + a.EngineType + ")",
		Role:             a.role(),
		Accepts:          []engine.Input{engine.InputTokens},
		ContextLength:    uint32(a.Capacity()),
		BlockSize:        uint32(a.BlockSize),
		HashScheme:       engine.SchemeXXH3,
		DPSize:           uint32(a.DPSize),
		TotalBlocks:      uint64(a.NumGPUBlocks),
		MaxSeqs:          uint32(a.MaxNumSeqs),
		MaxBatchedTokens: uint64(a.MaxNumBatchedTokens),
		MaxLogprobs:      maxLogprobs,
		Features: engine.Features{
			engine.FeatureSeed, engine.FeatureMinTokens, engine.FeatureStopIDs, engine.FeatureLogprobs, engine.FeaturePromptLogprobs,
			engine.FeatureCachedTokens, engine.FeatureDPRank, engine.FeatureCacheSalt, engine.FeatureLoRA, engine.FeaturePriority,
			engine.FeatureContinues,
		},
	}
	if a.EnablePrefixCaching {
		c.Features = append(c.Features, engine.FeatureEvents)
		c.Controls = []string{engine.ControlReset}
	}
	c.Features = append(c.Features, a.cacheFeatures()...)
	if c.Role == engine.Prefill { // whoever decodes takes blocks in either way
		c.Disagg.Style = styleSerial
		c.Features = append(c.Features, engine.FeatureHandoff)
	}
	return c
}

// card builds the card, which never changes.
func (e *Engine) card() *engine.Card {
	c := e.cfg.Args.Card(e.cfg.Model)
	if m := e.meeting; m != nil {
		c.Disagg = engine.Transfer{Style: styleConcurrent, Host: m.host, Port: m.port}
	}
	if c.Role == engine.Prefill && e.pulls() {
		c.Disagg.Style = engine.StylePull
	}
	c.Files, c.EOS = e.cfg.Files, e.cfg.EOS
	c.ContextLength = cmp.Or(e.cfg.ContextLength, c.ContextLength)
	c.Features = append(c.Features, e.guided()...)
	if e.cfg.Computer != nil {
		e.cfg.Computer.Card(c)
	}
	if e.source == SourceScript {
		c.Features = append(c.Features, engine.FeatureWantsChat)
	}
	return c
}

// Card yields the card at once, and again whenever state or epoch change.
func (e *Engine) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		wake, stop := e.cards.listen()
		defer stop()
		defer context.AfterFunc(ctx, func() { nudge(wake) })()
		status := engine.Status{Revision: 1, Card: e.card()}
		for told := false; ctx.Err() == nil; {
			state, reason := e.state()
			epoch := e.epoch.Load()
			if !told || state != status.State || epoch != status.Epoch {
				told = true
				status.State, status.Reason, status.Epoch = state, reason, epoch
				if !yield(status, nil) {
					return
				}
			}
			wait := time.Duration(-1)
			switch state {
			case engine.Failed:
				return
			case engine.Loading:
				wait = max(0, e.ready-e.clock.Now())
			}
			e.clock.Wait(wait, wake)
		}
	}
}

// How often load is told: at most, and at least.
const (
	loadEvery     = 100 * time.Millisecond
	loadHeartbeat = 2 * time.Second
)

// Load yields a reading at once, and again when it has changed.
func (e *Engine) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(yield func(engine.Load, error) bool) {
		wake, stop := e.loads.listen()
		defer stop()
		defer context.AfterFunc(ctx, func() { nudge(wake) })()
		var told engine.Load
		var at time.Duration
		for ctx.Err() == nil && !e.closed.Load() {
			now := e.clock.Now()
			if l := e.load(); told.Ranks == nil || !equal(l, told) || now-at >= loadHeartbeat {
				told, at = l, now
				if !yield(l, nil) {
					return
				}
				e.clock.Wait(loadEvery, ctx.Done())
				continue
			}
			e.clock.Wait(at+loadHeartbeat-now, wake)
		}
	}
}

func (e *Engine) load() engine.Load {
	l := engine.Load{Ranks: make([]engine.RankLoad, len(e.rank))}
	for i, r := range e.rank {
		l.Ranks[i] = r.load()
	}
	return l
}

func equal(a, b engine.Load) bool {
	for i := range a.Ranks {
		if a.Ranks[i] != b.Ranks[i] {
			return false
		}
	}
	return true
}

// markEvery is how long a source of events is silent at most.
const markEvery = 5 * time.Second

// Events yields what the ranks stored and removed. Ranks without a cursor begin
// with a snapshot.
func (e *Engine) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		wake, stop := e.events.listen()
		defer stop()
		defer context.AfterFunc(ctx, func() { nudge(wake) })()
		places := make([]reader, len(e.rank))
		for i := range places {
			places[i].fresh = true
		}
		for _, c := range from {
			if int(c.Rank) < len(places) {
				places[c.Rank] = reader{epoch: c.Epoch, last: c.Sequence}
			}
		}
		for ctx.Err() == nil && !e.closed.Load() {
			news := false
			for i, r := range e.rank {
				for _, b := range r.read(&places[i]) {
					news = true
					if !yield(b, nil) {
						return
					}
				}
			}
			if news {
				continue
			}
			began := e.clock.Now()
			e.clock.Wait(markEvery, wake)
			if e.clock.Now()-began < markEvery {
				continue
			}
			for i, at := range places {
				if !yield(kv.Batch{Rank: uint32(i), Epoch: at.epoch, Last: at.last}, nil) {
					return
				}
			}
		}
	}
}
