package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/dynago/dynago/engine/tiny/gguf"
	"github.com/dynago/dynago/engine/tiny/llama"
)

// factorsTensor divides the frequencies of positions, where a model's context has
// been stretched as that of Llama 3.1 was.
const factorsTensor = "rope_freqs.weight"

var (
	kinds = map[gguf.Type]llama.Kind{
		gguf.F32: llama.F32, gguf.F16: llama.F16, gguf.BF16: llama.BF16, gguf.Q8_0: llama.Q8_0,
	}
	types = map[llama.Kind]gguf.Type{
		llama.F32: gguf.F32, llama.F16: gguf.F16, llama.BF16: gguf.BF16, llama.Q8_0: gguf.Q8_0,
	}
)

// fromGGUF finds a model in a file.
func fromGGUF(f *gguf.File) (*stored, error) {
	w := &stored{}
	var err error
	if w.config, err = ggufConfig(f); err != nil {
		return nil, err
	}
	places := map[string]gguf.Tensor{}
	for _, t := range f.Tensors {
		if t.Name == factorsTensor {
			continue
		}
		name := longName(t.Name)
		places[name] = t
		w.tensors = append(w.tensors, held{name: name, own: t.Name, kind: kinds[t.Type], shape: t.Shape})
	}
	turned := f.Metadata.Text("general.architecture") == "llama"
	w.read = func(name string) (llama.Tensor, error) {
		t := places[name]
		data, err := f.Data(t)
		if err != nil {
			return llama.Tensor{}, err
		}
		if heads := turns(&w.config, name); turned && heads > 0 && t.Shape[0]%(2*heads) == 0 {
			data = permuted(data, heads, t.Shape[0])
		}
		return llama.Tensor{Name: name, Shape: t.Shape, Kind: kinds[t.Type], Data: data}, nil
	}
	return w, nil
}

// turns returns the number of heads of a tensor whose outputs positions turn; of
// others none.
func turns(c *llama.Config, name string) int {
	switch {
	case strings.Contains(name, ".q_proj."):
		return c.Heads
	case strings.Contains(name, ".k_proj."):
		return c.KVHeads
	}
	return 0
}

// ggufConfig reads the settings of a model.
func ggufConfig(f *gguf.File) (llama.Config, error) {
	s := ggufSettings{Metadata: f.Metadata}
	architecture := s.Text("general.architecture")
	if architecture != "llama" && architecture != "qwen2" {
		return llama.Config{}, fmt.Errorf("general.architecture: %q: want llama or qwen2", architecture)
	}
	embedding, ok := f.Tensor("token_embd.weight")
	if !ok {
		return llama.Config{}, errors.New("tensor token_embd.weight: the file has none")
	}
	if parts, _ := s.Number("split.count"); parts > 1 {
		return llama.Config{}, fmt.Errorf("split.count: the model is in %v files: want it in one", parts)
	}
	s.prefix = architecture + "."
	_, output := f.Tensor("output.weight")
	_, bias := f.Tensor("blk.0.attn_q.bias")
	c := llama.Config{
		Vocab: embedding.Shape[0], Width: s.count("embedding_length"), Layers: s.count("block_count"),
		Heads: s.count("attention.head_count"), Hidden: s.count("feed_forward_length"), Context: s.count("context_length"),
		RopeBase: s.number("rope.freq_base", 10000), NormEps: float32(s.number("attention.layer_norm_rms_epsilon", 0)),
		Tied: !output, QKVBias: bias || architecture == "qwen2",
	}
	c.KVHeads = s.countOr("attention.head_count_kv", c.Heads)
	c.HeadSize = s.countOr("attention.key_length", c.Width/max(c.Heads, 1))
	s.scaling(f, &c)
	s.only("attention.value_length", float64(c.HeadSize))
	s.only("rope.dimension_count", float64(c.HeadSize))
	for _, name := range []string{"expert_count", "expert_used_count", "attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias", "attn_logit_softcapping", "final_logit_softcapping"} {
		s.only(name, 0)
	}
	for _, name := range []string{"logit_scale", "residual_scale", "embedding_scale", "rope.scaling.attn_factor"} {
		s.only(name, 1)
	}
	if window := s.number("attention.sliding_window", 0); window > 0 && window < float64(c.Context) {
		s.wrong("attention.sliding_window", fmt.Sprintf("want none, or no less than the context of %d", c.Context))
	}
	if !s.Flag(s.prefix+"attention.causal", true) {
		s.wrong("attention.causal", "want true")
	}
	if tokens, ok := s.Metadata["tokenizer.ggml.tokens"].([]string); ok && len(tokens) != c.Vocab && s.fault == nil {
		s.fault = fmt.Errorf("tokenizer.ggml.tokens: %d tokens, and token_embd.weight has %d rows: want as many", len(tokens), c.Vocab)
	}
	return c, s.fault
}

// ggufSettings reads the keys of an architecture. The first that is wrong is kept
// in fault, and reading goes on.
type ggufSettings struct {
	gguf.Metadata
	prefix string
	fault  error
}

func (s *ggufSettings) wrong(name, want string) {
	if s.fault != nil {
		return
	}
	v, ok := s.Metadata[s.prefix+name]
	if !ok {
		v = "absent"
	}
	s.fault = fmt.Errorf("%s%s: %v: %s", s.prefix, name, v, want)
}

// count reads a number of things, which has to be there. A list, with one for
// each layer, counts if all are the same.
func (s *ggufSettings) count(name string) int {
	n, ok := s.Number(s.prefix + name)
	if list, err := s.Numbers(s.prefix + name); err == nil && len(list) > 0 {
		n, ok = list[0], true
		for _, other := range list {
			ok = ok && other == n
		}
	}
	if !ok || n < 1 || n > math.MaxInt32 || n != math.Trunc(n) {
		s.wrong(name, fmt.Sprintf("want a number from 1 to %d, the same for all layers", math.MaxInt32))
		return 0
	}
	return int(n)
}

// countOr reads one that may be left out.
func (s *ggufSettings) countOr(name string, otherwise int) int {
	if _, ok := s.Metadata[s.prefix+name]; !ok {
		return otherwise
	}
	return s.count(name)
}

func (s *ggufSettings) number(name string, otherwise float64) float64 {
	if _, ok := s.Metadata[s.prefix+name]; !ok {
		return otherwise
	}
	n, ok := s.Number(s.prefix + name)
	if !ok {
		s.wrong(name, "want a number")
	}
	return n
}

// only refuses any other value than one that changes nothing.
func (s *ggufSettings) only(name string, neutral float64) {
	if s.number(name, neutral) != neutral {
		s.wrong(name, fmt.Sprintf("want %v, for nothing else is computed", neutral))
	}
}

// scaling reads how the frequencies of positions are stretched.
func (s *ggufSettings) scaling(f *gguf.File, c *llama.Config) {
	factor := s.number("rope.scaling.factor", s.number("rope.scale_linear", 1))
	switch kind := s.Text(s.prefix + "rope.scaling.type"); {
	case kind == "none":
	case kind != "" && kind != "linear":
		s.wrong("rope.scaling.type", "want none or linear")
	case factor != 1 && factor != 0:
		c.RopeScaling = llama.RopeScaling{Type: "linear", Factor: factor}
	}
	t, ok := f.Tensor(factorsTensor)
	if !ok || s.fault != nil {
		return
	}
	if c.RopeScaling.Type != "" {
		s.fault = fmt.Errorf("tensor %s: the file also has %srope.scaling.factor: want one of them", factorsTensor, s.prefix)
		return
	}
	if t.Type != gguf.F32 || len(t.Shape) != 1 || t.Shape[0] != c.HeadSize/2 {
		s.fault = fmt.Errorf("tensor %s: %s of shape %v: want F32 of shape [%d], half of a head", factorsTensor, t.Type, t.Shape, c.HeadSize/2)
		return
	}
	data, err := f.Data(t)
	if err != nil {
		s.fault = err
		return
	}
	c.RopeScaling = llama.RopeScaling{Type: "factors", Factors: make([]float32, t.Shape[0])}
	for i := range c.RopeScaling.Factors {
		c.RopeScaling.Factors[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
}
