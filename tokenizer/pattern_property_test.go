package tokenizer

import (
	"slices"
	"testing"
)

// DeepSeek Coder splits by such a property, which the tables do not have.
func TestOtherProperties(t *testing.T) {
	for pattern, want := range map[string][]string{
		`\s?\p{P}+`: {"a", " !?", "b", "—", "c"},
		`[\p{Pd}]`:  {"a !?b", "—", "c"},
		`\P{P}`:     {"a", " ", "!?", "b", "—", "c"},
	} {
		var pre preTokenizer
		if err := pre.addPattern("pattern", patternFile{Regex: &pattern}, isolated, false); err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		if got := pre.stages[0].split(nil, "a !?b—c"); !slices.Equal(got, want) {
			t.Errorf("%s cuts into %q, want %q", pattern, got, want)
		}
	}
}
