package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"github.com/dynago/dynago/internal/demo/train/corpus"
)

// The corpus is the written texts, repeated so that the words in them count, and
// sentences made from patterns and word lists.
const (
	seed         = 2
	repetitions  = 6
	sentences    = 30_000
	everyWordMin = 3 // how often each form of each word occurs at least
)

// text returns the text that the tokenizer is learned from.
func text() (string, error) {
	var all strings.Builder
	for _, name := range []string{"prose", "code", "world"} {
		for range repetitions {
			all.WriteString(read(name))
		}
	}
	lex, err := newLexicon()
	if err != nil {
		return "", err
	}
	for _, forms := range lex.forms {
		for _, word := range forms {
			all.WriteString(strings.Repeat(" "+word, everyWordMin))
		}
	}
	all.WriteByte('\n')
	patterns := strings.Split(strings.TrimRight(read("sentences"), "\n"), "\n")
	for i := range sentences {
		all.WriteString(lex.fill(patterns[i%len(patterns)]))
		all.WriteByte('\n')
	}
	return all.String(), nil
}

// read returns an embedded text, which is there or the program would not build.
func read(name string) string {
	text, err := corpus.Files.ReadFile(name + ".txt")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// lexicon holds the words that may stand in a slot of a pattern.
type lexicon struct {
	forms map[string][]string
	rng   *rand.PCG
}

func newLexicon() (*lexicon, error) {
	lex := &lexicon{rng: rand.NewPCG(seed, seed)}
	nouns := strings.Fields(read("nouns"))
	var plurals, bases, thirds, participles, pasts []string
	for _, n := range nouns {
		plurals = append(plurals, withS(n))
	}
	for _, v := range strings.Fields(read("verbs")) {
		form := strings.Split(v, "/")
		if len(form) > 3 {
			return nil, fmt.Errorf("verbs: %q has more than three forms", v)
		}
		bases = append(bases, form[0])
		thirds = append(thirds, withS(form[0]))
		participles = append(participles, withSuffix(form[0], "ing"))
		if len(form) == 1 {
			form = append(form, withSuffix(form[0], "ed"))
		}
		pasts = append(pasts, form[1:]...)
	}
	adjectives := strings.Fields(read("adjectives"))
	var adverbs []string
	for _, a := range adjectives {
		adverbs = append(adverbs, adverb(a))
	}
	lex.forms = map[string][]string{
		"noun": nouns, "nouns": plurals,
		"verb": bases, "verbs": thirds, "verbing": participles, "verbed": pasts,
		"adj": adjectives, "adv": adverbs,
		"particle": strings.Fields(read("particles")),
		"name":     strings.Fields(read("people")),
		"city":     strings.Fields(read("cities")),
		"day":      strings.Fields(read("names")),
	}
	return lex, nil
}

var slot = regexp.MustCompile(`\{[A-Za-z]+\}`)

// fill puts a word into each slot of the pattern; a capital in the slot's name
// makes a capital in the word.
func (l *lexicon) fill(pattern string) string {
	return slot.ReplaceAllStringFunc(pattern, func(s string) string {
		name := s[1 : len(s)-1]
		if name == "num" {
			return strconv.Itoa(l.below(10) * l.below(120))
		}
		lower := strings.ToLower(name)
		words := l.forms[lower]
		// The smaller of two draws makes the words at the front of a list, which
		// are the common ones, more frequent.
		word := words[min(l.below(len(words)), l.below(len(words)))]
		if lower != name {
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		return word
	})
}

// below returns a number in [0, n). The source's values are specified, those of
// package rand's own methods may change.
func (l *lexicon) below(n int) int { return int(l.rng.Uint64() % uint64(n)) }
