package llama

import (
	"fmt"
	"math"
)

// Config is the shape of a model, in the words of Hugging Face's config.json.
type Config struct {
	Vocab    int // tokens
	Width    int // of the residual stream, hidden_size
	Layers   int
	Heads    int // of queries
	KVHeads  int // of keys and values; divides Heads
	HeadSize int // even
	Hidden   int // width inside the feed-forward part, intermediate_size
	Context  int // positions

	RopeBase    float64 // rope_theta, 10000 in the first models
	RopeScaling RopeScaling
	NormEps     float32 // rms_norm_eps
	Tied        bool    // the output matrix is that of the embedding
	QKVBias     bool    // queries, keys and values have a bias, as in Qwen 2
}

// RopeScaling says how the frequencies of positions are stretched for a longer
// context. The zero value leaves them as they are.
type RopeScaling struct {
	// Type is "" or "default" for none, "linear", "llama3", or "factors".
	Type string
	// Factor is by how much "linear" and "llama3" stretch.
	Factor float64
	// LowFrequency, HighFrequency and Original are of "llama3": low_freq_factor,
	// high_freq_factor and original_max_position_embeddings.
	LowFrequency, HighFrequency float64
	Original                    int
	// Factors are HeadSize/2 numbers that "factors" divides the frequencies by,
	// the tensor rope_freqs.weight of a GGUF file.
	Factors []float32
}

// Bounds of a shape. They are far above any model that a processor would run,
// and keep the size of every tensor within an int of 64 bits.
const (
	maxVocab   = 1 << 24
	maxWidth   = 1 << 20
	maxLayers  = 1 << 12
	maxContext = 1 << 28
)

// Validate returns an error that names the first setting that makes no model,
// or that this package does not compute.
func (c Config) Validate() error {
	for _, n := range []struct {
		name     string
		is, most int
	}{
		{"vocabulary", c.Vocab, maxVocab},
		{"width", c.Width, maxWidth},
		{"number of layers", c.Layers, maxLayers},
		{"number of heads", c.Heads, maxWidth},
		{"number of KV heads", c.KVHeads, maxWidth},
		{"head size", c.HeadSize, maxWidth},
		{"hidden width", c.Hidden, maxWidth},
		{"context", c.Context, maxContext},
	} {
		if n.is < 1 || n.is > n.most {
			return fmt.Errorf("llama: %s is %d; it must be from 1 to %d", n.name, n.is, n.most)
		}
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("llama: %d heads cannot share %d KV heads evenly; the second must divide the first", c.Heads, c.KVHeads)
	case c.HeadSize%2 != 0:
		return fmt.Errorf("llama: head size is %d; positions turn pairs of numbers, so it must be even", c.HeadSize)
	case c.Heads*c.HeadSize > maxWidth:
		return fmt.Errorf("llama: %d heads of %d are wider than %d", c.Heads, c.HeadSize, maxWidth)
	case !(c.RopeBase > 0) || math.IsInf(c.RopeBase, 0):
		return fmt.Errorf("llama: RoPE base is %v; it must be a number above 0, such as 10000", c.RopeBase)
	case !(c.NormEps > 0) || math.IsInf(float64(c.NormEps), 0):
		return fmt.Errorf("llama: epsilon of the norm is %v; it must be a number above 0, such as 1e-5", c.NormEps)
	}
	return c.RopeScaling.validate(c.HeadSize)
}

func (s RopeScaling) validate(headSize int) error {
	positive := func(name string, x float64) error {
		if !(x > 0) || math.IsInf(x, 0) {
			return fmt.Errorf("llama: %s of RoPE scaling %q is %v; it must be a number above 0", name, s.Type, x)
		}
		return nil
	}
	switch s.Type {
	case "", "default":
		return nil
	case "linear":
		return positive("factor", s.Factor)
	case "llama3":
		if err := positive("factor", s.Factor); err != nil {
			return err
		}
		if err := positive("low_freq_factor", s.LowFrequency); err != nil {
			return err
		}
		if err := positive("original_max_position_embeddings", float64(s.Original)); err != nil {
			return err
		}
		if !(s.HighFrequency > s.LowFrequency) || math.IsInf(s.HighFrequency, 0) {
			return fmt.Errorf("llama: high_freq_factor of RoPE scaling %q is %v; it must be above low_freq_factor, %v", s.Type, s.HighFrequency, s.LowFrequency)
		}
		return nil
	case "factors":
		if len(s.Factors) != headSize/2 {
			return fmt.Errorf("llama: RoPE scaling has %d factors; a head size of %d needs %d", len(s.Factors), headSize, headSize/2)
		}
		for i, f := range s.Factors {
			if err := positive(fmt.Sprintf("number %d", i), float64(f)); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("llama: RoPE scaling %q is not supported; linear, llama3 and factors are", s.Type)
}

// Spec is the name and the shape that a tensor must have. Shapes are those of
// Hugging Face, outputs before inputs.
type Spec struct {
	Name  string
	Shape []int
}

const (
	embeddingName = "model.embed_tokens.weight"
	normName      = "model.norm.weight"
	outputName    = "lm_head.weight"
)

func layerName(layer int, name string) string {
	return fmt.Sprintf("model.layers.%d.%s", layer, name)
}

// Tensors lists what New asks for, in the order in which it asks.
func (c Config) Tensors() []Spec {
	heads, kv := c.Heads*c.HeadSize, c.KVHeads*c.HeadSize
	list := []Spec{{embeddingName, []int{c.Vocab, c.Width}}}
	if !c.Tied {
		list = append(list, Spec{outputName, []int{c.Vocab, c.Width}})
	}
	list = append(list, Spec{normName, []int{c.Width}})
	for i := range c.Layers {
		add := func(name string, shape ...int) {
			list = append(list, Spec{layerName(i, name), shape})
		}
		project := func(name string, outputs int) {
			add(name+".weight", outputs, c.Width)
			if c.QKVBias {
				add(name+".bias", outputs)
			}
		}
		add("input_layernorm.weight", c.Width)
		project("self_attn.q_proj", heads)
		project("self_attn.k_proj", kv)
		project("self_attn.v_proj", kv)
		add("self_attn.o_proj.weight", c.Width, heads)
		add("post_attention_layernorm.weight", c.Width)
		add("mlp.gate_proj.weight", c.Hidden, c.Width)
		add("mlp.up_proj.weight", c.Hidden, c.Width)
		add("mlp.down_proj.weight", c.Width, c.Hidden)
	}
	return list
}

// Parameters returns how many weights the model has.
func (c Config) Parameters() int {
	n := 0
	for _, t := range c.Tensors() {
		n += size(t.Shape)
	}
	return n
}
