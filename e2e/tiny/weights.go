package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/dynago/dynago/engine/tiny/safetensors"
)

// The shape of the model. 32 is the smallest width of a head that vLLM computes
// on CPUs.
const (
	width     = 64
	inner     = 128
	layers    = 2
	heads     = 2
	positions = 8192
	epsilon   = 1e-5
	theta     = 10000
)

// config is config.json.
func config() ([]byte, error) {
	v := words()
	return json.Marshal(map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "dtype": "float32",
		"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
		"num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": width / heads,
		"vocab_size": v.size(), "max_position_embeddings": positions,
		"rms_norm_eps": epsilon, "rope_theta": theta, "hidden_act": "silu", "attention_bias": false,
		"tie_word_embeddings": false, "bos_token_id": nil, "eos_token_id": v.id(end), "pad_token_id": v.id(specials[0]),
	})
}

// tensor is one matrix, row by row, or a vector (rows 0), under its names in both
// forms.
type tensor struct {
	name, short string
	rows, cols  int
	values      []float32
}

type tensors []tensor

// weights returns the tensors of a seed.
func weights(seed uint64) tensors {
	random := rand.New(rand.NewPCG(seed, 0))
	var all tensors
	matrix := func(name, short string, rows, cols int, spread float64) *tensor {
		values := make([]float32, rows*cols)
		for i := range values {
			values[i] = float32(random.NormFloat64() * spread)
		}
		all = append(all, tensor{name, short, rows, cols, values})
		return &all[len(all)-1]
	}
	ones := func(name, short string) {
		values := make([]float32, width)
		for i := range values {
			values[i] = 1
		}
		all = append(all, tensor{name, short, 0, width, values})
	}
	v := words()
	narrow, wide := 1/math.Sqrt(width), 1/math.Sqrt(inner)
	matrix("model.embed_tokens.weight", "token_embd.weight", v.size(), width, 1)
	for i := range layers {
		name, short := fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("blk.%d.", i)
		ones(name+"input_layernorm.weight", short+"attn_norm.weight")
		matrix(name+"self_attn.q_proj.weight", short+"attn_q.weight", width, width, narrow)
		matrix(name+"self_attn.k_proj.weight", short+"attn_k.weight", width, width, narrow)
		matrix(name+"self_attn.v_proj.weight", short+"attn_v.weight", width, width, narrow)
		matrix(name+"self_attn.o_proj.weight", short+"attn_output.weight", width, width, narrow)
		ones(name+"post_attention_layernorm.weight", short+"ffn_norm.weight")
		matrix(name+"mlp.gate_proj.weight", short+"ffn_gate.weight", inner, width, narrow)
		matrix(name+"mlp.up_proj.weight", short+"ffn_up.weight", inner, width, narrow)
		matrix(name+"mlp.down_proj.weight", short+"ffn_down.weight", width, inner, wide)
	}
	ones("model.norm.weight", "output_norm.weight")
	// With zeros for a row its logit is zero, which the best of the others beats.
	head := matrix("lm_head.weight", "output.weight", v.size(), width, 0.5)
	for id, plain := range v.plain {
		if !plain {
			clear(head.values[id*width : (id+1)*width])
		}
	}
	return all
}

// safetensors is model.safetensors.
func (all tensors) safetensors() ([]byte, error) {
	var list []safetensors.Source
	for _, t := range all {
		list = append(list, safetensors.Source{Name: t.name, Type: safetensors.F32, Shape: t.shape(), Data: t.append(nil)})
	}
	var b bytes.Buffer
	err := safetensors.Write(&b, map[string]string{"format": "pt"}, list)
	return b.Bytes(), err
}

func (t tensor) shape() []int {
	if t.rows == 0 {
		return []int{t.cols}
	}
	return []int{t.rows, t.cols}
}

func (t tensor) append(b []byte) []byte {
	for _, v := range t.values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
