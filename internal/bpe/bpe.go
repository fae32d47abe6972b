// Package bpe makes the tokenizers of the models in the box: it learns a
// byte-level byte-pair encoding from counted words, and writes it as a
// tokenizer.json of the Hugging Face form.
//
// The one idea: the result depends on the counts alone. Ties are broken by byte
// order, no map is walked in its own order, and so the same text gives the same
// file, bit for bit, on every machine.
package bpe

import (
	"fmt"

	"github.com/dlclark/regexp2"
)

// Count returns how often each word occurs in text; pattern, of the kind that
// tokenizer.json holds, cuts text into words.
func Count(pattern, text string) (map[string]int, error) {
	re, err := regexp2.Compile(pattern, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("pattern of words: %w", err)
	}
	words := map[string]int{}
	m, err := re.FindStringMatch(text)
	for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
		words[m.String()]++
	}
	if err != nil {
		return nil, fmt.Errorf("split the corpus: %w", err)
	}
	return words, nil
}
