package pipeline

import (
	"iter"

	"github.com/dynago/dynago/engine"
)

// bounded ends an answer that goes on behind its limit. Engines heed limits; one that
// does not may never end, and nobody else would stop it: it is never silent.
func bounded(deltas iter.Seq2[engine.Delta, error], r *engine.Request) iter.Seq2[engine.Delta, error] {
	most := r.Stop.MaxTokens
	return func(yield func(engine.Delta, error) bool) {
		come := 0
		var usage *engine.Usage
		for d, err := range deltas {
			if d.Usage != nil {
				usage = d.Usage
			}
			if come += len(d.TokenIDs); err == nil && come > most {
				yieldCut(yield, &d, len(d.TokenIDs)-(come-most), usage, r)
				return
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// yieldCut yields the first n tokens of a delta as the end of an answer.
//
//go:noinline // see fail
func yieldCut(yield func(engine.Delta, error) bool, d *engine.Delta, n int, usage *engine.Usage, r *engine.Request) {
	end := engine.Delta{
		TokenIDs: d.TokenIDs[:n:n], PromptLogprobs: d.PromptLogprobs, EngineData: d.EngineData, Finish: engine.FinishLength,
		Usage: &engine.Usage{Prompt: len(r.TokenIDs), Output: r.Stop.MaxTokens},
	}
	if len(d.Logprobs) == len(d.TokenIDs) {
		end.Logprobs = d.Logprobs[:n:n]
	}
	if usage != nil {
		end.Usage.Prompt, end.Usage.Cached = usage.Prompt, usage.Cached
	}
	yield(end, nil)
}
