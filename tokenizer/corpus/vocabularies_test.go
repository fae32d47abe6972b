//go:build e2e

package corpus_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/models"
	"github.com/dynago/dynago/tokenizer"
	"github.com/dynago/dynago/tokenizer/corpus"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var update = flag.Bool("update", false, "ask the real libraries, and write the golden files")

const modelsDir = "../../" + models.Dir

// vocabulary is one that the registries have: a file of internal/models, how we
// load it, and which library says what is right.
type vocabulary struct {
	name, file string
	library    string
	// rest is what the library is told besides the file.
	rest map[string]any
	// added are tokens that texts should spell.
	added []string
	load  func(file []byte) (*tokenizer.Tokenizer, error)
	// literal says that the library finds no special tokens in texts.
	literal bool
	// skips says that the library always decodes without special tokens.
	skips bool
}

// The patterns of rank files, which do not hold them, as their libraries' code has
// them. OpenAI's are those of its package; ours for the same vocabularies differ
// in spelling alone.
const (
	patternQwen    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen3_5 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternGPT2    = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

func vocabularies(t *testing.T) []vocabulary {
	t.Helper()
	var all []vocabulary
	for _, f := range models.Files() {
		model, file, _ := strings.Cut(f.Name, "/")
		v := vocabulary{name: model, file: f.Name}
		switch {
		case file == "tokenizer.json":
			v.library, v.load = "tokenizers", tokenizer.Load
		case file == "tokenizer.model" && model != "llama3.2":
			v.library, v.load, v.literal, v.skips = "sentencepiece", tokenizer.LoadSentencePiece, true, true
			v.added = []string{"<s>", "</s>", "<unk>", "[INST]", "[/INST]", "[TOOL_CALLS]", "<0x41>"}
		case file == "tekken.json":
			v.library, v.load = "tekken", loadTekken
		default:
			continue
		}
		all = append(all, v)
	}
	for _, r := range []struct {
		name, pattern, encoding string
		special                 map[string]uint32
	}{
		{"o200k_base", tokenizer.PatternO200k, "o200k_base", map[string]uint32{"<|endoftext|>": 199999, "<|endofprompt|>": 200018}},
		{"cl100k_base", tokenizer.PatternLlama3, "cl100k_base", map[string]uint32{"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276}},
		{"p50k_base", patternGPT2, "p50k_base", map[string]uint32{"<|endoftext|>": 50256}},
		{"r50k_base", patternGPT2, "r50k_base", map[string]uint32{"<|endoftext|>": 50256}},
		{"qwen", patternQwen, "", map[string]uint32{"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}},
		{"qwen3.6", patternQwen3_5, "", map[string]uint32{"<|endoftext|>": 248044, "<|im_start|>": 248045, "<|im_end|>": 248046, "<think>": 248068, "</think>": 248069}},
		{"llama3.2-ranks", tokenizer.PatternLlama3, "", map[string]uint32{"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|eot_id|>": 128009}},
	} {
		v := vocabulary{name: r.name, file: r.name + "/tokenizer.tiktoken", library: "tiktoken"}
		if r.name == "llama3.2-ranks" {
			v.file = "llama3.2/tokenizer.model"
		}
		v.rest = map[string]any{"encoding": r.encoding}
		if r.encoding == "" {
			v.rest = map[string]any{"pattern": r.pattern, "special": r.special}
		}
		for token := range r.special {
			v.added = append(v.added, token)
		}
		v.load = func(file []byte) (*tokenizer.Tokenizer, error) {
			return tokenizer.LoadTiktoken(file, r.pattern, r.special)
		}
		all = append(all, v)
	}
	return all
}

// loadTekken reads the vocabulary of a file of Mistral's own kind.
func loadTekken(text []byte) (*tokenizer.Tokenizer, error) {
	var file struct {
		Config struct {
			Pattern                 string
			DefaultVocabSize        int `json:"default_vocab_size"`
			DefaultNumSpecialTokens int `json:"default_num_special_tokens"`
		}
		Vocab []struct {
			Rank  int
			Bytes []byte `json:"token_bytes"`
		}
	}
	if err := json.Unmarshal(text, &file, json.MatchCaseInsensitiveNames(true)); err != nil {
		return nil, err
	}
	var ranks bytes.Buffer
	for _, token := range file.Vocab[:file.Config.DefaultVocabSize-file.Config.DefaultNumSpecialTokens] {
		fmt.Fprintln(&ranks, base64.StdEncoding.EncodeToString(token.Bytes), token.Rank)
	}
	return tokenizer.LoadTiktoken(ranks.Bytes(), file.Config.Pattern, nil)
}

// whole are the models that get a megabyte of each kind, at least one of each
// family; the others get a twentieth. Many of them have the same vocabulary and
// the same stages, and differ in their added tokens.
var whole = []string{
	"qwen3", "qwen-3.5", "qwen3.6", "llama3", "llama3.2", "glm-4", "glm-4.7-flash", "minimax", "claude", "gpt-4o", "gpt-oss",
	"deepseek-v3", "deepseek-coder-7b-base-v1.5", "deepseek-coder-33b-base", "cl100k_base", "o200k_base", "tekken-240911",
	"mistral", "mistral-v3", "gemma2", "gemma3", "jiutian-139moe-chat", "jurassic2", "minilm",
}

// lossless tells whether texts come back as they were: of bytes, with nothing
// that normalizes them or adds to them, and without added tokens that decode to
// another text, as the ü of some models does, which stands for a byte.
func (v *vocabulary) lossless(t *testing.T, file []byte, tok *tokenizer.Tokenizer) bool {
	t.Helper()
	if v.library != "tokenizers" {
		return v.library != "sentencepiece"
	}
	var f struct {
		Normalizer   jsontext.Value `json:"normalizer"`
		PreTokenizer jsontext.Value `json:"pre_tokenizer"`
		AddedTokens  []struct {
			ID      uint32 `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(file, &f); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Normalizer.Compact(), f.PreTokenizer.Compact()); err != nil {
		t.Fatal(err)
	}
	for _, a := range f.AddedTokens {
		if string(tok.Bytes(a.ID)) != a.Content {
			return false
		}
	}
	normalizes := string(f.Normalizer) != "null" && !bytes.Contains(f.Normalizer, []byte("[]"))
	return !normalizes && bytes.Contains(f.PreTokenizer, []byte(`"ByteLevel"`)) && !bytes.Contains(f.PreTokenizer, []byte(`"add_prefix_space":true`))
}

// items are what one vocabulary is tried with.
type items struct {
	short, spelling, long []string
	random                [][]uint32
}

func (v *vocabulary) items(t *testing.T, file []byte, tok *tokenizer.Tokenizer) items {
	t.Helper()
	added := v.added
	if v.library == "tokenizers" {
		var f struct {
			AddedTokens []struct{ Content string } `json:"added_tokens"`
		}
		if err := json.Unmarshal(file, &f, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		for _, a := range f.AddedTokens {
			added = append(added, a.Content)
		}
	}
	slices.Sort(added)
	it := items{short: corpus.Short(), spelling: corpus.Spelling(added, 100)}
	size := 50_000
	if slices.Contains(whole, v.name) {
		size = 1_000_000
	}
	for _, k := range corpus.Kinds {
		it.long = append(it.long, k.Text(1<<20, size))
	}
	for _, ids := range corpus.IDs(uint32(tok.Size()), 150) {
		it.random = append(it.random, slices.DeleteFunc(ids, func(id uint32) bool { return tok.Bytes(id) == nil }))
	}
	return it
}
