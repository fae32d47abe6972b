package trtllm

import (
	"context"
	"iter"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/live"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// Events implements [engine.Engine]. The server publishes nothing: it is asked,
// and tells each event to one reader only. What its buffer has dropped leaves a
// hole in the numbers, which voids the rank.
func (e *Engine) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return e.feed.Events(ctx, from)
}

// source is what the events of caches of one shape come from.
func (e *Engine) source(s live.Shape) (live.Source, error) {
	return kvevent.NewPollSource(kvevent.PollConfig{
		Fetch: func(ctx context.Context) ([]byte, error) {
			return e.client.Post(ctx, "/kv_cache_events", nil, nil)
		},
		Decoder: kvevent.Config{Rank: s.First, BlockSize: int(s.BlockSize), Eagle: s.Eagle},
		Log:     e.log,
	}), nil
}

// listens says whether a card's caches are told of.
func (e *Engine) listens(c *engine.Card) bool { return e.config.Events && c.BlockSize > 0 }
