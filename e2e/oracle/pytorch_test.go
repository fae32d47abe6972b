//go:build e2e

package oracle_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/weights"
)

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

// GGUF files that we write are what transformers reads in them, and what is computed
// from blocks of Q8_0 is what it computes from the numbers that they stand for. It
// has no words for frequencies that are stretched there.
func TestPyTorchGGUF(t *testing.T) {
	theirs := start(t, setting(t, "E2E_TORCH"), "pytorch.py")
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		c := shapes[name]
		if c.RopeScaling.Type != "" {
			continue
		}
		random := llama.RandomTensors(c, 12)
		for form, tensor := range map[string]func(string) (llama.Tensor, error){"F32": random, "Q8_0": llama.Quantized(random)} {
			t.Run(name+"/"+form, func(t *testing.T) {
				path := write(t, c, tensor)
				m, err := weights.Load(path, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, prompt := range prompts(c.Vocab) {
					compare(t, m, prompt, theirs.ask(t, question{Model: path, Prompt: prompt}, c.Vocab))
				}
			})
		}
	}
}

// The model in the binary says what PyTorch says, in conversations as it has learned
// them. With -update testdata is written, which tests without PyTorch hold it to.
func TestPyTorchModel(t *testing.T) {
	path := unpacked(t)
	m := boxed(t)
	theirs := start(t, setting(t, "E2E_TORCH"), "pytorch.py")
	kept := golden{Model: m.Hash()}
	for i, prompt := range conversations(t, opened(t, path)) {
		answer := theirs.ask(t, question{Model: path, Prompt: prompt}, m.Config().Vocab)
		compare(t, m, prompt, answer)
		every := 1
		if i > 0 { // the long ones
			every = 16
		}
		kept.Prompts = append(kept.Prompts, keep(prompt, answer, m.Config().Vocab, every))
	}
	if !*update {
		return
	}
	text, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenFile, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

var update = flag.Bool("update", false, "write testdata")

// keep keeps a few tokens at some positions: the likeliest, the one that came, and
// some of all the others.
func keep(prompt []uint32, answer []float32, vocab, every int) said {
	s := said{Tokens: prompt}
	for at := 0; at < len(prompt); at += every {
		row := answer[at*vocab:][:vocab]
		ids := make([]int, vocab)
		for i := range ids {
			ids[i] = i
		}
		slices.SortFunc(ids, func(a, b int) int { return cmp.Compare(row[b], row[a]) })
		ids = ids[:6]
		if at+1 < len(prompt) {
			ids = append(ids, int(prompt[at+1]))
		}
		for i := range 3 {
			ids = append(ids, (at*131+i*911)%vocab)
		}
		p := position{At: at, Tokens: ids}
		for _, id := range ids {
			p.LogProbabilities = append(p.LogProbabilities, row[id])
		}
		s.Positions = append(s.Positions, p)
	}
	return s
}

func compare(t *testing.T, m *llama.Model, prompt []uint32, theirs []float32) {
	t.Helper()
	d, where := farthest(t, logProbabilities(t, m, prompt), theirs, m.Config().Vocab)
	t.Logf("%d tokens: at most %.2g apart", len(prompt), d)
	if d > apart {
		t.Errorf("%d tokens: %v apart, want at most %v: %s", len(prompt), d, apart, where)
	}
}
