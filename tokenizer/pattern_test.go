package tokenizer_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/tokenizer"
	"pgregory.net/rapid"
)

// spelledPatterns are the patterns of testdata/golden_spellings.py, each with the
// scanner that it maps to in a rank file's loader and in that of tokenizer.json.
// Without one, the engine of regular expressions runs it.
var spelledPatterns = []struct{ pattern, tiktoken, json string }{
	{`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, "GPT-2", "GPT-2"},
	{tokenizer.PatternLlama3, "cl100k", "cl100k"},
	{strings.Replace(tokenizer.PatternLlama3, "{1,3}", "", 1), "Qwen 2", "Qwen 2"},
	{tokenizer.PatternO200k, "o200k", "o200k"},
	{`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`, "Tekken", "Tekken"},
	{`'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, "GPT-2", "GPT-2"},
	{`'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`, "GPT-2", ""},
	{`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`, "cl100k", "cl100k"},
	{`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s`, "cl100k", "cl100k"},
	{`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`, "cl100k to the end", ""},
	{`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`, "", ""},
	{`^\s+|(?i:k)+?|(?:ab|[\p{Ll}\p{M}])++|\p{Lu}{2}|[\x{e0}-\x{ff}\p{N}.]{1,2}+|\s$|(?>\s+)|[^\s]`, "", ""},
}

// bothWays returns the tokenizers of a pattern in a rank file's loader and in
// that of tokenizer.json.
func bothWays(t testing.TB, pattern string) (tiktoken, file *tokenizer.Tokenizer) {
	t.Helper()
	// Besides the ranks, a newline with the spaces after it.
	tiktoken, err := tokenizer.LoadTiktoken(append(ranks(t), "CiA= 700\nCiAg 701\n"...), pattern, nil)
	if err != nil {
		t.Fatalf("%s: %v", pattern, err)
	}
	f := demoFile(t)
	f["normalizer"], f["added_tokens"] = []byte("null"), []byte("[]")
	f["pre_tokenizer"] = encode(t, map[string]any{"type": "Sequence", "pretokenizers": []any{
		map[string]any{"type": "Split", "pattern": map[string]any{"Regex": pattern}, "behavior": "Isolated", "invert": false},
		map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
	}})
	return tiktoken, load(t, encode(t, f))
}

// The vectors are those of tiktoken and of the Hugging Face library.
func TestSpellingsGolden(t *testing.T) {
	var texts []string
	n := 0
	for line := range bytes.Lines(unzip(t, "testdata/golden_spellings.jsonl.gz")) {
		if texts == nil {
			parse(t, line, &texts)
			continue
		}
		var v struct {
			Pattern    string     `json:"pattern"`
			Tiktoken   [][]uint32 `json:"tiktoken"`
			Tokenizers [][]uint32 `json:"tokenizers"`
		}
		parse(t, line, &v)
		s := spelledPatterns[n]
		n++
		if s.pattern != v.Pattern {
			t.Fatalf("spelling %d is %s, in the vectors %s", n, s.pattern, v.Pattern)
		}
		tiktoken, file := bothWays(t, v.Pattern)
		if scanned := len(tiktoken.Regexps()) == 0; scanned != (s.tiktoken != "") {
			t.Errorf("%s has a scanner for tiktoken: %v", v.Pattern, scanned)
		}
		if scanned := len(file.Regexps()) == 0; scanned != (s.json != "") {
			t.Errorf("%s has a scanner for tokenizer.json: %v", v.Pattern, scanned)
		}
		for i, text := range texts {
			if got := tiktoken.Append(nil, text); !slices.Equal(got, v.Tiktoken[i]) {
				t.Errorf("%s, tiktoken: %q is %d, want %d", v.Pattern, text, got, v.Tiktoken[i])
			}
			if got := file.Append(nil, text); !slices.Equal(got, v.Tokenizers[i]) {
				t.Errorf("%s, tokenizers: %q is %d, want %d", v.Pattern, text, got, v.Tokenizers[i])
			}
		}
	}
	if n != len(spelledPatterns) {
		t.Errorf("there are vectors for %d of %d spelledPatterns", n, len(spelledPatterns))
	}
}

// A scanner and the engine cut alike.
func TestSpellingsEqualEngine(t *testing.T) {
	for _, s := range spelledPatterns {
		if s.tiktoken == "" {
			continue
		}
		scanned, scannedFile := bothWays(t, s.pattern)
		matched, matchedFile := bothWays(t, "(?:"+s.pattern+")")
		if len(matched.Regexps()) == 0 || len(matchedFile.Regexps()) == 0 {
			t.Fatalf("the engine does not run %s", s.pattern)
		}
		rapid.Check(t, func(t *rapid.T) {
			text := text().Draw(t, "text") + rapid.SampledFrom([]string{"", "\n", " \n ", "  ", "a"}).Draw(t, "end")
			if got, want := scanned.Append(nil, text), matched.Append(nil, text); !slices.Equal(got, want) {
				t.Fatalf("%s, tiktoken: %q is %d scanned, %d matched", s.pattern, text, got, want)
			}
			if got, want := scannedFile.Append(nil, text), matchedFile.Append(nil, text); !slices.Equal(got, want) {
				t.Fatalf("%s, tokenizers: %q is %d scanned, %d matched", s.pattern, text, got, want)
			}
		})
	}
}

// giveUp, deferred, ends a test whose pattern takes time without end.
func giveUp() {
	switch e := recover().(type) {
	case nil, *tokenizer.PatternError:
	default:
		panic(e)
	}
}

// FuzzPattern holds that no pattern makes loading panic or hang.
func FuzzPattern(f *testing.F) {
	for _, s := range spelledPatterns {
		f.Add(s.pattern, "It's 1234 \n x")
	}
	f.Add(`[a[b]]|\x{110000}|(?i)a{,2}b{2}+|]{\`, "ab")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		defer giveUp()
		tok, err := tokenizer.LoadTiktoken(ranks(t), pattern, nil)
		if err != nil || len(text) > 100 {
			return
		}
		if got := tok.Append(nil, text); len(text) > 0 && len(got) == 0 {
			t.Errorf("%s makes nothing of %q", pattern, text)
		}
	})
}
