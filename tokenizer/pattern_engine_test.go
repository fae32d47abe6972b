package tokenizer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2"
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

func impatient(t *testing.T) {
	was := SetPatience(200 * time.Millisecond)
	t.Cleanup(func() { SetPatience(was) })
}

// A text that the engine cannot cut in time is an error: nothing else comes of it.
func TestPatternsWithoutEnd(t *testing.T) {
	impatient(t)
	for name, c := range map[string]struct {
		pattern, text string
		fails         bool
	}{
		"in time":                {"[ab]+", "abcab", false},
		"one match without end":  {"c|(a+)+b", "c" + strings.Repeat("a", 10_000), true},
		"many that take as long": {"a*b|a", strings.Repeat("a", 200_000), true},
	} {
		t.Run(name, func(t *testing.T) {
			find := regexpFinder(c.pattern, regexp2.MustCompile(c.pattern, regexp2.None))
			err := func() (err error) {
				defer catchPattern(&err)
				find(c.text)
				return nil
			}()
			e, failed := errors.AsType[*PatternError](err)
			switch {
			case failed != c.fails:
				t.Errorf("failed with %v", err)
			case failed && (e.Pattern != c.pattern || e.Bytes != len(c.text) || e.Limit < 200*time.Millisecond):
				t.Errorf("the error tells %+v", e)
			}
		})
	}
}

// The time is the client's to waste, so that none is left to a broken file.
func TestLoadPatternWithoutEnd(t *testing.T) {
	impatient(t)
	token := strings.Repeat("a", 60)
	_, err := Load([]byte(`{"added_tokens":[{"id":0,"content":"` + token + `","normalized":true}],
		"normalizer":{"type":"Replace","pattern":{"Regex":"c|(a+)+b"},"content":""},
		"model":{"type":"BPE","vocab":{"a":1},"merges":[]}}`))
	if _, ok := errors.AsType[*PatternError](err); !ok {
		t.Errorf("Load: %v", err)
	}
}
