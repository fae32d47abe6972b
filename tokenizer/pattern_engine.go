package tokenizer

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// patience is how long the engine of regular expressions may work on a text, and
// as much again for each MiB of it. The engine backtracks, so that some patterns
// take time without end on some texts, and the texts are clients'. Those of real
// models need a fiftieth of it; a machine that is busy must not change ids, so
// that nothing but an error comes of a text that takes longer. Tests change it.
var patience = 10 * time.Second

// PatternError is what [Tokenizer.Append] and its kin panic with if one of
// [Tokenizer.Regexps] takes time without end on a text. No scanner does.
type PatternError struct {
	Pattern string
	Bytes   int           // of the text
	Limit   time.Duration // that the pattern exceeded
}

func (e *PatternError) Error() string {
	return fmt.Sprintf("the model's pattern %s takes more than %v on a text of %d bytes", e.Pattern, e.Limit, e.Bytes)
}

// catchPattern, deferred, makes an error of a panic with a [PatternError].
func catchPattern(err *error) {
	switch e := recover().(type) {
	case nil:
	case *PatternError:
		*err = fmt.Errorf("tokenizer: %w", e)
	default:
		panic(e)
	}
}

// regexpFinder finds the matches of a regular expression, which is pattern in the
// language of the engine.
func regexpFinder(pattern string, re *regexp2.Regexp) finder {
	patience := patience
	re.MatchTimeout = patience
	return func(text string) (parts []fragment) {
		// The engine counts in characters; at is the byte offset of the one
		// numbered char.
		char, at := 0, 0
		offset := func(index int) int {
			for ; char < index; char++ {
				_, n := utf8.DecodeRuneInString(text[at:])
				at += n
			}
			return at
		}
		pos := 0
		limit := patience + time.Duration(len(text))*patience>>20
		deadline := time.Now().Add(limit)
		m, err := re.FindStringMatch(text)
		for ; m != nil && time.Now().Before(deadline); m, err = re.FindNextMatch(m) {
			start := offset(m.Index)
			end := offset(m.Index + m.Length)
			parts = appendMatch(parts, pos, start, end)
			pos = end
		}
		if m != nil || err != nil { // the only error is a time-out
			panic(&PatternError{Pattern: pattern, Bytes: len(text), Limit: limit})
		}
		return appendRest(parts, pos, len(text))
	}
}
