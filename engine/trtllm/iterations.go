package trtllm

import (
	"context"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
)

// iteration is one entry of /metrics: what the server told of one of its rounds.
type iteration struct {
	Active  *int64 `json:"numActiveRequests"`
	Queued  *int64 `json:"numQueuedRequests"`
	Most    *int64 `json:"maxNumActiveRequests"`
	Rank    uint32 `json:"attentionDpRank"`
	Caching *struct {
		Most   *int64 `json:"maxNumBlocks"`
		Used   *int64 `json:"usedNumBlocks"`
		Tokens *int64 `json:"tokensPerBlock"`
		Reused *int64 `json:"reusedBlocks"`
		Missed *int64 `json:"missedBlocks"`
	} `json:"kvCacheStats"`
	Batching *struct {
		Context *int64 `json:"numCtxTokens"`
	} `json:"inflightBatchingStats"`
}

// iterations are what the server has told of its rounds. Each is told to one reader
// only, and where there was none, nothing is: what was told before says nothing of
// now but for the sizes.
type iterations struct {
	mu   sync.Mutex
	last map[uint32]iteration // by rank
}

// take reads an answer of /metrics, and returns what it tells of each rank now.
func (i *iterations) take(text []byte) (map[uint32]iteration, error) {
	var list []iteration
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, &engine.Error{Kind: engine.Internal, Message: "/metrics answers with something else than iterations", Err: err}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	now := map[uint32]iteration{}
	for _, it := range list {
		now[it.Rank] = it
	}
	if i.last == nil {
		i.last = map[uint32]iteration{}
	}
	for rank, it := range now {
		i.last[rank] = it
	}
	return now, nil
}

// size fills in what a card has of the server's sizes, as far as nothing else has
// told them.
func (i *iterations) size(c *engine.Card) {
	i.mu.Lock()
	defer i.mu.Unlock()
	it, ok := i.last[0]
	if !ok {
		return
	}
	if it.Most != nil && c.MaxSeqs == 0 {
		c.MaxSeqs = uint32(max(0, *it.Most))
	}
	if k := it.Caching; k != nil {
		if k.Tokens != nil && c.BlockSize == 0 {
			c.BlockSize = uint32(max(0, *k.Tokens))
		}
		if k.Most != nil && c.TotalBlocks == 0 {
			c.TotalBlocks = uint64(max(0, *k.Most))
		}
	}
}

// load returns what an iteration tells.
func (i iteration) load(rank uint32) engine.RankLoad {
	l := engine.UnknownLoad(rank)
	fill := func(to, from *int64) {
		if from != nil && *from >= 0 {
			*to = *from
		}
	}
	fill(&l.Running, i.Active)
	fill(&l.Waiting, i.Queued)
	if b := i.Batching; b != nil {
		fill(&l.WaitingTokens, b.Context)
	}
	k := i.Caching
	if k == nil {
		return l
	}
	fill(&l.TotalBlocks, k.Most)
	fill(&l.UsedBlocks, k.Used)
	if k.Reused != nil && k.Missed != nil && k.Tokens != nil {
		l.PrefixHits, l.PrefixQueries = *k.Reused**k.Tokens, (*k.Reused+*k.Missed)**k.Tokens
	}
	return l
}

// readIterations asks a server that has no Prometheus page. Ranks of which nothing
// is told are left as they are.
func (e *Engine) readIterations(ctx context.Context, ranks []engine.RankLoad) error {
	if e.reticent.Load() {
		return nil
	}
	text, err := e.client.Get(ctx, "/metrics")
	switch {
	case engine.KindOf(err) == engine.DeadlineExceeded:
		if !e.reticent.Swap(true) {
			e.log.Info("TensorRT-LLM tells its load only when it idles: give its configuration return_perf_metrics: true", "url", e.client.URL())
		}
		return nil
	case err != nil:
		return err
	}
	now, err := e.iterations.take(text)
	for rank, it := range now {
		if int(rank) < len(ranks) {
			ranks[rank] = it.load(rank)
		}
	}
	return err
}
