package tokenizer_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/tokenizer"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// tokenizerFile is a tokenizer.json whose members can be replaced.
type tokenizerFile map[string]jsontext.Value

func demoFile(t testing.TB) tokenizerFile {
	t.Helper()
	text, err := demo.File("tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var f tokenizerFile
	parse(t, text, &f)
	return f
}

func parse(t testing.TB, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func load(t testing.TB, text []byte) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func demoTokenizer(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	return load(t, encode(t, demoFile(t)))
}

// replace overwrites members of the file and of its model. Tokens that contain
// drop become such that no text yields.
func (f tokenizerFile) replace(t testing.TB, members, model tokenizerFile, drop string) {
	t.Helper()
	maps.Copy(f, members)
	var m tokenizerFile
	parse(t, f["model"], &m)
	maps.Copy(m, model)
	if drop != "" {
		var vocab map[string]uint32
		var merges []string
		parse(t, m["vocab"], &vocab)
		parse(t, m["merges"], &merges)
		for _, token := range slices.Collect(maps.Keys(vocab)) {
			if id := vocab[token]; strings.Contains(token, drop) {
				delete(vocab, token)
				vocab[fmt.Sprintf("你%d", id)] = id
			}
		}
		m["vocab"] = encode(t, vocab)
		m["merges"] = encode(t, slices.DeleteFunc(merges, func(m string) bool { return strings.Contains(m, drop) }))
	}
	f["model"] = encode(t, m)
}

// textFile is the small model of characters that testdata/golden_text.py trained.
func textFile(t testing.TB) tokenizerFile { return readFile(t, "testdata/text.json") }

// bertFile is the small WordPiece model that testdata/golden_bert.py trained.
func bertFile(t testing.TB) tokenizerFile { return readFile(t, "testdata/bert.json") }

// unigramFile is the small Unigram model that testdata/golden_unigram.py trained.
func unigramFile(t testing.TB) tokenizerFile { return readFile(t, "testdata/unigram.json") }

func readFile(t testing.TB, path string) tokenizerFile {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var f tokenizerFile
	parse(t, text, &f)
	return f
}

// The vectors are those of the Hugging Face library; the scripts of their names
// made them.
func TestGolden(t *testing.T) {
	for file, base := range map[string]func(testing.TB) tokenizerFile{"golden.jsonl": demoFile, "golden_text.jsonl": textFile, "golden_bert.jsonl": bertFile, "golden_unigram.jsonl": unigramFile} {
		t.Run(file, func(t *testing.T) { checkGolden(t, file, base) })
	}
}

func checkGolden(t *testing.T, file string, base func(testing.TB) tokenizerFile) {
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var v struct {
			Variant string             `json:"variant"`
			Members tokenizerFile      `json:"members"`
			Model   tokenizerFile      `json:"model"`
			Drop    string             `json:"drop"`
			Encode  [][]jsontext.Value `json:"encode"`
			Decode  [][]jsontext.Value `json:"decode"`
		}
		parse(t, line, &v)
		t.Run(v.Variant, func(t *testing.T) {
			f := base(t)
			f.replace(t, v.Members, v.Model, v.Drop)
			tok := load(t, encode(t, f))
			for _, c := range v.Encode {
				var text string
				var want, wantSpecial []uint32
				parse(t, c[0], &text)
				parse(t, c[1], &want)
				parse(t, c[len(c)-1], &wantSpecial)
				if got := tok.Append(nil, text); !slices.Equal(got, want) {
					t.Errorf("Append(%q) = %d, want %d", text, got, want)
				}
				if got := tok.AppendWithSpecial(nil, text); !slices.Equal(got, wantSpecial) {
					t.Errorf("AppendWithSpecial(%q) = %d, want %d", text, got, wantSpecial)
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

func decodeInPieces(t *testing.T, tok *tokenizer.Tokenizer, ids []uint32) string {
	t.Helper()
	dec := tok.NewDecoder(false)
	var all []byte
	for _, id := range ids {
		piece := dec.Append(nil, id)
		if !utf8.Valid(piece) {
			t.Errorf("id %d of %d released %q, which is no valid UTF-8", id, ids, piece)
		}
		all = append(all, piece...)
	}
	return string(dec.Flush(all))
}
