package weights

import (
	"fmt"
	"io"
	"maps"

	"github.com/dynago/dynago/engine/tiny/gguf"
	"github.com/dynago/dynago/engine/tiny/llama"
)

// WriteGGUF writes a model as a GGUF file that [ReadGGUF] and llama.cpp read. The
// tensors are those that cfg.Tensors lists, under the names of Hugging Face, and
// are stored in the kind that they come in. More are keys to write besides those
// of the shape, such as a name and the vocabulary; llama.cpp wants one.
func WriteGGUF(to io.Writer, cfg llama.Config, tensor func(name string) (llama.Tensor, error), more gguf.Metadata) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	architecture := "llama"
	if cfg.QKVBias {
		architecture = "qwen2"
	}
	m := describe(architecture, &cfg)
	maps.Copy(m, more)
	var tensors []gguf.Source
	switch s := cfg.RopeScaling; s.Type {
	case "", "default":
	case "linear":
		m[architecture+".rope.scaling.type"] = "linear"
		m[architecture+".rope.scaling.factor"] = float32(s.Factor)
	default:
		factors := llama.NewTensor(factorsTensor, []int{cfg.HeadSize / 2}, cfg.RopeFactors())
		tensors = append(tensors, gguf.Source{Name: factorsTensor, Type: gguf.F32, Shape: factors.Shape, Data: factors.Data})
	}
	for _, spec := range cfg.Tensors() {
		t, err := tensor(spec.Name)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", spec.Name, err)
		}
		if heads := turns(&cfg, spec.Name); architecture == "llama" && heads > 0 {
			t.Data = interleaved(t.Data, heads, t.Shape[0])
		}
		tensors = append(tensors, gguf.Source{Name: shortName(spec.Name), Type: types[t.Kind], Shape: t.Shape, Data: t.Data})
	}
	return gguf.Write(to, m, tensors)
}

// describe returns the keys of a shape.
func describe(architecture string, c *llama.Config) gguf.Metadata {
	m := gguf.Metadata{"general.architecture": architecture}
	for name, n := range map[string]int{
		"vocab_size": c.Vocab, "context_length": c.Context, "embedding_length": c.Width, "block_count": c.Layers,
		"feed_forward_length": c.Hidden, "attention.head_count": c.Heads, "attention.head_count_kv": c.KVHeads,
		"attention.key_length": c.HeadSize, "attention.value_length": c.HeadSize, "rope.dimension_count": c.HeadSize,
	} {
		m[architecture+"."+name] = uint32(n)
	}
	m[architecture+".rope.freq_base"] = float32(c.RopeBase)
	m[architecture+".attention.layer_norm_rms_epsilon"] = c.NormEps
	return m
}
