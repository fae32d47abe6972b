// Package corpus makes the texts and ids that tokenizers are compared on: short
// ones by the hundred and a megabyte of each kind, in forty scripts, code, emoji,
// combining marks, control characters, blanks, line ends, digits, noise and
// broken bytes. Its tests hold package tokenizer against digests of what the real
// libraries make of them with every vocabulary of internal/models.
//
// The one idea: texts are made from seeds, so that neither they nor the ids that
// a library gave need to be stored. A golden file holds a count and a few bytes
// of a hash for each; if one differs, the library itself is asked again to show
// where.
package corpus

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"
)

// Kind is one kind of text.
type Kind struct {
	Name  string
	piece func(*rand.Rand) string
}

// Kinds are all kinds, the mixture of the others last.
var Kinds = []Kind{
	{"languages", sentence},
	{"code", code},
	{"emoji", emoji},
	{"marks", marks},
	{"controls", controls},
	{"blanks", blanks},
	{"lines", lines},
	{"digits", digits},
	{"noise", noise},
	{"broken", broken},
	{"mixed", nil},
}

// Text returns a text of that kind, of n bytes or a little more. Equal seeds give
// equal texts.
func (k Kind) Text(seed uint64, n int) string {
	hash := fnv.New64a()
	hash.Write([]byte(k.Name))
	rng := rand.New(rand.NewPCG(seed, hash.Sum64()))
	var b strings.Builder
	for b.Len() < n {
		piece := k.piece
		if piece == nil {
			piece = Kinds[rng.IntN(len(Kinds)-1)].piece
		}
		b.WriteString(piece(rng))
	}
	return b.String()
}

// Short returns hundreds of strings: those written by hand, then those of each
// kind, from one character to a few hundred bytes.
func Short() []string {
	texts := append([]string(nil), corners...)
	for _, long := range corners {
		if len(long) < 12 {
			texts = append(texts, strings.Repeat(long, 33))
		}
	}
	for _, k := range Kinds {
		for i := range 36 {
			texts = append(texts, k.Text(uint64(i), 1<<(i%9)))
		}
	}
	return texts
}

// Spelling returns n texts that spell the given added tokens: alone, doubled,
// between blanks and words, cut short, in the wrong case.
func Spelling(added []string, n int) []string {
	if len(added) == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(added))))
	around := []string{"", " ", "  ", "\n", "\t ", "a", "word ", " word", "é", "你", "<", "|>", "_", "7", "\u200d", "\u0301", "."}
	texts := make([]string, 0, n)
	for range n {
		var b strings.Builder
		for range 1 + rng.IntN(4) {
			token := []rune(added[rng.IntN(len(added))])
			switch cut := 1 + rng.IntN(len(token)); rng.IntN(12) {
			case 0:
				token = token[:cut]
			case 1:
				token = token[cut-1:]
			case 2:
				token = []rune(strings.ToUpper(string(token)))
			}
			b.WriteString(around[rng.IntN(len(around))])
			b.WriteString(string(token))
			b.WriteString(around[rng.IntN(len(around))])
		}
		texts = append(texts, b.String())
	}
	return texts
}

// IDs returns n sequences of up to 40 ids below size, of which every other keeps
// to the first few hundred, where the tokens of single bytes are, and to the last,
// where the added ones are.
func IDs(size uint32, n int) [][]uint32 {
	rng := rand.New(rand.NewPCG(2, uint64(size)))
	sequences := make([][]uint32, n)
	for i := range sequences {
		for range 1 + rng.IntN(40) {
			id := rng.Uint32N(size)
			switch part := rng.IntN(4); {
			case i%2 == 0 && part < 3:
				id %= 300
			case i%2 == 0:
				id = size - 1 - id%min(size, 64)
			}
			sequences[i] = append(sequences[i], id)
		}
	}
	return sequences
}
