package llama_test

import (
	"math"

	"github.com/dynago/dynago/engine/tiny/llama"
)

// naive is a model in float64, written straight from the formulas: no cache, no
// blocks, no tiles, every position from the beginning.
type naive struct {
	cfg    llama.Config
	tensor map[string][]float64
}

func newNaive(cfg llama.Config, tensor func(string) (llama.Tensor, error)) *naive {
	n := &naive{cfg, map[string][]float64{}}
	for _, s := range cfg.Tensors() {
		t, err := tensor(s.Name)
		if err != nil {
			panic(err)
		}
		var wide []float64
		for _, x := range t.Numbers() {
			wide = append(wide, float64(x))
		}
		n.tensor[s.Name] = wide
	}
	return n
}

// logits returns the logits at each position.
func (n *naive) logits(tokens []uint32) [][]float64 {
	c := n.cfg
	var x [][]float64
	for _, t := range tokens {
		x = append(x, append([]float64(nil), n.tensor["model.embed_tokens.weight"][int(t)*c.Width:][:c.Width]...))
	}
	for l := range c.Layers {
		w := func(name string) []float64 {
			return n.tensor["model.layers."+string(rune('0'+l))+"."+name]
		}
		var q, k, v [][]float64
		for p := range x {
			h := n.norm(x[p], w("input_layernorm.weight"))
			q = append(q, n.turn(linear(h, w("self_attn.q_proj.weight"), w("self_attn.q_proj.bias")), p))
			k = append(k, n.turn(linear(h, w("self_attn.k_proj.weight"), w("self_attn.k_proj.bias")), p))
			v = append(v, linear(h, w("self_attn.v_proj.weight"), w("self_attn.v_proj.bias")))
		}
		for p := range x {
			var seen []float64
			for head := range c.Heads {
				seen = append(seen, n.head(q, k, v, p, head)...)
			}
			add(x[p], linear(seen, w("self_attn.o_proj.weight"), nil))
			h := n.norm(x[p], w("post_attention_layernorm.weight"))
			gate, up := linear(h, w("mlp.gate_proj.weight"), nil), linear(h, w("mlp.up_proj.weight"), nil)
			for i, g := range gate {
				gate[i] = g / (1 + math.Exp(-g)) * up[i]
			}
			add(x[p], linear(gate, w("mlp.down_proj.weight"), nil))
		}
	}
	output := n.tensor["lm_head.weight"]
	if c.Tied {
		output = n.tensor["model.embed_tokens.weight"]
	}
	var logits [][]float64
	for p := range x {
		logits = append(logits, linear(n.norm(x[p], n.tensor["model.norm.weight"]), output, nil))
	}
	return logits
}

func (n *naive) head(q, k, v [][]float64, p, head int) []float64 {
	size := n.cfg.HeadSize
	kv := head / (n.cfg.Heads / n.cfg.KVHeads)
	var weights []float64
	var sum float64
	for past := range p + 1 {
		var dot float64
		for i := range size {
			dot += q[p][head*size+i] * k[past][kv*size+i]
		}
		e := math.Exp(dot / math.Sqrt(float64(size)))
		weights = append(weights, e)
		sum += e
	}
	y := make([]float64, size)
	for past, e := range weights {
		for i := range y {
			y[i] += e / sum * v[past][kv*size+i]
		}
	}
	return y
}

// turn applies RoPE to every head of a row.
func (n *naive) turn(row []float64, position int) []float64 {
	size := n.cfg.HeadSize
	for h := 0; h < len(row); h += size {
		for i := range size / 2 {
			f := n.frequency(i)
			sin, cos := math.Sincos(float64(position) * f)
			a, b := row[h+i], row[h+i+size/2]
			row[h+i], row[h+i+size/2] = a*cos-b*sin, b*cos+a*sin
		}
	}
	return row
}

func (n *naive) frequency(i int) float64 {
	s := n.cfg.RopeScaling
	f := math.Pow(n.cfg.RopeBase, -float64(2*i)/float64(n.cfg.HeadSize))
	switch s.Type {
	case "linear":
		return f / s.Factor
	case "factors":
		return f / float64(s.Factors[i])
	case "llama3":
		length := 2 * math.Pi / f
		if length < float64(s.Original)/s.HighFrequency {
			return f
		}
		if length > float64(s.Original)/s.LowFrequency {
			return f / s.Factor
		}
		smooth := (float64(s.Original)/length - s.LowFrequency) / (s.HighFrequency - s.LowFrequency)
		return (1-smooth)*f/s.Factor + smooth*f
	}
	return f
}

func (n *naive) norm(x, weights []float64) []float64 {
	var squares float64
	for _, v := range x {
		squares += v * v
	}
	root := math.Sqrt(squares/float64(len(x)) + float64(n.cfg.NormEps))
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / root * weights[i]
	}
	return y
}

func linear(x, w, bias []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for o := range y {
		for i, v := range x {
			y[o] += v * w[o*len(x)+i]
		}
		if bias != nil {
			y[o] += bias[o]
		}
	}
	return y
}

func add(x, y []float64) {
	for i, v := range y {
		x[i] += v
	}
}
