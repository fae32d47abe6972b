package sglang

import (
	"context"
	"iter"
	"math"

	"github.com/dynago/dynago/engine"
)

// rankLoad is one rank as /v1/loads and, with other names, /get_load tell it.
type rankLoad struct {
	Rank          uint32 `json:"dp_rank"`
	Running       *int64 `json:"num_running_reqs"`
	Waiting       *int64 `json:"num_waiting_reqs"`
	WaitingTokens *int64 `json:"num_waiting_uncached_tokens"`
	UsedTokens    *int64 `json:"num_used_tokens"`
	MaxTokens     *int64 `json:"max_total_num_tokens"`
	// Usage is the share of tokens in use, for builds that do not tell their number.
	Usage *float64 `json:"token_usage"`

	Requests *int64 `json:"num_reqs"`   // /get_load: running and waiting
	Tokens   *int64 `json:"num_tokens"` // /get_load: in use

	Hits, Queries *int64 `json:"-"` // /metrics: tokens since the start
}

// Load yields readings. What could not be read is unknown, and never 0.
func (e *Engine) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(yield func(engine.Load, error) bool) {
		ctx, done := e.within(ctx)
		defer done()
		var route int // in loadRoutes
		var life uint64
		probe := func(ctx context.Context) (engine.Load, error) {
			// Another life may be another version.
			if f := e.facts.Load(); f != nil && f.epoch != life {
				route, life = 0, f.epoch
			}
			ranks, on := e.readLoad(ctx, route)
			route = on
			return e.load(ranks), nil
		}
		for l := range engine.Poll(ctx, e.cfg.Every, jitter, probe) {
			if !yield(l, nil) {
				return
			}
		}
	}
}

// loadRoutes are where servers of different age and flags tell their load, the
// one that tells most first.
var loadRoutes = []func(*Engine, context.Context) ([]rankLoad, error){
	func(e *Engine, ctx context.Context) ([]rankLoad, error) {
		var told struct {
			Loads []rankLoad `json:"loads"`
		}
		err := e.get(ctx, &told, "/v1/loads?include=core")
		return told.Loads, err
	},
	func(e *Engine, ctx context.Context) ([]rankLoad, error) {
		page, err := e.http.Get(ctx, "/metrics")
		return readMetrics(string(page)), err
	},
	func(e *Engine, ctx context.Context) (ranks []rankLoad, err error) {
		err = e.get(ctx, &ranks, "/get_load")
		return ranks, err
	},
}

// readLoad asks the route that answered last, or those after it. A route that the
// server says it has not is not asked again; one that failed is.
func (e *Engine) readLoad(ctx context.Context, route int) (ranks []rankLoad, on int) {
	for ; ; route++ {
		ranks, err := loadRoutes[route](e, ctx)
		if err == nil {
			return ranks, route
		}
		kind := engine.KindOf(err)
		if route == len(loadRoutes)-1 || kind != engine.Unsupported && kind != engine.NotFound {
			return nil, route
		}
	}
}

// load turns what was read into a reading with one entry for each rank.
func (e *Engine) load(read []rankLoad) engine.Load {
	ranks, block := uint32(1), int64(1)
	if f := e.facts.Load(); f != nil {
		ranks, block = f.card.Ranks(), int64(max(1, f.card.BlockSize))
	}
	l := engine.Load{Ranks: make([]engine.RankLoad, ranks)}
	for i := range l.Ranks {
		l.Ranks[i] = engine.UnknownLoad(uint32(i))
	}
	for _, r := range read {
		if r.Rank < ranks {
			r.fill(&l.Ranks[r.Rank], block)
		}
	}
	return l
}

func (r *rankLoad) fill(to *engine.RankLoad, block int64) {
	if r.Running == nil && r.Requests != nil && r.Waiting != nil {
		running := max(0, *r.Requests-*r.Waiting)
		r.Running = &running
	}
	if r.UsedTokens == nil {
		r.UsedTokens = r.Tokens
	}
	if u := r.Usage; r.UsedTokens == nil && u != nil && r.MaxTokens != nil && *u >= 0 && *u <= 1 {
		used := int64(math.Round(*u * float64(*r.MaxTokens)))
		r.UsedTokens = &used
	}
	for _, m := range []struct {
		to    *int64
		value *int64
		per   int64
	}{
		{&to.Running, r.Running, 1},
		{&to.Waiting, r.Waiting, 1},
		{&to.WaitingTokens, r.WaitingTokens, 1},
		{&to.UsedBlocks, r.UsedTokens, block},
		{&to.TotalBlocks, r.MaxTokens, block},
		{&to.PrefixHits, r.Hits, 1},
		{&to.PrefixQueries, r.Queries, 1},
	} {
		if m.value != nil && *m.value >= 0 {
			*m.to = (*m.value + m.per - 1) / m.per
		}
	}
}
