package remote

import (
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/router"
)

// outcomes are on their way to the server. One goroutine sends them as long as
// there are some; it is not there otherwise.
type outcomes struct {
	wanted  bool
	waiting []outcome
	active  bool
	sending sync.WaitGroup
}

const (
	mostWaiting  = 4096
	mostAtOnce   = 256
	sendTimeout  = 5 * time.Second
	milliseconds = float64(time.Millisecond)
)

type outcome struct {
	ID           string  `json:"id"`
	WorkerID     uint64  `json:"worker_id"`
	Rank         uint32  `json:"dp_rank"`
	PromptTokens int     `json:"prompt_tokens"`
	CachedTokens *int    `json:"cached_tokens,omitzero"`
	OutputTokens int     `json:"output_tokens"`
	First        float64 `json:"first_token_ms,omitzero"`
	Total        float64 `json:"total_ms"`
	End          string  `json:"end"`
}

var ends = map[router.End]string{router.Abandoned: "abandoned", router.Completed: "completed", router.Failed: "failed"}

// want notes whether the server wants to be told of outcomes.
func (p *Policy) want(outcomes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outcomes.wanted = outcomes
}

// Learn tells the server, if it wants to know, and the fallback, if it learns. It
// does not wait.
func (p *Policy) Learn(o router.Outcome) {
	if p.learner != nil {
		p.learner.Learn(o)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.outcomes
	if !w.wanted || p.closing.Err() != nil {
		return
	}
	if p.breaker.open() || len(w.waiting) >= mostWaiting {
		p.counted.Lost++
		return
	}
	told := outcome{
		ID: o.ID, WorkerID: o.Target.Worker, Rank: o.Target.Rank,
		PromptTokens: o.PromptTokens, OutputTokens: o.OutputTokens,
		First: float64(o.First) / milliseconds, Total: float64(o.Total) / milliseconds, End: ends[o.End],
	}
	if o.CachedTokens >= 0 {
		told.CachedTokens = &o.CachedTokens
	}
	w.waiting = append(w.waiting, told)
	if !w.active {
		w.active = true
		w.sending.Go(p.send)
	}
}

// send sends outcomes until there are none.
func (p *Policy) send() {
	for batch := p.batch(0, 0); batch != nil; {
		text, err := json.Marshal(map[string][]outcome{"outcomes": batch}, jsontext.AllowInvalidUTF8(true))
		if err == nil {
			err = p.tell(text)
		}
		told, lost := uint64(len(batch)), uint64(0)
		if err != nil {
			told, lost = lost, told
		}
		batch = p.batch(told, lost)
	}
}

func (p *Policy) tell(text []byte) error {
	ctx, cancel := context.WithTimeout(p.closing, sendTimeout)
	defer cancel()
	_, err := p.post(ctx, p.outcome, text, onlyOnce)
	return err
}

// batch counts what has become of the batch before, and returns the next one, or
// nil if the sender is to end.
func (p *Policy) batch(told, lost uint64) []outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counted.Told += told
	p.counted.Lost += lost
	w := &p.outcomes
	n := min(len(w.waiting), mostAtOnce)
	if n == 0 || p.closing.Err() != nil {
		p.counted.Lost += uint64(len(w.waiting))
		w.waiting, w.active = nil, false
		return nil
	}
	batch := w.waiting[:n:n]
	w.waiting = w.waiting[n:]
	return batch
}
