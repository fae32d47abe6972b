package sample

import (
	"fmt"
	"math"

	"github.com/dynago/dynago/engine"
)

// greedyBelow is the temperature under which the likeliest token is taken.
const greedyBelow = 1e-5

// Params say how the tokens of an answer are chosen. [Default] and [Params.With]
// make them.
type Params struct {
	Temperature       float64 // 0: the likeliest token
	TopK              int     // of how many tokens one is drawn; 0: all
	TopP              float64 // the share of the likeliest tokens that is drawn from; 1: all
	MinP              float64 // how likely a token is at least, against the likeliest; 0: any
	RepetitionPenalty float64 // 1: none
	FrequencyPenalty  float64 // per occurrence in the answer
	PresencePenalty   float64 // once for what the answer has
	Seed              uint64
	Bias              map[uint32]float64 // added to logits
	Bad               [][]uint32         // sequences that an answer must not have

	allowed []uint64 // ids that may come, as bits; nil: all
	longest int      // tokens of the longest of Bad
}

// Default is what a request that says nothing gets: plain sampling, as with vLLM.
func Default() Params { return Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1} }

func (p *Params) penalizes() bool {
	return p.RepetitionPenalty != 1 || p.FrequencyPenalty != 0 || p.PresencePenalty != 0
}

// With returns the parameters of a request for a vocabulary of so many ids, where p
// holds what the request leaves open. Its seed is p's if the request has none.
// Errors name the field and the value.
func (p Params) With(s *engine.Sampling, vocab int) (Params, error) {
	set(&p.Temperature, s.Temperature)
	set(&p.TopP, s.TopP)
	set(&p.MinP, s.MinP)
	set(&p.RepetitionPenalty, s.RepetitionPenalty)
	set(&p.FrequencyPenalty, s.FrequencyPenalty)
	set(&p.PresencePenalty, s.PresencePenalty)
	if s.TopK != nil {
		p.TopK = max(0, *s.TopK) // -1 is all
	}
	if s.Seed != nil {
		p.Seed = uint64(*s.Seed)
	}
	p.Bias, p.Bad = s.LogitBias, s.BadWords
	for _, f := range []struct {
		name     string
		value    float64
		low, top float64
		open     bool // low itself is out of range
	}{
		{"temperature", p.Temperature, 0, math.MaxFloat64, false},
		{"top_p", p.TopP, 0, 1, true},
		{"min_p", p.MinP, 0, 1, false},
		{"repetition_penalty", p.RepetitionPenalty, 0, math.MaxFloat64, true},
		{"frequency_penalty", p.FrequencyPenalty, -2, 2, false},
		{"presence_penalty", p.PresencePenalty, -2, 2, false},
	} {
		if !(f.value >= f.low && f.value <= f.top) || f.open && f.value == f.low {
			return p, invalid(f.name, "%v is out of range: %s", f.value, between(f.low, f.top, f.open))
		}
	}
	return p, p.checkIDs(s, vocab)
}

func set(to *float64, from *float64) {
	if from != nil {
		*to = *from
	}
}

func between(low, top float64, open bool) string {
	word := "at least"
	if open {
		word = "more than"
	}
	if top == math.MaxFloat64 {
		return fmt.Sprintf("it is %s %v", word, low)
	}
	return fmt.Sprintf("it is %s %v and at most %v", word, low, top)
}

func (p *Params) checkIDs(s *engine.Sampling, vocab int) error {
	for id, bias := range s.LogitBias {
		if int64(id) >= int64(vocab) {
			return invalid("logit_bias", "the vocabulary has no id %d: its last one is %d", id, vocab-1)
		}
		if math.IsNaN(bias) || math.IsInf(bias, 1) {
			return invalid("logit_bias", "the bias of %d is %v", id, bias)
		}
	}
	if s.AllowedIDs != nil {
		p.allowed = make([]uint64, (vocab+63)/64)
	}
	for _, id := range s.AllowedIDs {
		if int64(id) >= int64(vocab) {
			return invalid("allowed_token_ids", "the vocabulary has no id %d: its last one is %d", id, vocab-1)
		}
		p.allowed[id>>6] |= 1 << (id & 63)
	}
	p.longest = 0
	for _, word := range s.BadWords {
		if len(word) == 0 {
			return invalid("bad_words", "one of them has no tokens")
		}
		for _, id := range word {
			if int64(id) >= int64(vocab) {
				return invalid("bad_words", "the vocabulary has no id %d: its last one is %d", id, vocab-1)
			}
		}
		p.longest = max(p.longest, len(word))
	}
	return nil
}

func invalid(field, format string, args ...any) error {
	e := engine.Errorf(engine.InvalidArgument, field+": "+format, args...)
	e.Param = field
	return e
}
