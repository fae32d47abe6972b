package guided

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/dynago/dynago/chat"
)

// tries is how many samples are made before a form counts as one that nothing
// here can keep.
const tries = 32

// Sample makes up a text that keeps a format, always the same for a seed: what an
// engine without a model answers. It is an error if the format has none, or none
// that is found.
func Sample(format *chat.OutputFormat, seed uint64) (string, error) {
	form, err := Compile(format)
	if err != nil {
		return "", err
	}
	for i := range uint64(tries) {
		r := rand.New(rand.NewPCG(seed, i))
		var s string
		switch format.Kind {
		case chat.FormatJSONObject:
			s = fmt.Sprintf(`{"answer":%s}`, quoted(phrase(r)))
		case chat.FormatJSONSchema:
			s, err = sampleSchema(format.Schema, r)
		case chat.FormatRegex:
			s, err = samplePattern(format.Pattern, r)
		case chat.FormatChoice:
			s = format.Choices[r.IntN(len(format.Choices))]
		default:
			return "", fmt.Errorf("no samples of a %s are made", format.Kind)
		}
		if err != nil {
			return "", err
		}
		if form.Check(s) == nil {
			return s, nil
		}
	}
	return "", errors.New("no text was found that keeps it")
}

var words = []string{"amber", "brook", "cedar", "delta", "ember", "fjord", "grove", "harbor", "island", "juniper", "kestrel", "lagoon"}

// phrase returns one to three words.
func phrase(r *rand.Rand) string {
	s := words[r.IntN(len(words))]
	for range r.IntN(3) {
		s += " " + words[r.IntN(len(words))]
	}
	return s
}
