package tokenizer_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynago/dynago/tokenizer"
	"github.com/go-json-experiment/json/jsontext"
)

func ranks(t testing.TB) []byte {
	t.Helper()
	file, err := os.ReadFile("testdata/ranks.tiktoken")
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// The vectors are those of tiktoken; testdata/golden_tiktoken.py made them.
func TestTiktokenGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/golden_tiktoken.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var v struct {
			Variant string             `json:"variant"`
			Pattern string             `json:"pattern"`
			Special map[string]uint32  `json:"special"`
			Encode  [][]jsontext.Value `json:"encode"`
			Decode  [][]jsontext.Value `json:"decode"`
		}
		parse(t, line, &v)
		t.Run(v.Variant, func(t *testing.T) {
			tok, err := tokenizer.LoadTiktoken(ranks(t), v.Pattern, v.Special)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range v.Encode {
				var text string
				var want, wantLiteral []uint32
				parse(t, c[0], &text)
				parse(t, c[1], &want)
				parse(t, c[len(c)-1], &wantLiteral)
				if got := tok.Append(nil, text); !slices.Equal(got, want) {
					t.Errorf("Append(%q) = %d, want %d", text, got, want)
				}
				if got := tok.AppendLiteral(nil, text); !slices.Equal(got, wantLiteral) {
					t.Errorf("AppendLiteral(%q) = %d, want %d", text, got, wantLiteral)
				}
			}
			for _, c := range v.Decode {
				var ids []uint32
				var want string
				parse(t, c[0], &ids)
				parse(t, c[1], &want)
				if got := tok.Decode(ids, false); got != want {
					t.Errorf("Decode(%d) = %q, want %q", ids, got, want)
				}
			}
		})
	}
}

func TestTiktokenLookups(t *testing.T) {
	tok, err := tokenizer.LoadTiktoken(ranks(t), tokenizer.PatternKimi, map[string]uint32{"[BOS]": 1000})
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := tok.ID("[BOS]"); !ok || id != 1000 || !tok.IsSpecial(id) || tok.Size() != 701 {
		t.Errorf("[BOS] has id %d (known %v), special %v; %d tokens", id, ok, tok.IsSpecial(id), tok.Size())
	}
	if id, ok := tok.ID("Ġthe"); !ok || string(tok.Bytes(id)) != " the" {
		t.Errorf("Ġthe has id %d (known %v) and the bytes %q", id, ok, tok.Bytes(id))
	}
}

// rankFile lists all single bytes and then the tokens.
func rankFile(tokens ...string) []byte {
	var file []byte
	for b := range 256 {
		tokens = slices.Insert(tokens, b, string([]byte{byte(b)}))
	}
	for rank, token := range tokens {
		file = fmt.Appendf(file, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), rank)
	}
	return file
}

// Neighbours that make the same token merge from the left, whatever they are.
func TestTiktokenMergesFromTheLeft(t *testing.T) {
	tok, err := tokenizer.LoadTiktoken(rankFile("aa", "ab", "aab"), `\S+`, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]uint32{"aaa": {256, 'a'}, "aab": {258}, "aaab": {256, 257}, "aabaab": {258, 258}} {
		if got := tok.Append(nil, text); !slices.Equal(got, want) {
			t.Errorf("%s is %d, want %d", text, got, want)
		}
	}
}

func TestTiktokenErrors(t *testing.T) {
	for _, tc := range []struct {
		file, pattern string
		special       map[string]uint32
		want          string
	}{
		{"YQ==", `\S+`, nil, "line 1: want a token in base64, a space and a rank"},
		{"YQ== 0\n\nYg== x", `\S+`, nil, "line 3: rank: "},
		{"YQ== -1", `\S+`, nil, "line 1: rank: "},
		{"Y!== 1", `\S+`, nil, "line 1: token: "},
		{" 1\n", `\S+`, nil, "line 1: "},
		{"YQ== 4194304", `\S+`, nil, "line 1: rank: 4194304 is not below"},
		{"YQ== 0\nYg== 0", `\S+`, nil, "line 2: rank: 0 is taken"},
		{strings.Repeat("YWFh", 400) + " 0", `\S+`, nil, "line 1: token: has 1200 bytes"},
		{"YQ== 0\nYQ== 1", `\S+`, nil, `"a" has the ranks 0 and 1`},
		{"YQ== 0", `\S+`, nil, "byte 0x00 has no rank"},
		{string(rankFile()), `(a`, nil, "pattern.Regex: "},
		{string(rankFile()), `[\p{L}&&[^a]]+`, nil, "pattern.Regex: an intersection"},
		{string(rankFile()), `\S+`, map[string]uint32{"<s>": 5}, `id 5 of "<s>" is taken`},
		{string(rankFile()), `\S+`, map[string]uint32{"<s>": 1 << 22}, `id 4194304 of "<s>" is not below`},
		{string(rankFile()), `\S+`, map[string]uint32{"": 300}, `300 has no content`},
		{string(rankFile()), `\S+`, map[string]uint32{"<s>": 300, "<t>": 300}, `both have the id 300`},
	} {
		_, err := tokenizer.LoadTiktoken([]byte(tc.file), tc.pattern, tc.special)
		if err == nil || !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.20q, %s, %v: error %v, want one with %s", tc.file, tc.pattern, tc.special, err, tc.want)
		}
	}
}

// FuzzLoadTiktoken adds lines to a file that is right.
func FuzzLoadTiktoken(f *testing.F) {
	f.Add([]byte("YWI= 256\nYWJj 257\n"), "ab abc")
	f.Fuzz(func(t *testing.T, lines []byte, text string) {
		tok, err := tokenizer.LoadTiktoken(append(rankFile(), lines...), tokenizer.PatternO200k, map[string]uint32{"<s>": 4000})
		if err != nil {
			return
		}
		if got := tok.Decode(tok.AppendLiteral(nil, text), true); utf8.ValidString(text) && got != text {
			t.Errorf("%q comes back as %q", text, got)
		}
	})
}
