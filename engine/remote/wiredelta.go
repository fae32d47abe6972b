package remote

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

var finishes = pairs(map[engine.Finish]workerpb.Finish{
	engine.Running:             workerpb.Finish_FINISH_UNSPECIFIED,
	engine.FinishEOS:           workerpb.Finish_FINISH_EOS,
	engine.FinishStop:          workerpb.Finish_FINISH_STOP,
	engine.FinishLength:        workerpb.Finish_FINISH_LENGTH,
	engine.FinishContentFilter: workerpb.Finish_FINISH_CONTENT_FILTER,
})

// deltaMessage is how a piece of an answer is told.
func deltaMessage(d *engine.Delta) *workerpb.Delta {
	m := &workerpb.Delta{
		TokenIds: d.TokenIDs, Text: d.Text, Logprobs: logprobMessages(d.Logprobs), PromptLogprobs: logprobMessages(d.PromptLogprobs),
		MatchedIds: d.MatchedIDs, MatchedText: d.MatchedText, Usage: usageMessage(d.Usage),
		Handoff: d.Handoff, EngineData: d.EngineData, Pinned: pinMessage(d.Pinned),
	}
	var known bool
	if m.Finish, known = finishes.wire[d.Finish]; !known {
		m.Finish = workerpb.Finish_FINISH_STOP
		if m.EngineData == nil {
			m.EngineData = word(string(d.Finish))
		}
	}
	return m
}

// deltaOf is the inverse.
func deltaOf(m *workerpb.Delta) engine.Delta {
	d := engine.Delta{
		TokenIDs: m.TokenIds, Text: m.Text, Logprobs: logprobsOf(m.Logprobs), PromptLogprobs: logprobsOf(m.PromptLogprobs),
		MatchedIDs: m.MatchedIds, MatchedText: m.MatchedText, Usage: usageOf(m.Usage),
		Handoff: raw(m.Handoff), EngineData: raw(m.EngineData), Pinned: pinOf(m.Pinned),
	}
	var known bool
	if d.Finish, known = finishes.word[m.Finish]; !known {
		d.Finish = engine.FinishStop
		if d.EngineData == nil {
			d.EngineData = word("finish " + strconv.Itoa(int(m.Finish)))
		}
	}
	return d
}

// word is a text as JSON.
func word(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		return nil
	}
	return b
}

func logprobMessages(list []engine.Logprob) []*workerpb.Logprob {
	if len(list) == 0 {
		return nil
	}
	out := make([]*workerpb.Logprob, len(list))
	for i := range list {
		l := &list[i]
		out[i] = &workerpb.Logprob{Id: l.ID, Logprob: l.Logprob, Rank: natural(l.Rank), Top: logprobMessages(l.Top)}
	}
	return out
}

func logprobsOf(list []*workerpb.Logprob) []engine.Logprob {
	if len(list) == 0 {
		return nil
	}
	out := make([]engine.Logprob, len(list))
	for i, l := range list {
		out[i] = engine.Logprob{ID: l.GetId(), Logprob: l.GetLogprob(), Rank: int(l.GetRank()), Top: logprobsOf(l.GetTop())}
	}
	return out
}

func usageMessage(u *engine.Usage) *workerpb.Usage {
	if u == nil {
		return nil
	}
	return &workerpb.Usage{
		PromptTokens: natural(u.Prompt), CachedTokens: unsigned(u.Cached),
		OutputTokens: natural(u.Output), ReasoningTokens: unsigned(u.Reasoning),
	}
}

func usageOf(m *workerpb.Usage) *engine.Usage {
	if m == nil {
		return nil
	}
	return &engine.Usage{
		Prompt: int(m.PromptTokens), Cached: signed(m.CachedTokens),
		Output: int(m.OutputTokens), Reasoning: signed(m.ReasoningTokens),
	}
}

// judge holds deltas of one answer to the contract, whoever has sent them.
type judge struct {
	r     *engine.Request
	given int
}

// next returns a delta as it may go on, or what is wrong with it.
func (j *judge) next(d *engine.Delta) error {
	j.given += len(d.TokenIDs)
	terminal := d.Finish != engine.Running
	switch most := j.r.Stop.MaxTokens; {
	case len(d.TokenIDs) > 0 && d.Text != "":
		return broken("ids and text in one message")
	case most > 0 && j.given > most:
		return broken("%d ids, where %d were asked for", j.given, most)
	case d.Text != "" && len(j.r.TokenIDs) > 0:
		return broken("text in answer to ids")
	case !terminal && d.Handoff != nil:
		return broken("a hand-off before the end")
	}
	if j.r.Logprobs == nil {
		d.Logprobs = nil
	} else if len(d.Logprobs) != len(d.TokenIDs) {
		return broken("%d log probabilities for %d ids", len(d.Logprobs), len(d.TokenIDs))
	}
	if j.r.PromptLogprobs == nil {
		d.PromptLogprobs = nil
	}
	if terminal {
		j.count(d)
	}
	return nil
}

// count counts what a small backend need not count, and keeps what the worker counts
// within what can be: an id that is not given is one that ended the answer.
func (j *judge) count(d *engine.Delta) {
	u := &engine.Usage{Prompt: len(j.r.TokenIDs), Output: j.given}
	if told := d.Usage; told != nil {
		*u = *told
	}
	u.Prompt, u.Output = max(u.Prompt, len(j.r.TokenIDs)), max(u.Output, j.given)
	if most := j.r.Stop.MaxTokens; most > 0 {
		u.Output = min(u.Output, most)
	}
	if u.Cached != nil {
		u.Cached = new(min(*u.Cached, u.Prompt))
	}
	d.Usage = u
}

// broken is the error of a worker that does not keep the contract.
func broken(format string, args ...any) error {
	return engine.Errorf(engine.Internal, "the worker broke the contract: it sent %s", fmt.Sprintf(format, args...))
}
