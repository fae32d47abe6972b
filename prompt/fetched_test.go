//go:build e2e

package prompt_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/models"
	"github.com/dynago/dynago/prompt"
)

// fetched returns the folders of the models that packages have, all or these.
func fetched(t *testing.T, names ...string) []string {
	t.Helper()
	root := filepath.Join("..", models.Dir)
	var files []models.File
	var dirs []string
	for _, f := range models.Files() {
		name, file, _ := strings.Cut(f.Name, "/")
		if len(names) > 0 && !slices.Contains(names, name) || strings.HasSuffix(file, ".jinja") && file != "chat_template.jinja" {
			continue
		}
		files = append(files, f)
		dirs = append(dirs, filepath.Join(root, name))
	}
	if err := models.Fetch(t.Context(), root, files, os.Stderr); err != nil {
		t.Fatal(err)
	}
	return slices.Compact(slices.Sorted(slices.Values(dirs)))
}

func open(t *testing.T, path string) *prompt.Model {
	t.Helper()
	snapshot, err := prompt.OpenSnapshot(path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	m, err := snapshot.Load(prompt.Parsers{})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return m
}

// corpus is the text of this checkout, with control tokens of many families.
func corpus(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, pattern := range []string{"../*/*.go", "../*.md", "../internal/demo/train/corpus/*", "../tokenizer/testdata/*.jsonl"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(text)
		}
	}
	b.WriteString("<|im_start|>user\n<think>e\u0301</think><|im_end|><|eot_id|><｜User｜><|endoftext|><|start|>")
	return strings.ToValidUTF8(b.String(), "")
}

// Every kind of file says of a model what its tokenizer.json says.
func TestFetchedTwins(t *testing.T) {
	text := corpus(t)
	for twin, original := range map[string]string{
		"o200k_base": "gpt-oss", "llama3.2/tokenizer.model": "llama3.2/tokenizer.json", "mistral-v1": "mistral", "qwen3.6": "qwen-3.5",
	} {
		t.Run(twin, func(t *testing.T) {
			folder, file, _ := strings.Cut(twin, "/")
			other, _, _ := strings.Cut(original, "/")
			root := filepath.Dir(fetched(t, folder, other)[0])
			got, want := open(t, filepath.Join(root, folder, file)), open(t, filepath.Join(root, original))
			same(t, got, want, text)
		})
	}
}

// same tells where two tokenizers differ.
func same(t *testing.T, got, want *prompt.Model, text string) {
	t.Helper()
	a, b := got.Tokenizer.AppendWithSpecial(nil, text), want.Tokenizer.AppendWithSpecial(nil, text)
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s: at token %d of %d: %d, want %d, after %q", got.Files.Kind, i, len(b), a[i], b[i], want.Tokenizer.Decode(b[max(0, i-10):i], false))
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%d tokens, want %d", len(a), len(b))
	}
	t.Logf("%s: %d tokens", got.Files.Kind, len(a))
}

// A GGUF file, and the older pair of files, made of a tokenizer.json give its ids.
func TestFetchedInOtherForms(t *testing.T) {
	text := corpus(t)
	for name, pre := range map[string]string{
		"qwen3": "qwen2", "llama3.1": "llama-bpe", "gpt-oss": "gpt-4o", "deepseek-v3": "deepseek-v3", "glm-4-32b-0414": "glm4", "qwen-3.5": "qwen35",
	} {
		t.Run(name, func(t *testing.T) {
			dir := fetched(t, name)[0]
			want := open(t, dir)
			vocab, list, file := inOtherForms(t, dir, pre, want.Tokenizer.AppendWithSpecial(nil, ""))
			same(t, open(t, folder{"a.gguf": file}.at(t)), want, text)
			if pre != "qwen2" && pre != "qwen35" {
				return
			}
			config, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
			if err != nil {
				t.Fatal(err)
			}
			same(t, open(t, folder{"vocab.json": vocab, "merges.txt": list, "tokenizer_config.json": string(config)}.at(t)), want, text)
		})
	}
}

// inOtherForms writes a tokenizer.json as vocab.json and merges.txt, and as GGUF.
func inOtherForms(t *testing.T, dir, pre string, before []uint32) (vocab, list, file string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Added []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges []json.RawMessage
		}
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	var merges []string
	for _, m := range f.Model.Merges {
		var one string
		var two [2]string
		if json.Unmarshal(m, &one) != nil {
			if err := json.Unmarshal(m, &two); err != nil {
				t.Fatal(err)
			}
		}
		merges = append(merges, cmp.Or(one, two[0]+" "+two[1]))
	}
	var tokens []string
	var kinds []int32
	set := func(id int, content string, kind int32) {
		for id >= len(tokens) {
			tokens, kinds = append(tokens, fmt.Sprintf("[PAD%d]", len(tokens))), append(kinds, 5)
		}
		tokens[id], kinds[id] = content, kind
	}
	for content, id := range f.Model.Vocab {
		set(id, content, 1)
	}
	for _, a := range f.Added {
		set(a.ID, a.Content, map[bool]int32{false: 4, true: 3}[a.Special])
	}
	text, err := json.Marshal(f.Model.Vocab)
	if err != nil {
		t.Fatal(err)
	}
	pairs := []pair{
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", pre},
		{"tokenizer.ggml.tokens", tokens},
		{"tokenizer.ggml.token_type", kinds},
		{"tokenizer.ggml.merges", merges},
		{"tokenizer.ggml.add_bos_token", len(before) > 0},
	}
	if len(before) > 0 {
		pairs = append(pairs, pair{"tokenizer.ggml.bos_token_id", before[0]})
	}
	file = gguf(pairs...)
	return string(text), "#version: 0.2\n" + strings.Join(merges, "\n") + "\n", file
}

// All that have a vocabulary load, but for these.
func TestFetchedLoad(t *testing.T) {
	refused := map[string]string{
		"jurassic2": `not for tokenizer_class ""`,
		"p50k_base": "of no family known here",
		"r50k_base": "of no family known here",
	}
	loaded := 0
	for _, dir := range fetched(t) {
		name := filepath.Base(dir)
		snapshot, err := prompt.OpenSnapshot(dir)
		if err != nil {
			t.Fatal(err)
		}
		m, err := snapshot.Load(prompt.Parsers{})
		why, bad := refused[name]
		switch {
		case err == nil && !bad:
			loaded++
			t.Logf("%s: %+v, %d tokens, ends %v, context %d", name, m.Files, m.Tokenizer.Size(), m.EOS, m.ContextLength)
		case err != nil && (bad && strings.Contains(err.Error(), why) || strings.HasPrefix(err.Error(), "no vocabulary: ")):
		default:
			t.Errorf("%s: %v", name, err)
		}
	}
	if loaded < 46 {
		t.Errorf("%d load, want most", loaded)
	}
}
