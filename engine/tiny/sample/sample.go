// Package sample turns the logits of a model into the next token, in the order of
// vLLM: what may not come is taken out, biases and penalties move what is left,
// and then temperature, min-p, top-k and top-p decide from what is drawn.
//
// The one idea: a draw is a function of the logits, the seed and the position of
// the token in its text, and of nothing else. So an answer with a seed is the same
// alone and in a batch, before and after a preemption, on this worker and on the
// one that it moved to.
//
//	logits ─▶ mask, allowed, bad words, held back ─▶ bias ─▶ penalties
//	       ─▶ greedy, or ÷ temperature ─▶ min-p ─▶ top-k ─▶ top-p ─▶ draw
package sample

import (
	"errors"
	"fmt"
	"math"
)

// ErrNothing says that no token at all may come next.
var ErrNothing = errors.New("no token may come next")

// Sampler chooses the tokens of one answer. It is not safe for concurrent use.
type Sampler struct {
	params Params
	vocab  int
	seen   map[uint32]bool // ids of the prompt, for the repetition penalty
	count  map[uint32]int  // how often the answer has an id, for all penalties
	order  []uint32        // the ids of count in the order in which they came
	tail   []uint32        // the answer, if bad words have several tokens
	logits []float64       // scratch, by id
	heap   []candidate     // scratch
}

// New returns a sampler for an answer to a prompt, with a vocabulary of so many
// ids. What others have given of the answer is no prompt: it is accepted. The prompt
// is not kept.
func New(p Params, prompt []uint32, vocab int) *Sampler {
	s := &Sampler{params: p, vocab: vocab, logits: make([]float64, vocab)}
	if p.penalizes() {
		s.count = map[uint32]int{}
	}
	if p.RepetitionPenalty != 1 {
		s.seen = make(map[uint32]bool, len(prompt))
		for _, id := range prompt {
			s.seen[id] = true
		}
	}
	return s
}

// Step is what one token is chosen from.
type Step struct {
	Logits []float32 // one per id; only read
	// Position is the index of the token in prompt and answer together.
	Position int
	// Mask has a bit for each id that may come, id mod 64 of word id / 64; nil lets
	// all come.
	Mask []uint64
	// Hold lists ids that must not come yet, such as ends before there are as many
	// tokens as the request wants; they come all the same if nothing else may.
	Hold []uint32
}

// Next chooses a token. It is an error if a logit is no number, and [ErrNothing] if
// all ids are forbidden. The choice counts for penalties once it is accepted.
func (s *Sampler) Next(step Step) (uint32, error) {
	if len(step.Logits) != s.vocab {
		return 0, fmt.Errorf("sample: %d logits for a vocabulary of %d", len(step.Logits), s.vocab)
	}
	if err := s.load(step.Logits); err != nil {
		return 0, err
	}
	s.forbid(step)
	for id, bias := range s.params.Bias {
		s.logits[id] += bias
	}
	s.penalize()
	best, ok := s.best()
	switch {
	case !ok:
		return 0, ErrNothing
	case s.params.Temperature < greedyBelow:
		return best, nil
	}
	return s.draw(s.logits[best], uniform(s.params.Seed, step.Position)), nil
}

// Accept tells that a token was added to the answer. A sampler that takes over an
// answer accepts all that it has.
func (s *Sampler) Accept(id uint32) {
	if s.count != nil {
		if s.count[id] == 0 {
			s.order = append(s.order, id)
		}
		s.count[id]++
	}
	if s.params.longest > 1 {
		s.tail = append(s.tail, id)
		if drop := len(s.tail) - s.params.longest + 1; drop > 0 {
			s.tail = s.tail[:copy(s.tail, s.tail[drop:])]
		}
	}
}

func (s *Sampler) load(logits []float32) error {
	for id, l := range logits {
		if v := float64(l); v < math.Inf(1) {
			s.logits[id] = v
			continue
		}
		return fmt.Errorf("sample: the logit of token %d is %v", id, l)
	}
	return nil
}

// best returns the id with the highest logit, the lowest one among equals.
func (s *Sampler) best() (uint32, bool) {
	best, high := 0, math.Inf(-1)
	for id, l := range s.logits {
		if l > high {
			best, high = id, l
		}
	}
	return uint32(best), !math.IsInf(high, -1)
}

// forbid takes out what may not come.
func (s *Sampler) forbid(step Step) {
	never := math.Inf(-1)
	if step.Mask != nil {
		for id := range s.logits {
			if id>>6 >= len(step.Mask) || step.Mask[id>>6]>>(id&63)&1 == 0 {
				s.logits[id] = never
			}
		}
	}
	if s.params.allowed != nil {
		for id := range s.logits {
			if s.params.allowed[id>>6]>>(id&63)&1 == 0 {
				s.logits[id] = never
			}
		}
	}
	for _, word := range s.params.Bad {
		before, last := word[:len(word)-1], word[len(word)-1]
		if endsWith(s.tail, before) {
			s.logits[last] = never
		}
	}
	if s.others(step.Hold) {
		for _, id := range step.Hold {
			s.logits[id] = never
		}
	}
}

// others says whether anything but these ids may come.
func (s *Sampler) others(ids []uint32) bool {
	if len(ids) == 0 {
		return false
	}
	left := 0
	for _, l := range s.logits {
		if !math.IsInf(l, -1) {
			left++
		}
	}
	held := map[uint32]bool{}
	for _, id := range ids {
		if !held[id] && !math.IsInf(s.logits[id], -1) {
			held[id] = true
			left--
		}
	}
	return left > 0
}

func endsWith(text, end []uint32) bool {
	if len(text) < len(end) {
		return false
	}
	for i, id := range text[len(text)-len(end):] {
		if id != end[i] {
			return false
		}
	}
	return true
}

// penalize lowers what was said before: the repetition penalty for what stands in
// prompt or answer, the others for the answer alone.
func (s *Sampler) penalize() {
	if r := s.params.RepetitionPenalty; r != 1 {
		for id := range s.seen {
			s.repeat(id, r)
		}
		for _, id := range s.order {
			if !s.seen[id] {
				s.repeat(id, r)
			}
		}
	}
	for _, id := range s.order {
		s.logits[id] -= s.params.FrequencyPenalty*float64(s.count[id]) + s.params.PresencePenalty
	}
}

func (s *Sampler) repeat(id uint32, penalty float64) {
	if int(id) >= len(s.logits) {
		return
	}
	if s.logits[id] > 0 {
		s.logits[id] /= penalty
	} else {
		s.logits[id] *= penalty
	}
}
