package tokenizer_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/tokenizer"
)

// splitting is a tokenizer of single letters that cuts at a regular expression.
func splitting(t testing.TB, pattern string) *tokenizer.Tokenizer {
	t.Helper()
	var file tokenizerFile
	parse(t, smallFile(t, "abc", nil, false), &file)
	file["pre_tokenizer"] = encode(t, map[string]any{"type": "Sequence", "pretokenizers": []any{
		map[string]any{"type": "Split", "pattern": map[string]any{"Regex": pattern}, "behavior": "Removed", "invert": true},
		map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
	}})
	return load(t, encode(t, file))
}

func TestRegexps(t *testing.T) {
	for pattern, want := range map[string][]string{`[ab]+|\s`: {`[ab]+|\s`}, tokenizer.PatternLlama3: nil} {
		if got := splitting(t, pattern).Regexps(); !slices.Equal(got, want) {
			t.Errorf("%s: the engine runs %q, want %q", pattern, got, want)
		}
	}
}

// What a pattern does not match is gone if the file says so, but never what was
// not looked at in time.
func TestPatternsWithoutEnd(t *testing.T) {
	for name, c := range map[string]struct{ pattern, text, want string }{
		"in time":                {"[ab]+", "abcab", "abab"},
		"one match without end":  {"c|(a+)+b", "c" + strings.Repeat("a", 10_000), "c" + strings.Repeat("a", 10_000)},
		"many that take as long": {"a*b|a", strings.Repeat("a", 200_000), strings.Repeat("a", 200_000)},
	} {
		t.Run(name, func(t *testing.T) {
			tok := splitting(t, c.pattern)
			start := time.Now()
			if got := tok.Decode(tok.Append(nil, c.text), false); got != c.want {
				t.Errorf("%d bytes became %d, want %d", len(c.text), len(got), len(c.want))
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}
