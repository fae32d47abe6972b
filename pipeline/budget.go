package pipeline

import (
	"errors"
	"iter"

	"github.com/dynago/dynago/engine"
)

// A thinking budget is a cap. An engine that knows one is told; for any other
// that gives tokens it is kept here: when it is spent the engine is stopped, the
// thought is closed as the model would close it, and the same worker goes on
// behind that, with all of it in its cache.

// budget caps one choice's thinking.
type budget struct {
	most int
	// thinking says whether a thought is open, and spent how many tokens went to
	// thoughts, both up to the last item that went up.
	thinking func() bool
	spent    func() int
	end      []uint32 // what closes a thought
}

// Who sees to it that a budget is kept, or a form.
const (
	ByEngine = "engine" // it was told
	ByUs     = "dynago" // here: a thought is cut, a form is checked at the end
	ByNobody = "nobody"
)

// cap returns the budget that is to be kept here, nil if there is none or the
// worker keeps it, or nobody can: an answer that is held to a form goes on where
// its form is, and text has no tokens to count. by says who sees to it.
func (j *job) cap(card *engine.Card, thinking func() bool, spent func() int) (b *budget, by string) {
	most := j.request.Chat.Thinking.Budget
	if most == nil || j.request.Chat.Prompt != nil || !j.model.Family.Thinks() {
		return nil, ""
	}
	if card.Features.Has(engine.FeatureThinkingBudget) {
		return nil, ByEngine
	}
	if j.held.format == nil && card.Accept(engine.InputTokens) {
		if end, err := j.model.Encode(nil, j.model.Family.CutThought()); err == nil && len(end) > 0 {
			return &budget{most: max(0, *most), thinking: thinking, spent: spent, end: end}, ByUs
		}
	}
	return nil, ByNobody
}

// over says whether an open thought has used its budget up.
func (b *budget) over() bool { return b != nil && b.thinking() && b.spent() >= b.most }

// split yields deltas token by token, so that a thought can be cut at any of
// them. What is told of a whole delta goes with its first or its last token.
func (b *budget) split(deltas iter.Seq2[engine.Delta, error]) iter.Seq2[engine.Delta, error] {
	if b == nil {
		return deltas
	}
	return func(yield func(engine.Delta, error) bool) {
		for d, err := range deltas {
			n := len(d.TokenIDs)
			if err != nil || n < 2 {
				if !yield(d, err) {
					return
				}
				continue
			}
			for i := range n {
				if !yield(token(&d, i), nil) {
					return
				}
			}
		}
	}
}

// token returns the part of a delta that is its token i.
func token(d *engine.Delta, i int) engine.Delta {
	n := len(d.TokenIDs)
	part := engine.Delta{TokenIDs: d.TokenIDs[i : i+1 : i+1]}
	if len(d.Logprobs) == n {
		part.Logprobs = d.Logprobs[i : i+1 : i+1]
	}
	if i == 0 {
		part.PromptLogprobs, part.EngineData = d.PromptLogprobs, d.EngineData
	}
	if i == n-1 {
		part.Finish, part.MatchedIDs, part.MatchedText = d.Finish, d.MatchedIDs, d.MatchedText
	}
	if last := d.Finish != engine.Running; last && i == n-1 || !last && i == 0 {
		part.Usage = d.Usage
	}
	return part
}

// errThoughtCut ends an attempt in the middle of a thought.
var errThoughtCut = errors.New("the thinking budget is spent")

// cut closes the thought that is open, behind which the next attempt goes on. It
// says whether anybody wants to hear of it.
func (c *carry) cut(yield func(engine.Delta, error) bool) bool {
	end := engine.Delta{TokenIDs: c.budget.end}
	c.here.Output(len(end.TokenIDs))
	c.delivered = append(c.delivered, end.TokenIDs...)
	c.budget = nil
	c.cuts++
	return yield(end, nil)
}
