package pipeline

import (
	"maps"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/guided"
	"github.com/dynago/dynago/prompt"
)

// banned is the bias of a token that is not to be generated.
const banned = -100

// withoutCalls sees to it that the answer to a request that forbids calls has none.
// Without tools in the prompt there would be none, and no prefix either: so they
// stay, and the model is kept from beginning a call, if the engines can do that.
// The operator may decide otherwise.
func (p *Pipeline) withoutCalls(r *chat.Request, m *prompt.Model, name string) {
	if r.ToolChoice.Mode != chat.ToolNone || len(offered(r.Tools)) == 0 {
		return
	}
	var ids []uint32
	if p.allHave(name, engine.FeatureLogitBias) {
		ids = callTokens(m)
	}
	r.ToolChoice.Hidden = ids == nil && !p.bansCalls(r, m, name)
	if p.ExcludeTools != nil {
		r.ToolChoice.Hidden = *p.ExcludeTools
	}
	if r.ToolChoice.Hidden || ids == nil {
		return
	}
	bias := maps.Clone(r.Sampling.LogitBias)
	if bias == nil {
		bias = map[uint32]float64{}
	}
	for _, id := range ids {
		bias[id] = banned
	}
	r.Sampling.LogitBias = bias
}

// bansCalls says whether a structural tag keeps all engines of a model from
// beginning a call. An answer that has a form has no room for another constraint.
func (p *Pipeline) bansCalls(r *chat.Request, m *prompt.Model, name string) bool {
	_, ok := ban(r, m)
	return ok && p.allHave(name, engine.FeatureStructuralTag)
}

// ban returns the tag that forbids calls.
func ban(r *chat.Request, m *prompt.Model) (chat.OutputFormat, bool) {
	if r.Output.Kind != chat.FormatText {
		return chat.OutputFormat{}, false
	}
	return guided.Tag(m.Family.ToolParser(), offered(r.Tools), r.ToolChoice, guided.TagOptions{})
}

// callTokens returns the tokens that begin calls, nil if there are none: markers
// that the vocabulary takes apart are not what the model was trained to write.
func callTokens(m *prompt.Model) (ids []uint32) {
	for _, opener := range m.Family.CallOpeners() {
		if id, ok := m.Tokenizer.ID(opener); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// allHave tells that all workers that serve a model can do something.
func (p *Pipeline) allHave(model string, feature engine.Feature) bool {
	some := false
	for _, w := range p.Fleet.Snapshot() {
		card := w.Card()
		if card == nil || card.Model != model {
			continue
		}
		if !card.Features.Has(feature) {
			return false
		}
		some = true
	}
	return some
}
