package tokenizer

import (
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// patience is what SetPatience has set last.
var patience = func() *atomic.Int64 {
	p := new(atomic.Int64)
	p.Store(int64(10 * time.Second))
	return p
}()

// SetPatience sets how long the engine of regular expressions may work on a text,
// and as much again for each MiB of it, in the tokenizers that are loaded from now
// on, and returns what it was before: 10 s at first. The engine backtracks, so that
// some patterns take time without end on some texts, and the texts are clients'.
// Those of real models need a fiftieth of it; a machine that is busy must not change
// ids, so that nothing but a [PatternError] comes of a text that takes longer.
func SetPatience(d time.Duration) (before time.Duration) {
	return time.Duration(patience.Swap(int64(d)))
}

// PatternError is what [Tokenizer.Append] and its kin panic with if a pattern of
// the model, such as one of [Tokenizer.Regexps], takes time without end on a text,
// and [Tokenizer.Decode] and its kin if one that puts tokens together does. No
// scanner does.
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
	patience := time.Duration(patience.Load())
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
