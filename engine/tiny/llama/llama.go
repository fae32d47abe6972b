// Package llama is the arithmetic of a llama-class transformer: its shape, its
// weights, and one forward pass over a paged KV cache. It knows tokens, blocks
// and numbers; what a request is, which blocks it holds and how a token is
// chosen from logits is for others.
//
// The one idea: every number has one order of addition, that of its formula
// from the first term to the last, in float32 and without fused multiplication.
// So a row's numbers do not depend on what it is computed together with, on how
// its prompt was cut, on which blocks it lies in, or on which kernel of which
// machine adds: bit for bit. The kernels get their speed from doing many such
// sums side by side, never from cutting one into parts.
package llama

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
)

// Model is a transformer with its weights. It never changes, and any number of
// goroutines may use it at the same time, each with a Cache of its own.
type Model struct {
	cfg       Config
	kernels   *kernels
	embedding *matrix // a row for each token
	layers    []layer
	norm      []float32
	output    *matrix // the embedding, if they are tied
	rope      rope
	hash      string
}

// layer is one block of the transformer.
type layer struct {
	attentionNorm, hiddenNorm []float32
	q, k, v, o                *matrix
	gate, up, down            *matrix
}

// New makes a model of the tensors that cfg.Tensors lists, each asked for once
// under the name that Hugging Face gives it. Nothing of a tensor is kept, so its
// bytes may be a mapped file that is closed afterwards. An error names what is
// wrong with the shape, or the tensor that is missing, has another shape than it
// should, or holds a NaN or an infinity.
func New(cfg Config, tensor func(name string) (Tensor, error)) (*Model, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg, kernels: fastest, rope: newRope(cfg)}
	l := loader{cfg: cfg, tensor: tensor, hash: sha256.New()}
	l.sign(m.rope)

	width, heads, kv := cfg.Width, cfg.Heads*cfg.HeadSize, cfg.KVHeads*cfg.HeadSize
	m.embedding = l.matrix(embeddingName, cfg.Vocab, width)
	m.output = m.embedding
	if !cfg.Tied {
		m.output = l.matrix(outputName, cfg.Vocab, width)
	}
	m.norm = l.vector(normName, width)
	m.layers = make([]layer, cfg.Layers)
	for i := range m.layers {
		at := func(name string) string { return layerName(i, name) }
		m.layers[i] = layer{
			attentionNorm: l.vector(at("input_layernorm.weight"), width),
			q:             l.projection(at("self_attn.q_proj"), heads, width),
			k:             l.projection(at("self_attn.k_proj"), kv, width),
			v:             l.projection(at("self_attn.v_proj"), kv, width),
			o:             l.matrix(at("self_attn.o_proj.weight"), width, heads),
			hiddenNorm:    l.vector(at("post_attention_layernorm.weight"), width),
			gate:          l.matrix(at("mlp.gate_proj.weight"), cfg.Hidden, width),
			up:            l.matrix(at("mlp.up_proj.weight"), cfg.Hidden, width),
			down:          l.matrix(at("mlp.down_proj.weight"), width, cfg.Hidden),
		}
	}
	if l.err != nil {
		return nil, fmt.Errorf("llama: %w", l.err)
	}
	m.hash = hex.EncodeToString(l.hash.Sum(nil)[:8])
	return m, nil
}

// Config returns the shape of the model.
func (m *Model) Config() Config { return m.cfg }

// Hash returns 16 hexadecimal digits that stand for everything that the numbers
// of the model come from: its shape, its frequencies and its weights.
func (m *Model) Hash() string { return m.hash }

// Bytes returns the memory that the weights take.
func (m *Model) Bytes() int {
	n := m.embedding.bytes() + 4*len(m.norm)
	if m.output != m.embedding {
		n += m.output.bytes()
	}
	for i := range m.layers {
		l := &m.layers[i]
		n += 4 * (len(l.attentionNorm) + len(l.hiddenNorm))
		for _, w := range []*matrix{l.q, l.k, l.v, l.o, l.gate, l.up, l.down} {
			n += w.bytes()
		}
	}
	return n
}

// loader asks for tensors, checks them and hashes what they hold. After its
// first error it does nothing more.
type loader struct {
	cfg    Config
	tensor func(name string) (Tensor, error)
	hash   hash.Hash
	err    error
}

func (l *loader) sign(r rope) {
	c := l.cfg
	fmt.Fprintln(l.hash, c.Vocab, c.Width, c.Layers, c.Heads, c.KVHeads, c.HeadSize, c.Hidden,
		math.Float32bits(c.NormEps), c.Tied, c.QKVBias)
	for _, f := range r.frequencies {
		fmt.Fprintln(l.hash, math.Float32bits(f))
	}
}

// load returns the tensor of that name if it is whole and has that shape.
func (l *loader) load(name string, shape ...int) (Tensor, bool) {
	if l.err != nil {
		return Tensor{}, false
	}
	t, err := l.tensor(name)
	if err != nil {
		l.err = fmt.Errorf("tensor %s: %w", name, err)
		return Tensor{}, false
	}
	if err := t.check(shape); err != nil {
		l.err = fmt.Errorf("tensor %s: %w", name, err)
		return Tensor{}, false
	}
	fmt.Fprintln(l.hash, name, t.Kind)
	l.hash.Write(t.Data)
	return t, true
}

func (l *loader) vector(name string, n int) []float32 {
	t, ok := l.load(name, n)
	if !ok {
		return nil
	}
	v := make([]float32, n)
	t.read(v, 0)
	return v
}

func (l *loader) matrix(name string, outputs, inputs int) *matrix {
	t, ok := l.load(name, outputs, inputs)
	if !ok {
		return nil
	}
	return newMatrix(t)
}

// projection is a matrix that may have a bias.
func (l *loader) projection(name string, outputs, inputs int) *matrix {
	w := l.matrix(name+".weight", outputs, inputs)
	if l.cfg.QKVBias {
		if b := l.vector(name+".bias", outputs); b != nil && w != nil {
			w.bias = b
		}
	}
	return w
}

// native names the order of a float's bytes on this machine.
func native() string {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return "f32le"
	}
	return "f32be"
}
