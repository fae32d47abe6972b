package tokenizer_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/dynago/dynago/tokenizer"
	"github.com/go-json-experiment/json/jsontext"
)

// own returns a rank file's tokenizer whose ids are bytes.
func own(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.LoadTiktoken(rankFile(), tokenizer.PatternQwen2, map[string]uint32{"<|end|>": 3000})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestWith(t *testing.T) {
	plain := own(t)
	tok := plain.With(
		tokenizer.AddedToken{ID: 3001, Content: "<r>", RStrip: true, Special: true},
		tokenizer.AddedToken{ID: 3002, Content: "<l>", LStrip: true},
		tokenizer.AddedToken{ID: 3003, Content: "word", SingleWord: true},
		tokenizer.AddedToken{ID: 3001, Content: "<the id is taken>"},
		tokenizer.AddedToken{ID: 3004, Content: "<|end|>"},
		tokenizer.AddedToken{ID: 3005, Content: ""},
		tokenizer.AddedToken{ID: 1 << 22, Content: "<far>"},
	)
	for text, want := range map[string][]uint32{
		"<r>  \n<l>":          {3001, 3002},
		" \n<l>":              {3002},
		"word":                {3003},
		"<|end|>":             {3000},
		"<the id is taken>":   plain.Append(nil, "<the id is taken>"),
		"<far>":               plain.Append(nil, "<far>"),
		"words and passwords": plain.Append(nil, "words and passwords"),
	} {
		if ids := tok.Append(nil, text); !slices.Equal(ids, want) {
			t.Errorf("%q: %v, want %v", text, ids, want)
		}
	}
	if !tok.IsSpecial(3001) || tok.IsSpecial(3002) {
		t.Error("the flag for special tokens is not kept")
	}
	if _, ok := plain.ID("<r>"); ok {
		t.Error("the tokenizer itself has changed")
	}
}

func TestWithAround(t *testing.T) {
	before := []uint32{3000}
	tok := own(t).WithAround(before, []uint32{7, 8})
	before[0] = 1
	if ids := tok.AppendWithSpecial([]uint32{5}, "<|end|>"); !slices.Equal(ids, []uint32{5, 3000, 3000, 7, 8}) {
		t.Errorf("%v", ids)
	}
	if ids := tok.WithAround(nil, nil).AppendWithSpecial(nil, "<|end|>"); !slices.Equal(ids, []uint32{3000}) {
		t.Errorf("%v", ids)
	}
}

func TestWithNFC(t *testing.T) {
	plain := own(t)
	nfc := plain.WithNFC()
	if got, want := nfc.Append(nil, "e\u0301<|end|>"), plain.Append(nil, "é<|end|>"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if slices.Equal(plain.Append(nil, "e\u0301"), plain.Append(nil, "é")) {
		t.Error("the tokenizer itself has changed")
	}
}

func TestKind(t *testing.T) {
	for model, want := range map[string]string{
		`{"type":"BPE","vocab":{"a":0},"merges":[]}`:           "BPE",
		`{"type":"WordPiece","vocab":{"a":0},"unk_token":"a"}`: "WordPiece",
		`{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}`: "WordLevel",
		`{"type":"Unigram","vocab":[["a",0]],"unk_id":0}`:      "Unigram",
	} {
		tok, err := tokenizer.Load(fmt.Appendf(nil, `{"model":%s,"decoder":{"type":"Fuse"}}`, model))
		if err != nil || tok.Kind() != want {
			t.Errorf("%s: %v %v, want %s", model, tok, err, want)
		}
	}
	if kind := own(t).Kind(); kind != "BPE" {
		t.Errorf("ranks are %s", kind)
	}
}

func TestPatternsDeepSeek(t *testing.T) {
	patterns := tokenizer.PatternsDeepSeek()
	patterns[0] = "changed"
	if again := tokenizer.PatternsDeepSeek(); len(again) != 3 || again[0] == "changed" {
		t.Errorf("%q", again)
	}
}

// The vectors are those of testdata/golden_first_blank.py.
func TestWithFirstBlank(t *testing.T) {
	toks := map[string]*tokenizer.Tokenizer{}
	for _, v := range sentencePieceVectors(t) {
		toks[v.Variant] = loadPieces(t, v.File).WithFirstBlank()
	}
	file, err := os.ReadFile("testdata/golden_first_blank.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(file) {
		var variant, text string
		var first, later []uint32
		var parts []jsontext.Value
		parse(t, line, &parts)
		for i, into := range []any{&variant, &text, &first, &later} {
			parse(t, parts[i], into)
		}
		tok := toks[variant]
		if got := tok.AppendLiteral(nil, text); !slices.Equal(got, first) {
			t.Errorf("%s: %q is %d, want %d", variant, text, got, first)
		}
		if got := tok.AppendBehind(nil, text, true); !slices.Equal(got, later) {
			t.Errorf("%s: %q behind a token is %d, want %d", variant, text, got, later)
		}
	}
	if got := len(bytes.Split(file, []byte("\n"))); got < 300 {
		t.Errorf("there are %d vectors", got)
	}
	if tok := demoTokenizer(t); tok.WithFirstBlank() != tok {
		t.Error("a tokenizer without such a blank has become another")
	}
}
