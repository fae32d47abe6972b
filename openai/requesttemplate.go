package openai

import (
	"fmt"
	"slices"

	"github.com/dynago/dynago/chat"
)

// RequestTemplate is what an operator puts in where clients say nothing. A nil one
// puts in nothing.
type RequestTemplate struct {
	model    string
	sampling chat.Sampling
}

// templateTable is what a template may say. Truth values are not in it: those that are
// left out mean false, which cannot be told from those that are given as such.
var templateTable = newTable(nil, slices.DeleteFunc(slices.Concat(commonFields, samplingFields, chatFields), func(f field) bool {
	switch f.name {
	case "model", "max_tokens", "max_completion_tokens", "min_tokens", "n", "temperature", "top_p", "top_k", "min_p", "frequency_penalty",
		"presence_penalty", "repetition_penalty", "seed", "stop", "stop_token_ids", "logit_bias":
		return false
	}
	return true
}))

// DecodeRequestTemplate reads a template, a JSON object of a model and members of a
// chat completions request that say how tokens are chosen.
func DecodeRequestTemplate(doc []byte) (*RequestTemplate, error) {
	b, err := decode(doc, templateTable, Options{})
	if err != nil {
		return nil, err
	}
	if len(b.unknown) > 0 {
		return nil, fmt.Errorf("%q cannot be set by a template: it takes model, max_completion_tokens and how tokens are chosen, such as temperature", b.unknown[0])
	}
	s, err := b.sampling()
	if err != nil {
		return nil, err
	}
	return &RequestTemplate{model: b.model, sampling: s}, nil
}

// DefaultModel returns the model of requests that name none, or nothing.
func (t *RequestTemplate) DefaultModel() string {
	if t == nil {
		return ""
	}
	return t.model
}

// MaxTokens returns how many tokens an answer has at most, or 0 for any number.
func (t *RequestTemplate) MaxTokens() int {
	if t == nil || t.sampling.MaxTokens == nil {
		return 0
	}
	return *t.sampling.MaxTokens
}

// Fill gives values to what a request leaves open, and overwrites nothing, zero
// included. A limit from the template is never below a minimum of the client's, nor a
// minimum from the template above a limit of his.
func (t *RequestTemplate) Fill(s *chat.Sampling) {
	if t == nil {
		return
	}
	from := &t.sampling
	fill(&s.Temperature, from.Temperature)
	fill(&s.TopP, from.TopP)
	fill(&s.TopK, from.TopK)
	fill(&s.MinP, from.MinP)
	fill(&s.FrequencyPenalty, from.FrequencyPenalty)
	fill(&s.PresencePenalty, from.PresencePenalty)
	fill(&s.RepetitionPenalty, from.RepetitionPenalty)
	fill(&s.Seed, from.Seed)
	if s.N == 0 {
		s.N = from.N
	}
	if s.Stop == nil && s.StopIDs == nil {
		s.Stop, s.StopIDs = from.Stop, from.StopIDs
	}
	if s.LogitBias == nil {
		s.LogitBias = from.LogitBias
	}
	if s.MaxTokens == nil && from.MaxTokens != nil {
		limit := max(*from.MaxTokens, s.MinTokens)
		s.MaxTokens = &limit
	}
	if s.MinTokens == 0 {
		s.MinTokens = from.MinTokens
		if s.MaxTokens != nil {
			s.MinTokens = min(s.MinTokens, *s.MaxTokens)
		}
	}
}

func fill[T any](at **T, value *T) {
	if *at == nil {
		*at = value
	}
}
