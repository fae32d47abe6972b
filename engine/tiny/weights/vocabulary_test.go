package weights_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine/tiny/gguf"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/weights"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/prompt"
)

// A GGUF file with the vocabulary of a tokenizer.json gives the ids that this one
// gives, and is a model for package prompt by itself.
func TestVocabulary(t *testing.T) {
	text, err := demo.File("tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	digits := strings.Replace(string(text), `{"behavior":"Isolated","invert":false,"pattern":{"Regex":`+demoPattern+`},"type":"Split"}`,
		`{"type":"Digits","individual_digits":true},{"behavior":"Isolated","invert":false,"pattern":{"Regex":`+gpt2Pattern+`},"type":"Split"}`, 1)
	if digits == string(text) {
		t.Fatal("the pattern is another one")
	}
	const rows = 8200 // some more than there are tokens
	c := llama.Config{Vocab: rows, Width: 4, Layers: 1, Heads: 1, KVHeads: 1, HeadSize: 4, Hidden: 4, Context: 99, RopeBase: 1, NormEps: 1}
	for split, file := range map[string]string{"qwen2": string(text), "command-r": digits} {
		m, err := weights.Vocabulary([]byte(file), rows)
		if err != nil {
			t.Fatal(err)
		}
		if m.Text("tokenizer.ggml.pre") != split {
			t.Errorf("text is cut as %q, want %q", m.Text("tokenizer.ggml.pre"), split)
		}
		maps.Copy(m, gguf.Metadata{"tokenizer.ggml.eos_token_id": uint32(8185), "tokenizer.chat_template": "{{ messages[0].content }}"})
		model := open(t, folder(t, map[string][]byte{"m.gguf": writeGGUF(t, c, llama.RandomTensors(c, 1), m)}))
		want := open(t, folder(t, map[string][]byte{"tokenizer.json": []byte(file)}))
		if !slices.Equal(model.EOS, []uint32{8185}) || model.ContextLength != 99 || model.Template == nil {
			t.Errorf("it ends with %v, its context is %d, its template %v", model.EOS, model.ContextLength, model.Template)
		}
		for _, text := range []string{
			"The weather is 21 degrees, isn't it?\n\n  Yes: 12345 + 7.", "<|im_start|>user\nhello<|im_end|><think>x</think>",
			"naïve café ÅNGSTRÖM e\u0301 日本語 👩‍🚀\x00\xff", `{"name": "add", "arguments": {"a": 1}}`,
		} {
			if got, want := model.Tokenizer.Append(nil, text), want.Tokenizer.Append(nil, text); !slices.Equal(got, want) {
				t.Errorf("%s: %q: %v, want %v", split, text, got, want)
			}
		}
		for id := range uint32(8192) {
			if model.Tokenizer.IsSpecial(id) != want.Tokenizer.IsSpecial(id) {
				t.Errorf("%s: token %d is special %v, want %v", split, id, model.Tokenizer.IsSpecial(id), want.Tokenizer.IsSpecial(id))
			}
		}
	}
}

const gpt2Pattern = `"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"`

const demoPattern = `"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"`

func open(t *testing.T, dir string) *prompt.Model {
	t.Helper()
	snapshot, err := prompt.OpenSnapshot(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := snapshot.Load(prompt.Parsers{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestVocabularyErrors(t *testing.T) {
	bpe := func(pre, more string) string {
		return `{"pre_tokenizer": ` + pre + `, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}` + more + `}`
	}
	gpt2 := `{"type": "ByteLevel", "add_prefix_space": false}`
	for want, file := range map[string]string{
		"want a byte-level BPE": `{"model": {"type": "WordLevel"}}`,
		`token "b" has the id 1: want one below 1, since the model has so many rows`: bpe(gpt2, ""),
		"pre_tokenizer: Whitespace: llama.cpp cuts text in other ways":               bpe(`{"type": "Whitespace"}`, ""),
		"pre_tokenizer: ByteLevel: llama.cpp cuts text in other ways":                bpe(`{"type": "ByteLevel", "add_prefix_space": true}`, ""),
		"text is cut by gpt2 Lowercase: llama.cpp has no name for that":              bpe(gpt2, `, "normalizer": {"type": "Lowercase"}`),
		"unexpected end of JSON input":                                               "{",
	} {
		rows := 2
		if strings.HasPrefix(want, "token") {
			rows = 1
		}
		if _, err := weights.Vocabulary([]byte(file), rows); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if _, err := weights.Vocabulary([]byte(bpe(gpt2, "")), 2); err != nil {
		t.Error(err)
	}
}
