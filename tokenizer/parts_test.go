package tokenizer_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// Components one by one: the vectors are those of the Hugging Face library, which
// testdata/golden_parts.py wrote.
func TestPartsGolden(t *testing.T) {
	bases := map[string]func(testing.TB) tokenizerFile{
		"demo": demoFile, "unigram": unigramFile, "": func(testing.TB) tokenizerFile { return tokenizerFile{} },
	}
	var texts []string
	for line := range bytes.Lines(unzip(t, "testdata/golden_parts.jsonl.gz")) {
		if texts == nil {
			parse(t, line, &texts)
			continue
		}
		var v struct {
			Variant string             `json:"variant"`
			Base    string             `json:"base"`
			Members tokenizerFile      `json:"members"`
			Model   jsontext.Value     `json:"model"`
			Encode  [][][]uint32       `json:"encode"` // ids, and with special tokens if those differ
			Decode  [][]jsontext.Value `json:"decode"` // ids, their text, and that without special tokens
		}
		parse(t, line, &v)
		t.Run(v.Variant, func(t *testing.T) {
			f := bases[v.Base](t)
			maps.Copy(f, v.Members)
			if v.Base == "" {
				f["model"] = v.Model
			}
			tok := load(t, encode(t, f))
			for i, want := range v.Encode {
				if got := tok.Append(nil, texts[i]); !slices.Equal(got, want[0]) {
					t.Errorf("Append(%q) = %d, want %d", texts[i], got, want[0])
				}
				if got := tok.AppendWithSpecial(nil, texts[i]); !slices.Equal(got, want[len(want)-1]) {
					t.Errorf("AppendWithSpecial(%q) = %d, want %d", texts[i], got, want[len(want)-1])
				}
			}
			for _, c := range v.Decode {
				var ids []uint32
				var want, wantPlain string
				parse(t, c[0], &ids)
				parse(t, c[1], &want)
				parse(t, c[2], &wantPlain)
				if got := tok.Decode(ids, false); got != want {
					t.Errorf("Decode(%d) = %q, want %q", ids, got, want)
				}
				if got := tok.Decode(ids, true); got != wantPlain {
					t.Errorf("Decode(%d) without special tokens = %q, want %q", ids, got, wantPlain)
				}
				if got := decodeInPieces(t, tok, ids); got != want {
					t.Errorf("decoded one by one, %d gives %q, want %q", ids, got, want)
				}
			}
		})
	}
}
