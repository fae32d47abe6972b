package tokenizer_test

import (
	"slices"
	"testing"

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

// What a pattern does not match is gone if the file says so.
func TestUnmatchedIsGone(t *testing.T) {
	tok := splitting(t, "[ab]+")
	if got := tok.Decode(tok.Append(nil, "abcab"), false); got != "abab" {
		t.Errorf("abcab became %q, want abab", got)
	}
}
