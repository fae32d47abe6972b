package weights

import (
	"fmt"
	"strconv"
	"strings"
)

// outer and inner are the tensors of a GGUF file and what Hugging Face calls
// them: those of the model, and those of each layer, which in one are named
// blk.0.attn_q.weight and in the other model.layers.0.self_attn.q_proj.weight.
var (
	outer = map[string]string{
		"token_embd.weight":  "model.embed_tokens.weight",
		"output_norm.weight": "model.norm.weight",
		"output.weight":      "lm_head.weight",
	}
	inner = map[string]string{
		"attn_norm.weight":   "input_layernorm.weight",
		"attn_q.weight":      "self_attn.q_proj.weight",
		"attn_k.weight":      "self_attn.k_proj.weight",
		"attn_v.weight":      "self_attn.v_proj.weight",
		"attn_q.bias":        "self_attn.q_proj.bias",
		"attn_k.bias":        "self_attn.k_proj.bias",
		"attn_v.bias":        "self_attn.v_proj.bias",
		"attn_output.weight": "self_attn.o_proj.weight",
		"ffn_norm.weight":    "post_attention_layernorm.weight",
		"ffn_gate.weight":    "mlp.gate_proj.weight",
		"ffn_up.weight":      "mlp.up_proj.weight",
		"ffn_down.weight":    "mlp.down_proj.weight",
	}
)

// longName returns what Hugging Face calls a tensor of a GGUF file, or "" if it
// has none such.
func longName(name string) string {
	rest, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return outer[name]
	}
	number, rest, _ := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	if err != nil || inner[rest] == "" || number != strconv.Itoa(layer) {
		return ""
	}
	return fmt.Sprintf("model.layers.%d.%s", layer, inner[rest])
}

// shortName is its inverse.
func shortName(name string) string {
	rest, ok := strings.CutPrefix(name, "model.layers.")
	if !ok {
		return invert(outer, name)
	}
	layer, rest, _ := strings.Cut(rest, ".")
	return fmt.Sprintf("blk.%s.%s", layer, invert(inner, rest))
}

func invert(names map[string]string, value string) string {
	for key, v := range names {
		if v == value {
			return key
		}
	}
	return ""
}
