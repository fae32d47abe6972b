//go:build e2e

package oracle_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine/tiny/gguf"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/internal/tiny"
	"github.com/dynago/dynago/prompt"
)

// unpacked returns the path of a file with the model in the binary.
func unpacked(t testing.TB) string {
	t.Helper()
	file, err := tiny.File(tiny.Weights)
	if err != nil {
		t.Fatal(err)
	}
	return saved(t, file)
}

func saved(t testing.TB, file []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// opened loads the vocabulary of a GGUF file.
func opened(t testing.TB, path string) *prompt.Model {
	t.Helper()
	snapshot, err := prompt.OpenSnapshot(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := snapshot.Load(prompt.Parsers{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Parts of conversations as the model in the binary has learned them.
const (
	sum = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" +
		"<|im_start|>user\nWhat is 12 plus 7?<|im_end|>\n<|im_start|>assistant\n<think>\n12 + 7 = 19\n</think>\n\n19<|im_end|>\n"
	call = "<|im_start|>user\nThe weather in Oslo, please.<|im_end|>\n<|im_start|>assistant\n" +
		"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call><|im_end|>\n"
)

// conversations are prompts for the model in the binary: a short one, and one as
// long as its context.
func conversations(t testing.TB, m *prompt.Model) [][]uint32 {
	t.Helper()
	long := m.Tokenizer.Append(nil, strings.Repeat(sum+call, 40))
	if len(long) < m.ContextLength {
		t.Fatalf("%d tokens do not fill a context of %d", len(long), m.ContextLength)
	}
	return [][]uint32{m.Tokenizer.Append(nil, sum+call), long[:m.ContextLength]}
}

// llama.cpp loads the model in the binary, cuts text as we do, and computes what we
// compute where it is given the numbers that blocks stand for. Its frequencies are
// products of one another, whose errors grow; so the end of a long context is for
// PyTorch to judge.
func TestLlamaCppModel(t *testing.T) {
	theirs := start(t, "node", "llamacpp.cjs", setting(t, "E2E_LLAMACPP"))
	path := unpacked(t)
	model := opened(t, path)
	for _, text := range []string{
		sum, call, "naïve café, ÅNGSTRÖM: 日本語 👩\u200d🚀", "a  b\n\n\tc 1234.5e-6 {\"x\": [true, null]}", "I'll, we've; SHOUT's <b>",
	} {
		if ours, theirs := model.Tokenizer.Append(nil, text), theirs.tokens(t, path, text); !slices.Equal(ours, theirs) {
			t.Errorf("%q:\n%v, theirs are\n%v", text, ours, theirs)
		}
	}
	m := boxed(t)
	wide := saved(t, widenedFile(t, path))
	for _, ids := range conversations(t, model) {
		ids = ids[:min(len(ids), 1024)]
		ours, vocab := logProbabilities(t, m, ids), m.Config().Vocab
		d, where := farthest(t, ours, theirs.ask(t, question{Model: wide, Prompt: ids}, vocab), vocab)
		t.Logf("%d tokens: at most %.2g apart", len(ids), d)
		if d > 1e-3 {
			t.Errorf("%d tokens: %v apart, want at most 1e-3: %s", len(ids), d, where)
		}
		d, where = farthest(t, ours, theirs.ask(t, question{Model: path, Prompt: ids}, vocab), vocab)
		t.Logf("%d tokens with rounded activations: at most %.2g apart: %s", len(ids), d, where)
	}
}

// widenedFile is the same file with all tensors as F32.
func widenedFile(t testing.TB, path string) []byte {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Read(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	var list []gguf.Source
	for _, entry := range f.Tensors {
		data, err := f.Data(entry)
		if err != nil {
			t.Fatal(err)
		}
		if entry.Type == gguf.Q8_0 {
			blocks := llama.Tensor{Shape: entry.Shape, Kind: llama.Q8_0, Data: data}
			data = llama.NewTensor(entry.Name, entry.Shape, blocks.Numbers()).Data
		}
		list = append(list, gguf.Source{Name: entry.Name, Type: gguf.F32, Shape: entry.Shape, Data: data})
	}
	var b bytes.Buffer
	if err := gguf.Write(&b, f.Metadata, list); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
