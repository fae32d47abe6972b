//go:build e2e

package oracle_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/safetensors"
	"github.com/dynago/dynago/engine/tiny/weights"
)

// apart is how far our log-probabilities may lie from PyTorch's.
const apart = 1e-4

// made are settings of models that transformers makes and writes, so that what is
// read is what it writes. It leaves out what is as it assumes, and renames what is
// old.
var made = map[string]map[string]any{
	"llama":   {"model_type": "llama"},
	"tied":    {"model_type": "llama", "tie_word_embeddings": true, "head_dim": 48},
	"llama3":  {"model_type": "llama", "rope_parameters": map[string]any{"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256}},
	"linear":  {"model_type": "llama", "rope_parameters": map[string]any{"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
	"mistral": {"model_type": "mistral", "sliding_window": nil},
	"qwen2":   {"model_type": "qwen2", "rms_norm_eps": 1e-5},
}

// Folders of transformers are read as it reads them.
func TestPyTorchFolders(t *testing.T) {
	theirs := start(t, setting(t, "E2E_TORCH"), "pytorch.py")
	for _, name := range slices.Sorted(maps.Keys(made)) {
		for _, dtype := range []string{"float32", "bfloat16", "float16"} {
			t.Run(name+"/"+dtype, func(t *testing.T) {
				settings := map[string]any{
					"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
					"intermediate_size": 352, "max_position_embeddings": 1024,
				}
				maps.Copy(settings, made[name])
				dir := filepath.Join(t.TempDir(), "model")
				var m *llama.Model
				for _, prompt := range prompts(512) {
					answer := theirs.ask(t, question{Model: dir, Prompt: prompt, Make: settings, DType: dtype}, 512)
					if m == nil {
						var err error
						if m, err = weights.Load(dir, 0); err != nil {
							t.Fatal(err)
						}
					}
					compare(t, m, prompt, answer)
				}
			})
		}
	}
}

// What is computed from blocks of Q8_0 is what PyTorch computes from the numbers
// that they stand for, in a folder that we write.
func TestPyTorchBlocks(t *testing.T) {
	theirs := start(t, setting(t, "E2E_TORCH"), "pytorch.py")
	c := shapes["in the binary"]
	blocks := llama.Quantized(llama.RandomTensors(c, 12))
	m, err := llama.New(c, blocks)
	if err != nil {
		t.Fatal(err)
	}
	dir := writeFolder(t, c, blocks)
	for _, prompt := range prompts(c.Vocab) {
		compare(t, m, prompt, theirs.ask(t, question{Model: dir, Prompt: prompt}, c.Vocab))
	}
}

func compare(t *testing.T, m *llama.Model, prompt []uint32, theirs []float32) {
	t.Helper()
	d, where := farthest(t, logProbabilities(t, m, prompt), theirs, m.Config().Vocab)
	t.Logf("%d tokens: at most %.2g apart", len(prompt), d)
	if d > apart {
		t.Errorf("%d tokens: %v apart, want at most %v: %s", len(prompt), d, apart, where)
	}
}

// writeFolder writes a model of plain settings as Hugging Face has it, its numbers
// as F32.
func writeFolder(t testing.TB, c llama.Config, tensor func(string) (llama.Tensor, error)) string {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "vocab_size": c.Vocab, "hidden_size": c.Width,
		"num_hidden_layers": c.Layers, "num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadSize,
		"intermediate_size": c.Hidden, "max_position_embeddings": c.Context, "rms_norm_eps": c.NormEps, "rope_theta": c.RopeBase,
		"tie_word_embeddings": c.Tied,
	})
	if err != nil {
		t.Fatal(err)
	}
	var list []safetensors.Source
	for _, spec := range c.Tensors() {
		one, err := widened(tensor)(spec.Name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, safetensors.Source{Name: spec.Name, Type: safetensors.F32, Shape: spec.Shape, Data: one.Data})
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, map[string]string{"format": "pt"}, list); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, b := range map[string][]byte{"config.json": config, "model.safetensors": b.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
