package talk

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"
)

// source draws all that is random. The values of the generator under it are
// specified, those of package rand's own methods may change.
type source struct {
	rng  *rand.PCG
	held bool
}

// below returns a number in [0, n).
func (s *source) below(n int) int { return int(s.rng.Uint64() % uint64(n)) }

// between returns a number in [low, high].
func (s *source) between(low, high int) int { return low + s.below(high-low+1) }

// chance is true with a probability of percent in a hundred.
func (s *source) chance(percent int) bool { return s.below(100) < percent }

// harder is chance in training, and never true of what is held out: training has more
// of what is hard than the exam.
func (s *source) harder(percent int) bool { return !s.held && s.chance(percent) }

func pick[T any](s *source, list []T) T { return list[s.below(len(list))] }

// weighted returns an index, each as likely as its weight says.
func (s *source) weighted(weights []int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	at := s.below(sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return len(weights) - 1
}

// heldMark begins a phrase that training never sees.
const heldMark = "~"

// phrase picks one of list. Training draws from those without the mark; what is
// held out draws every other time from those with it.
func (s *source) phrase(list []string) string {
	marked := s.held && s.chance(50)
	for range 60 {
		p := pick(s, list)
		text, held := strings.CutPrefix(p, heldMark)
		if held == marked {
			return text
		}
	}
	return strings.TrimPrefix(pick(s, list), heldMark)
}

// A word belongs by its hash to one of six parts. One of them is held out of
// training; another is trained with, but is not in the text that the tokenizer is
// learned from, so that words in pieces are no surprise.
const (
	parts    = 6
	heldPart = 0
	rarePart = 1
)

func part(word string) int {
	h := fnv.New32a()
	h.Write([]byte(strings.ToLower(word)))
	return int(h.Sum32()>>8) % parts
}

// may tells whether a word may be drawn.
func (s *source) may(word string) bool {
	p := part(word)
	if s.held {
		return p == heldPart
	}
	return p != heldPart
}

// word picks one of list that may be drawn.
func (s *source) word(list []string) string {
	for range 1000 {
		if w := pick(s, list); s.may(w) {
			return w
		}
	}
	panic("talk: no word of the list " + list[0] + "… may be drawn")
}

// Rare tells of a word that the tokenizer must not be learned from.
func Rare(word string) bool { return part(word) == rarePart }
