package weights_test

import (
	"bytes"
	"encoding/binary"
	"maps"
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

// rewritten is a file of random weights after some change.
func rewritten(t testing.TB, change func(m gguf.Metadata, tensors *[]gguf.Source)) []byte {
	t.Helper()
	file := writeGGUF(t, plain(), llama.RandomTensors(plain(), 7), nil)
	f, err := gguf.Read(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	var tensors []gguf.Source
	for _, entry := range f.Tensors {
		data, err := f.Data(entry)
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, gguf.Source{Name: entry.Name, Type: entry.Type, Shape: entry.Shape, Data: data})
	}
	m := maps.Clone(f.Metadata)
	change(m, &tensors)
	var b bytes.Buffer
	if err := gguf.Write(&b, m, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// set is a change of one key.
func set(key string, v any) func(gguf.Metadata, *[]gguf.Source) {
	return func(m gguf.Metadata, _ *[]gguf.Source) {
		if m[key] = v; v == nil {
			delete(m, key)
		}
	}
}

// edit is a change of one tensor.
func edit(name string, change func(t *gguf.Source)) func(gguf.Metadata, *[]gguf.Source) {
	return func(_ gguf.Metadata, tensors *[]gguf.Source) {
		i := slices.IndexFunc(*tensors, func(s gguf.Source) bool { return s.Name == name })
		change(&(*tensors)[i])
	}
}

func add(name string, numbers ...float32) func(gguf.Metadata, *[]gguf.Source) {
	return func(_ gguf.Metadata, tensors *[]gguf.Source) {
		t := llama.NewTensor(name, []int{len(numbers)}, numbers)
		*tensors = append(*tensors, gguf.Source{Name: name, Type: gguf.F32, Shape: t.Shape, Data: t.Data})
	}
}

func TestGGUFErrors(t *testing.T) {
	for want, change := range map[string]func(gguf.Metadata, *[]gguf.Source){
		`general.architecture: "gemma": want llama or qwen2`:                                             set("general.architecture", "gemma"),
		"split.count: the model is in 2 files: want it in one":                                           set("split.count", uint16(2)),
		"llama.block_count: absent: want a number from 1 to 2147483647, the same for all layers":         set("llama.block_count", nil),
		"llama.block_count: 0: want a number from 1 to 2147483647, the same for all layers":              set("llama.block_count", uint32(0)),
		"llama.attention.head_count: [4 2]: want a number from 1 to 2147483647, the same for all layers": set("llama.attention.head_count", []uint32{4, 2}),
		"llama.context_length: x: want a number from 1 to 2147483647, the same for all layers":           set("llama.context_length", "x"),
		"llama.rope.freq_base: x: want a number":                                                         set("llama.rope.freq_base", "x"),
		"llama.rope.dimension_count: 8: want 16, for nothing else is computed":                           set("llama.rope.dimension_count", uint32(8)),
		"llama.attention.value_length: 8: want 16, for nothing else is computed":                         set("llama.attention.value_length", uint32(8)),
		"llama.expert_count: 8: want 0, for nothing else is computed":                                    set("llama.expert_count", uint32(8)),
		"llama.logit_scale: 0.5: want 1, for nothing else is computed":                                   set("llama.logit_scale", float32(0.5)),
		"llama.attention.sliding_window: 8: want none, or no less than the context of 64":                set("llama.attention.sliding_window", uint32(8)),
		"llama.attention.causal: false: want true":                                                       set("llama.attention.causal", false),
		"llama.rope.scaling.type: yarn: want none or linear":                                             set("llama.rope.scaling.type", "yarn"),
		"tokenizer.ggml.tokens: 2 tokens, and token_embd.weight has 40 rows: want as many":               set("tokenizer.ggml.tokens", []string{"a", "b"}),
		"llama: 4 heads cannot share 3 KV heads evenly; the second must divide the first":                set("llama.attention.head_count_kv", uint32(3)),
		"llama: epsilon of the norm is 0; it must be a number above 0, such as 1e-5":                     set("llama.attention.layer_norm_rms_epsilon", nil),
		"tensor token_embd.weight: the file has none":                                                    edit("token_embd.weight", func(t *gguf.Source) { t.Name = "embedding" }),
		"tensor blk.1.attn_q_norm.weight: a llama of this shape has none: want a model without it":       add("blk.1.attn_q_norm.weight", 1),
		"tensor blk.2.attn_norm.weight: a llama of this shape has none: want a model without it":         add("blk.2.attn_norm.weight", 1),
		"tensor blk.01.attn_norm.weight: a llama of this shape has none: want a model without it":        add("blk.01.attn_norm.weight", 1),
		"tensor blk.1.attn_q.bias: a llama of this shape has none: want a model without it":              add("blk.1.attn_q.bias", 1),
		"llama: tensor model.layers.0.self_attn.k_proj.bias: the file has none":                          add("blk.0.attn_q.bias", make([]float32, 64)...),
		"llama: tensor model.layers.1.mlp.up_proj.weight: the file has none": func(_ gguf.Metadata, l *[]gguf.Source) {
			*l = slices.DeleteFunc(*l, func(s gguf.Source) bool { return s.Name == "blk.1.ffn_up.weight" })
		},
		"llama: tensor model.layers.0.mlp.down_proj.weight: shape is [64 32]; the model's settings make it [32 64]": edit("blk.0.ffn_down.weight", func(t *gguf.Source) { slices.Reverse(t.Shape) }),
		"llama: tensor model.layers.1.self_attn.q_proj.weight: number at [5 3] is not finite (NaN or an infinity)": edit("blk.1.attn_q.weight", func(t *gguf.Source) {
			// Row 5 of a head of 16 is the tenth of those that are turned by pairs.
			binary.LittleEndian.PutUint32(t.Data[4*(10*32+3):], math.Float32bits(float32(math.NaN())))
		}),
		"tensor rope_freqs.weight: F32 of shape [2]: want F32 of shape [8], half of a head": add("rope_freqs.weight", 1, 1),
		"llama: number 7 of RoPE scaling \"factors\" is 0; it must be a number above 0":     add("rope_freqs.weight", 1, 1, 1, 1, 1, 1, 1, 0),
		"tensor rope_freqs.weight: the file also has llama.rope.scaling.factor: want one of them": func(m gguf.Metadata, l *[]gguf.Source) {
			set("llama.rope.scaling.factor", float32(2))(m, l)
			add("rope_freqs.weight", 1, 1, 1, 1, 1, 1, 1, 1)(m, l)
		},
	} {
		if _, err := readGGUF(rewritten(t, change)); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	// What changes nothing is taken.
	for name, change := range map[string]func(gguf.Metadata, *[]gguf.Source){
		"a list":     set("llama.attention.head_count_kv", []int32{2, 2}),
		"neutral":    set("llama.expert_count", uint32(0)),
		"not scaled": set("llama.rope.scaling.type", "none"),
		"no vocab":   set("llama.vocab_size", nil),
		"wide":       set("llama.attention.sliding_window", uint32(64)),
	} {
		m, err := readGGUF(rewritten(t, change))
		if err != nil || m.Hash() != llama.Random(plain(), 7).Hash() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFolderErrors(t *testing.T) {
	c := plain()
	tensors := sources(t, c, false)
	config := []byte(configJSON(c))
	for want, files := range map[string]map[string][]byte{
		`config.json: model_type: "gpt2": want llama, mistral or qwen2`:                                   {"config.json": []byte(configJSON(c, "model_type", `"gpt2"`))},
		"no model.safetensors and no model.safetensors.index.json: want one of them":                      {"config.json": config},
		"model.safetensors: the file ends within its header: want a complete file":                        {"config.json": config, "model.safetensors": []byte("x")},
		"llama: tensor model.layers.1.mlp.down_proj.weight: the file has none":                            {"config.json": config, "model.safetensors": safe(t, tensors[:len(tensors)-1])},
		"tensor x: a llama of this shape has none: want a model without it":                               {"config.json": config, "model.safetensors": safe(t, append(slices.Clone(tensors), safetensors.Source{Name: "x", Type: safetensors.F32, Shape: []int{1}, Data: make([]byte, 4)}))},
		"model.safetensors: tensor x: I8 of shape [1]: want a vector or matrix of F32, F16 or BF16":       {"config.json": config, "model.safetensors": safe(t, []safetensors.Source{{Name: "x", Type: "I8", Shape: []int{1}, Data: make([]byte, 1)}})},
		"llama: tensor model.embed_tokens.weight: shape is [40 32]; the model's settings make it [41 32]": {"config.json": []byte(configJSON(c, "vocab_size", "41")), "model.safetensors": safe(t, tensors)},
	} {
		dir := folder(t, files)
		if _, err := weights.Load(dir, 0); err == nil || err.Error() != "model "+dir+": "+want {
			t.Errorf("%v\nwant model %s: %s", err, dir, want)
		}
	}
	large := folder(t, map[string][]byte{"config.json": make([]byte, 1<<20+1)})
	if _, err := weights.Load(large, 0); err == nil || !strings.HasSuffix(err.Error(), "config.json: want a regular file of at most 1048576 bytes") {
		t.Error(err)
	}
}

// A model that has no room is refused before any of it is read.
func TestNoRoom(t *testing.T) {
	c := plain()
	random := llama.RandomTensors(c, 7)
	for name, file := range map[string][]byte{"F32": writeGGUF(t, c, random, nil), "Q8_0": writeGGUF(t, c, llama.Quantized(random), nil)} {
		m, err := readGGUF(file)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder(t, map[string][]byte{"m.gguf": file}), "m.gguf")
		if _, err := weights.Load(path, 20_000); err == nil || !strings.HasPrefix(err.Error(), "model "+path+": its weights take ") || !strings.HasSuffix(err.Error(), " KiB of memory: want at most 19.5 KiB, which is what there is") {
			t.Errorf("%s: %v", name, err)
		}
		// Loading takes what is kept, and the largest tensor as it lies in the file.
		if _, err := weights.Load(path, int64(m.Bytes())+40*32*4); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := weights.Load(path, int64(m.Bytes()*8/10)); err == nil {
			t.Errorf("%s: it is loaded into %d bytes, and takes %d", name, m.Bytes()*8/10, m.Bytes())
		}
	}
}

// Loading takes what is kept, and the largest tensor as it lies in the file.
func TestRoom(t *testing.T) {
	c := plain()
	path := filepath.Join(folder(t, map[string][]byte{"m.gguf": writeGGUF(t, c, llama.RandomTensors(c, 7), nil)}), "m.gguf")
	need := int64(4*c.Parameters() + 4*c.Hidden*c.Width)
	if _, err := weights.Load(path, need); err != nil {
		t.Error(err)
	}
	if _, err := weights.Load(path, need-1); err == nil {
		t.Error("it is loaded into a byte less than it takes")
	}
}

// Whatever a file claims to be, it is a model or an error.
func FuzzReadGGUF(f *testing.F) {
	for _, c := range shapes {
		c.Vocab, c.Width, c.Hidden, c.Layers, c.Context = 2, 2, 2, 1, 8
		c.Heads, c.KVHeads, c.HeadSize = 2, 1, 4
		f.Add(writeGGUF(f, c, llama.RandomTensors(c, 1), nil))
	}
	wide := llama.Config{Vocab: 2, Width: 32, Layers: 1, Heads: 1, KVHeads: 1, HeadSize: 2, Hidden: 32, Context: 8, RopeBase: 10000, NormEps: 1e-5}
	f.Add(writeGGUF(f, wide, llama.Quantized(llama.RandomTensors(wide, 1)), gguf.Metadata{"tokenizer.ggml.tokens": []string{"a", "b"}}))
	f.Fuzz(func(t *testing.T, file []byte) {
		m, err := readGGUF(file)
		if err != nil || m.Config().Context > 1<<12 {
			return
		}
		out := make([]float32, m.Config().Vocab)
		if err := m.Forward(m.NewCache(1, 1), []llama.Span{{Tokens: []uint32{0}, Blocks: []int32{0}, Logits: out}}); err != nil {
			t.Error(err)
		}
	})
}

func TestWriteErrors(t *testing.T) {
	var b bytes.Buffer
	if err := weights.WriteGGUF(&b, llama.Config{}, nil, nil); err == nil || !strings.HasPrefix(err.Error(), "llama: vocabulary is 0") {
		t.Error(err)
	}
	none := func(string) (llama.Tensor, error) { return llama.Tensor{}, os.ErrNotExist }
	if err := weights.WriteGGUF(&b, plain(), none, nil); err == nil || err.Error() != "tensor model.embed_tokens.weight: file does not exist" {
		t.Error(err)
	}
	if err := weights.WriteGGUF(&b, plain(), llama.RandomTensors(plain(), 1), gguf.Metadata{"x": 1}); err == nil {
		t.Error("a key of no type is written")
	}
}
