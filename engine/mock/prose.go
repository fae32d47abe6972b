package mock

import (
	"slices"
	"strings"
)

// prose is a stock of sentences, tokenised once. An answer strings them
// together, so that a token of readable text costs a few nanoseconds.
type prose struct {
	opening [][]uint32 // without leading space
	further [][]uint32 // with one
	// heads tells which ids begin an opening, by id.
	heads []bool
}

const stockSize = 384

var (
	openers = []string{
		"", "", "", "In short, ", "As a rule, ", "In practice, ", "At night, ", "For now, ", "By and large, ", "On most days, ",
	}
	subjects = []string{
		"the harbour master", "a patient gardener", "the old lighthouse", "a careful baker", "the night train", "a small library",
		"the river", "a good map", "the clockmaker", "a quiet street", "the market", "an honest scale", "the weather station",
		"a young carpenter", "the post office", "a wooden bridge",
	}
	verbs = []string{
		"keeps", "remembers", "repairs", "counts", "carries", "finds", "measures", "shares", "prepares", "returns", "sorts", "watches",
	}
	objects = []string{
		"every letter", "the first boats", "a handful of seeds", "the long way home", "two loaves of bread", "the tide", "a list of names",
		"what others have left", "the same small bell", "a box of tools", "the road to the coast", "enough light for everyone",
	}
	closers = []string{
		"", "", "", " before sunrise", " without haste", " while it rains", " in the right order", " until the last guest has gone",
		" and writes it down", " when nobody is looking", " with great care", " as it always did",
	}
)

// newProse makes the stock. It is the same for every engine, so that its
// answers are.
func newProse(encode func(dst []uint32, text string) []uint32) *prose {
	p := &prose{}
	d := digest(0)
	for k := range stockSize {
		of := func(salt int, words []string) string { return words[d.pick(8*k+salt, len(words))] }
		s := of(0, openers) + of(1, subjects) + " " + of(2, verbs) + " " + of(3, objects) + of(4, closers) + "."
		s = strings.ToUpper(s[:1]) + s[1:]
		opening, further := encode(nil, s), encode(nil, " "+s)
		if len(opening) == 0 || len(further) == 0 {
			continue
		}
		p.opening = append(p.opening, opening)
		if n := int(opening[0]) + 1; n > len(p.heads) {
			p.heads = append(p.heads, make([]bool, n-len(p.heads))...)
		}
		p.heads[opening[0]] = true
		p.further = append(p.further, further)
	}
	return p
}

// answer is the text that follows from a digest: endless sentences, with a
// length after which the end of a sentence may be the end.
type answer struct {
	prose *prose
	d     digest
	at    []uint32 // rest of the sentence
	k     int      // sentences begun
	given int
	end   ending
}

// Answers end with the sentence in which they pass a length between these.
const (
	shortest = 30
	longest  = 105
)

// newAnswer returns what comes after prompt. A prompt that ends with the
// beginning of an answer gets the rest of that answer; else a new one begins.
//
// Of several beginnings the longest counts. Any that a longer prompt ends with
// was already one for the shorter, so that the choice stays the same while an
// answer grows.
func newAnswer(p *prose, d digest, prompt []uint32, end ending) *answer {
	for j, id := range prompt {
		if int(id) < len(p.heads) && p.heads[id] && p.opening[d.pick(0, len(p.opening))][0] == id {
			a := answer{prose: p, d: d}
			if a.follows(prompt[j:]) {
				a.end = end
				a.end.min += a.given
				return &a
			}
		}
		d = d.add(id)
	}
	return &answer{prose: p, d: d, end: end}
}

// follows advances over ids as long as they are the answer's.
func (a *answer) follows(ids []uint32) bool {
	for _, id := range ids {
		if a.Next() != id {
			return false
		}
	}
	return true
}

// Next returns the next token, or the end-of-sequence id where it may.
func (a *answer) Next() uint32 {
	if len(a.at) == 0 {
		if a.end.may && a.given >= a.end.min && a.given >= shortest+a.d.pick(-2, longest-shortest) {
			return a.end.id
		}
		stock := a.prose.further
		if a.k == 0 {
			stock = a.prose.opening
		}
		a.at = stock[a.d.pick(a.k, len(stock))]
		a.k++
	}
	id := a.at[0]
	a.at = a.at[1:]
	a.given++
	return id
}

// words returns a range of ids to take alternatives from.
func (p *prose) words() []uint32 {
	ids := slices.Concat(p.further...)
	slices.Sort(ids)
	return slices.Compact(ids)
}
