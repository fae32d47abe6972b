package trtllm

import (
	"context"
	"iter"
	"math"

	"github.com/dynago/dynago/engine"
)

// Load implements [engine.Engine]. The server's Prometheus page is read, which knows
// no ranks: of several, nothing is known. Only where there is none, /metrics is,
// whose every entry is told to one reader: an operator's own would miss it. Builds
// that answer there only once nothing has run for a while are not asked again.
func (e *Engine) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return engine.Poll(ctx, e.config.LoadEvery, 0.1, func(ctx context.Context) (engine.Load, error) {
		ranks := make([]engine.RankLoad, max(1, e.config.Ranks))
		for i := range ranks {
			ranks[i] = engine.UnknownLoad(uint32(i))
		}
		read, err := e.prometheus(ctx)
		switch {
		case missing(err):
			if err := e.readIterations(ctx, ranks); err != nil && !missing(err) {
				return engine.Load{}, err
			}
			return engine.Load{Ranks: ranks}, nil
		case err != nil:
			return engine.Load{}, err
		case len(ranks) == 1:
			ranks[0] = read.load()
		}
		return engine.Load{Ranks: ranks}, nil
	})
}

// missing says whether a route is not there, which is no failure.
func missing(err error) bool { return err != nil && engine.KindOf(err) == engine.Unsupported }

// load returns what a reading tells of the one rank.
func (r reading) load() engine.RankLoad {
	l := engine.UnknownLoad(0)
	if n, ok := r.number(running); ok {
		l.Running = int64(n)
	}
	if n, ok := r.number(waiting); ok {
		l.Waiting = int64(n)
	}
	blocks, ok := r.number(maxBlocks)
	if !ok {
		return l
	}
	l.TotalBlocks = int64(blocks)
	if used, ok := r.number(utilization); ok && used <= 1 {
		l.UsedBlocks = int64(math.Round(used * blocks))
	}
	return l
}
