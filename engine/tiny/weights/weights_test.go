package weights_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine/tiny/gguf"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/safetensors"
	"github.com/dynago/dynago/engine/tiny/weights"
)

// plain is a small shape with grouped heads that are wider than the model.
func plain() llama.Config {
	return llama.Config{
		Vocab: 40, Width: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadSize: 16, Hidden: 64, Context: 64,
		RopeBase: 10000, NormEps: 1e-5,
	}
}

func with(change func(c *llama.Config)) llama.Config {
	c := plain()
	change(&c)
	return c
}

// shapes are those that files of either form can have.
var shapes = map[string]llama.Config{
	"plain":  plain(),
	"tied":   with(func(c *llama.Config) { c.Tied = true }),
	"qwen2":  with(func(c *llama.Config) { c.QKVBias = true }),
	"linear": with(func(c *llama.Config) { c.RopeScaling = llama.RopeScaling{Type: "linear", Factor: 4} }),
	"base":   with(func(c *llama.Config) { c.RopeBase = 500000; c.KVHeads = 4 }),
	"llama3": with(func(c *llama.Config) {
		c.RopeScaling = llama.RopeScaling{Type: "llama3", Factor: 8, LowFrequency: 1, HighFrequency: 4, Original: 32}
	}),
}

// writeGGUF returns a file of random weights.
func writeGGUF(t testing.TB, c llama.Config, tensor func(string) (llama.Tensor, error), more gguf.Metadata) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := weights.WriteGGUF(&b, c, tensor, more); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readGGUF(file []byte) (*llama.Model, error) {
	return weights.ReadGGUF(bytes.NewReader(file), int64(len(file)))
}

// logits are those of a few tokens, one row for each.
func logits(t testing.TB, m *llama.Model) []float32 {
	t.Helper()
	ids := []uint32{3, 1, 4, 1, 5, 9, 2, 6}
	out := make([]float32, len(ids)*m.Config().Vocab)
	if err := m.Forward(m.NewCache(1, 16), []llama.Span{{Tokens: ids, Blocks: []int32{0}, Logits: out}}); err != nil {
		t.Fatal(err)
	}
	return out
}

// What a GGUF file has computes what was written into it, be it numbers of 32 bits
// or blocks.
func TestReadGGUF(t *testing.T) {
	for name, c := range shapes {
		random := llama.RandomTensors(c, 7)
		for form, tensor := range map[string]func(string) (llama.Tensor, error){"F32": random, "Q8_0": llama.Quantized(random)} {
			t.Run(name+"/"+form, func(t *testing.T) {
				want, err := llama.New(c, tensor)
				if err != nil {
					t.Fatal(err)
				}
				m, err := readGGUF(writeGGUF(t, c, tensor, nil))
				if err != nil {
					t.Fatal(err)
				}
				if name == "llama3" { // a file has its factors, rounded
					for i, x := range logits(t, m) {
						if y := logits(t, want)[i]; math.Abs(float64(x-y)) > 1e-4 {
							t.Fatalf("logit %d is %v, want %v", i, x, y)
						}
					}
					return
				}
				if m.Hash() != want.Hash() {
					t.Errorf("the model is %+v, want %+v, or has other weights", m.Config(), want.Config())
				}
				if !slices.Equal(logits(t, m), logits(t, want)) {
					t.Error("the logits are others")
				}
			})
		}
	}
}

// The rows of queries and keys stand as llama.cpp wants them: the pairs that
// positions turn are neighbours. Other matrices, and those of an architecture that
// turns halves, stand as they are.
func TestRowsOfHeads(t *testing.T) {
	rows := func(c llama.Config, name string) (list []float32) {
		file := writeGGUF(t, c, func(name string) (llama.Tensor, error) {
			for _, s := range c.Tensors() {
				if s.Name == name {
					numbers := make([]float32, product(s.Shape))
					for i := range numbers {
						numbers[i] = float32(i / s.Shape[len(s.Shape)-1])
					}
					return llama.NewTensor(name, s.Shape, numbers), nil
				}
			}
			return llama.Tensor{}, fmt.Errorf("none")
		}, nil)
		f, err := gguf.Read(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		entry, ok := f.Tensor(name)
		if !ok {
			t.Fatalf("there is no %s", name)
		}
		data, err := f.Data(entry)
		if err != nil {
			t.Fatal(err)
		}
		row := len(data) / entry.Shape[0]
		for i := 0; i < len(data); i += row {
			list = append(list, math.Float32frombits(binary.LittleEndian.Uint32(data[i:])))
		}
		return list
	}
	turned := with(func(c *llama.Config) { c.HeadSize, c.Heads, c.KVHeads = 6, 2, 1 })
	if got, want := rows(turned, "blk.1.attn_q.weight"), []float32{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}; !slices.Equal(got, want) {
		t.Errorf("queries: %v, want %v", got, want)
	}
	if got, want := rows(turned, "blk.0.attn_k.weight"), []float32{0, 3, 1, 4, 2, 5}; !slices.Equal(got, want) {
		t.Errorf("keys: %v, want %v", got, want)
	}
	plain := []float32{0, 1, 2, 3, 4, 5}
	if got := rows(turned, "blk.0.attn_v.weight"); !slices.Equal(got, plain) {
		t.Errorf("values: %v, want %v", got, plain)
	}
	turned.QKVBias = true
	if got := rows(turned, "blk.0.attn_k.weight"); !slices.Equal(got, plain) {
		t.Errorf("keys of qwen2: %v, want %v", got, plain)
	}
}

func product(shape []int) int {
	n := 1
	for _, side := range shape {
		n *= side
	}
	return n
}

// configJSON is config.json of a shape, with some members replaced: "" removes.
func configJSON(c llama.Config, replaced ...string) string {
	kind := "llama"
	if c.QKVBias {
		kind = "qwen2"
	}
	members := []string{
		"model_type", fmt.Sprintf("%q", kind), "vocab_size", fmt.Sprint(c.Vocab), "hidden_size", fmt.Sprint(c.Width),
		"num_hidden_layers", fmt.Sprint(c.Layers), "num_attention_heads", fmt.Sprint(c.Heads),
		"num_key_value_heads", fmt.Sprint(c.KVHeads), "head_dim", fmt.Sprint(c.HeadSize),
		"intermediate_size", fmt.Sprint(c.Hidden), "max_position_embeddings", fmt.Sprint(c.Context),
		"rms_norm_eps", fmt.Sprint(c.NormEps), "rope_theta", fmt.Sprint(c.RopeBase), "tie_word_embeddings", fmt.Sprint(c.Tied),
	}
	if s := c.RopeScaling; s.Type != "" {
		members = append(members, "rope_scaling", fmt.Sprintf(
			`{"rope_type": %q, "factor": %v, "low_freq_factor": %v, "high_freq_factor": %v, "original_max_position_embeddings": %d}`,
			s.Type, s.Factor, s.LowFrequency, s.HighFrequency, s.Original))
	}
	members = append(members, replaced...)
	values := map[string]string{}
	for i := 0; i < len(members); i += 2 {
		values[members[i]] = members[i+1]
	}
	var list []string
	for name, v := range values {
		if v != "" {
			list = append(list, fmt.Sprintf("%q: %s", name, v))
		}
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// sources are the tensors of a shape for a file of safetensors. What keeps half of
// the bytes keeps the upper ones, which is BF16.
func sources(t testing.TB, c llama.Config, half bool) []safetensors.Source {
	t.Helper()
	var list []safetensors.Source
	tensor := llama.RandomTensors(c, 7)
	for _, s := range c.Tensors() {
		one, err := tensor(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		source := safetensors.Source{Name: s.Name, Type: safetensors.F32, Shape: s.Shape, Data: one.Data}
		if half {
			source.Type, source.Data = safetensors.BF16, nil
			for i := 0; i < len(one.Data); i += 4 {
				source.Data = append(source.Data, one.Data[i+2:i+4]...)
			}
		}
		list = append(list, source)
	}
	return list
}

// folder writes files and returns where they are.
func folder(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func safe(t testing.TB, tensors []safetensors.Source) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := safetensors.Write(&b, nil, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestLoadFolder(t *testing.T) {
	for name, c := range shapes {
		t.Run(name, func(t *testing.T) {
			tensors := sources(t, c, false)
			if c.Tied { // some files have it all the same
				tensors = append(tensors, safetensors.Source{Name: "lm_head.weight", Type: safetensors.F32, Shape: []int{1}, Data: make([]byte, 4)})
			}
			m, err := weights.Load(folder(t, map[string][]byte{"config.json": []byte(configJSON(c)), "model.safetensors": safe(t, tensors)}), 0)
			if err != nil {
				t.Fatal(err)
			}
			if want := llama.Random(c, 7); m.Hash() != want.Hash() {
				t.Errorf("the model is %+v, want %+v, or has other weights", m.Config(), want.Config())
			}
		})
	}
}

// A model may be in several files, of which an index tells.
func TestLoadShards(t *testing.T) {
	c := plain()
	tensors := sources(t, c, true)
	index := map[string]string{}
	files := map[string][]byte{"config.json": []byte(configJSON(c))}
	for i, part := range [][]safetensors.Source{tensors[:3], tensors[3:10], tensors[10:]} {
		name := fmt.Sprintf("model-0000%d-of-00003.safetensors", i+1)
		files[name] = safe(t, part)
		for _, s := range part {
			index[s.Name] = name
		}
	}
	files["model.safetensors.index.json"] = indexJSON(index)
	m, err := weights.Load(folder(t, files), 0)
	if err != nil {
		t.Fatal(err)
	}
	want, err := llama.New(c, func(name string) (llama.Tensor, error) {
		i := slices.IndexFunc(tensors, func(s safetensors.Source) bool { return s.Name == name })
		return llama.Tensor{Name: name, Shape: tensors[i].Shape, Kind: llama.BF16, Data: tensors[i].Data}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.Hash() != want.Hash() {
		t.Error("the model has other weights")
	}
}

func indexJSON(index map[string]string) []byte {
	var list []string
	for tensor, file := range index {
		list = append(list, fmt.Sprintf("%q: %q", tensor, file))
	}
	return []byte(`{"metadata": {"total_size": 1}, "weight_map": {` + strings.Join(list, ", ") + "}}")
}

// A path may name the file, or a folder with one.
func TestLoadPaths(t *testing.T) {
	file := writeGGUF(t, plain(), llama.RandomTensors(plain(), 7), nil)
	dir := folder(t, map[string][]byte{"m.gguf": file, "mmproj-m.gguf": nil, "README.md": nil})
	for _, path := range []string{dir, filepath.Join(dir, "m.gguf")} {
		m, err := weights.Load(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		if want := llama.Random(plain(), 7); m.Hash() != want.Hash() {
			t.Errorf("%s: the model has other weights", path)
		}
	}
	two := folder(t, map[string][]byte{"a.gguf": file, "b.gguf": file})
	none := folder(t, nil)
	for path, want := range map[string]string{
		two:                              two + ": a.gguf, b.gguf: want the path of the one to take",
		none:                             none + ": no config.json and no .gguf file: want one of them",
		filepath.Join(dir, "README.md"):  filepath.Join(dir, "README.md") + ": want a .gguf file, or a folder with config.json and safetensors",
		filepath.Join(dir, "other.gguf"): filepath.Join(dir, "other.gguf") + ": no such file or directory",
		"/dev/null":                      "/dev/null: want a .gguf file, or a folder with config.json and safetensors",
	} {
		if _, err := weights.Load(path, 0); err == nil || err.Error() != "model "+want {
			t.Errorf("%v\nwant model %s", err, want)
		}
	}
}
