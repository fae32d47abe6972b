package pipeline

import (
	"encoding/json"
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
)

// engineRequest is what a worker gets on one attempt.
func (j *job) engineRequest(attempt int, delivered []uint32, card *engine.Card, target kv.Target) *engine.Request {
	r, s := j.request.Chat, &j.request.Chat.Sampling
	out := &engine.Request{
		ID: attemptID(j.request.ID, j.choice, attempt), Model: card.Model, TokenIDs: j.ids(delivered), Answered: len(delivered),
		Sampling: engine.Sampling{
			Temperature: s.Temperature, TopP: s.TopP, MinP: s.MinP, TopK: s.TopK,
			FrequencyPenalty: s.FrequencyPenalty, PresencePenalty: s.PresencePenalty,
			RepetitionPenalty: s.RepetitionPenalty, Seed: s.Seed, LogitBias: s.LogitBias,
			AllowedIDs: s.AllowedIDs, BadWords: s.BadWords,
		},
		Stop:     j.prompt.Stop,
		Logprobs: s.Logprobs,
		KV:       j.request.KV,
		Trace:    j.request.Trace,
		Meta:     j.request.Meta,
		Expected: j.request.expected,
	}
	j.model.Defaults(&out.Sampling)
	out.Stop.MaxTokens -= len(delivered)
	out.Stop.MinTokens = max(0, out.Stop.MinTokens-len(delivered))
	if s.Seed != nil && j.index > 0 {
		seed := *s.Seed + int64(j.index)
		out.Sampling.Seed = &seed
	}
	if len(delivered) == 0 && (j.index == 0 || j.echoes()) {
		out.PromptLogprobs = s.PromptLogprobs
	}
	out.Format = j.held.format
	if card.Features.Has(engine.FeatureThinkingBudget) {
		out.ThinkingBudget = r.Thinking.Budget
	}
	if card.Features.Has(engine.FeatureWantsChat) || !card.Accept(engine.InputTokens) {
		out.Chat = r
	}
	if card.Ranks() > 1 {
		out.DPRank = &target.Rank
	}
	out.Extra = j.extra(card, target, delivered)
	if ext := j.request.Ext; ext != nil && ext.AgentHints != nil {
		if h := ext.AgentHints; h.OSL != nil {
			out.Expected = *h.OSL
		}
		out.Priority = j.priority(card)
	}
	if ext := j.request.Ext; ext != nil {
		out.RequestTimestampMS = ext.RequestTimestampMS
		out.RoutedExperts, out.Annotations = ext.Fields().Has(nvext.WantRoutedExperts), noted(ext.Annotations)
	}
	return out
}

// noted returns the annotations that only a worker may have a meaning for.
func noted(annotations []string) (strange []string) {
	for _, a := range annotations {
		switch a {
		case nvext.AnnotateRequestID, nvext.AnnotatePrompt, nvext.AnnotateTokenIDs, wholeAnnotation:
		default:
			strange = append(strange, a)
		}
	}
	return strange
}

// extra returns what only engines have to do with, as they read it: of the extension,
// and who holds more of the prompt than the worker does, if it takes such hints. It is
// nil if there is nothing.
func (j *job) extra(card *engine.Card, target kv.Target, delivered []uint32) json.RawMessage {
	members := map[string]any{}
	if card.Hint != nil && j.p.Router != nil {
		if h := j.p.Router.Hint(j.ids(delivered), j.request.KV.Namespace, target); h != nil {
			members = h.Params()
		}
	}
	if ext := j.request.Ext; ext != nil && ext.MetadataUpload != nil {
		members["nvext"] = map[string]any{"metadata_upload": ext.MetadataUpload}
	}
	if len(members) == 0 {
		return nil
	}
	text, err := json.Marshal(members)
	if err != nil {
		return nil // it is texts and numbers
	}
	return text
}

// unsupported refuses what a worker cannot do, before it is asked.
func unsupported(r *Request, card *engine.Card) error {
	e := func(kind engine.ErrorKind, field string, need engine.Feature) error {
		e := engine.Errorf(kind, "%s is not supported: the engine %s cannot do %s", field, card.Engine, need)
		e.Param = field
		if kind == engine.InvalidArgument {
			e.Code = "unsupported_parameter"
		}
		return e
	}
	format := &r.Chat.Output
	need := guides(format)
	switch {
	case need != "" && !card.Features.Has(need) && insists(format) && !forced(r.Chat):
		return e(engine.InvalidArgument, format.Field(), need)
	case r.KV.Namespace.LoRA != "" && !card.Features.Has(engine.FeatureLoRA):
		return e(engine.Unsupported, "model", engine.FeatureLoRA)
	case r.KV.Namespace.Salt != "" && !card.Features.Has(engine.FeatureCacheSalt):
		return e(engine.Unsupported, "cache_salt", engine.FeatureCacheSalt)
	}
	return nil
}

// routed returns what the router is to know of the prompt as it continues behind what
// was delivered.
func (j *job) routed(delivered []uint32) []uint32 {
	if j.door == engine.InputChat {
		return j.outline
	}
	return j.ids(delivered)
}

// ids returns the prompt as it continues behind what was delivered.
func (j *job) ids(delivered []uint32) []uint32 {
	if len(delivered) == 0 {
		return j.prompt.IDs
	}
	return slices.Concat(j.prompt.IDs, delivered)
}
