package weights_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/weights"
)

// What the settings of models say, in the forms that they have had.
func TestParseConfig(t *testing.T) {
	scaled := llama.RopeScaling{Type: "llama3", Factor: 8, LowFrequency: 1, HighFrequency: 4, Original: 8192}
	for name, tc := range map[string]struct {
		text string
		want llama.Config
	}{
		"Llama 3.1": {
			text: `{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
				"eos_token_id": [128001, 128008], "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
				"max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
				"num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
				"high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
				"tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256}`,
			want: llama.Config{Vocab: 128256, Width: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadSize: 128, Hidden: 14336, Context: 131072, RopeBase: 500000, NormEps: 1e-5, RopeScaling: scaled},
		},
		"transformers 5": {
			text: `{"model_type": "llama", "dtype": "float32", "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192, "layer_types": null,
				"max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
				"rope_parameters": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
				"rope_theta": 500000.0, "rope_type": "llama3"}, "tie_word_embeddings": true, "vocab_size": 128256}`,
			want: llama.Config{Vocab: 128256, Width: 2048, Layers: 16, Heads: 32, KVHeads: 8, HeadSize: 64, Hidden: 8192, Context: 131072, RopeBase: 500000, NormEps: 1e-5, RopeScaling: scaled, Tied: true},
		},
		"Llama 1, before groups": {
			text: `{"model_type": "llama", "hidden_size": 288, "intermediate_size": 768, "max_position_embeddings": 2048, "num_attention_heads": 6,
				"num_hidden_layers": 6, "pad_token_id": -1, "rope_scaling": null, "vocab_size": 32000}`,
			want: llama.Config{Vocab: 32000, Width: 288, Layers: 6, Heads: 6, KVHeads: 6, HeadSize: 48, Hidden: 768, Context: 2048, RopeBase: 10000, NormEps: 1e-6},
		},
		"linear, as it was named first": {
			text: `{"model_type": "llama", "hidden_size": 288, "intermediate_size": 768, "max_position_embeddings": 2048, "num_attention_heads": 6,
				"num_hidden_layers": 6, "rope_scaling": {"type": "linear", "factor": 4}, "vocab_size": 32000}`,
			want: llama.Config{Vocab: 32000, Width: 288, Layers: 6, Heads: 6, KVHeads: 6, HeadSize: 48, Hidden: 768, Context: 2048, RopeBase: 10000, NormEps: 1e-6, RopeScaling: llama.RopeScaling{Type: "linear", Factor: 4}},
		},
		"Mistral without a window": {
			text: `{"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
				"num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null, "vocab_size": 32768}`,
			want: llama.Config{Vocab: 32768, Width: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadSize: 128, Hidden: 14336, Context: 32768, RopeBase: 1e6, NormEps: 1e-5},
		},
		"Mistral whose window is its context": {
			text: `{"model_type": "mistral", "hidden_size": 64, "intermediate_size": 64, "max_position_embeddings": 4096, "num_attention_heads": 2,
				"num_hidden_layers": 1, "num_key_value_heads": 1, "vocab_size": 100}`,
			want: llama.Config{Vocab: 100, Width: 64, Layers: 1, Heads: 2, KVHeads: 1, HeadSize: 32, Hidden: 64, Context: 4096, RopeBase: 10000, NormEps: 1e-6},
		},
		"Qwen 2.5": {
			text: `{"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21,
				"num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
				"sliding_window": 32768, "tie_word_embeddings": true, "use_sliding_window": false, "layer_types": ["full_attention"], "vocab_size": 151936}`,
			want: llama.Config{Vocab: 151936, Width: 896, Layers: 24, Heads: 14, KVHeads: 2, HeadSize: 64, Hidden: 4864, Context: 32768, RopeBase: 1e6, NormEps: 1e-6, Tied: true, QKVBias: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := weights.ParseConfig([]byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestParseConfigErrors(t *testing.T) {
	for want, replaced := range map[string][]string{
		`model_type: "gemma": want llama, mistral or qwen2`:                                                  {"model_type", `"gemma"`},
		`model_type: "": want llama, mistral or qwen2`:                                                       {"model_type", ""},
		"model_type: 1: want a text":                                                                         {"model_type", "1"},
		"vocab_size: absent: want a whole number from 1 to 2147483647":                                       {"vocab_size", ""},
		"vocab_size: null: want a whole number from 1 to 2147483647":                                         {"vocab_size", "null"},
		`hidden_size: "64": want a number`:                                                                   {"hidden_size", `"64"`},
		"num_hidden_layers: 1.5: want a whole number from 1 to 2147483647":                                   {"num_hidden_layers", "1.5"},
		"num_attention_heads: -4: want a whole number from 1 to 2147483647":                                  {"num_attention_heads", "-4"},
		"num_key_value_heads: 0: want a whole number from 1 to 2147483647":                                   {"num_key_value_heads", "0"},
		"max_position_embeddings: 1e300: want a whole number from 1 to 2147483647":                           {"max_position_embeddings", "1e300"},
		"tie_word_embeddings: 1: want true or false":                                                         {"tie_word_embeddings", "1"},
		`hidden_act: "gelu": want "silu", for nothing else is computed`:                                      {"hidden_act", `"gelu"`},
		"attention_bias: true: want false, for nothing else is computed":                                     {"attention_bias", "true"},
		"mlp_bias: true: want false, for nothing else is computed":                                           {"mlp_bias", "true"},
		"partial_rotary_factor: 0.5: want 1, for nothing else is computed":                                   {"partial_rotary_factor", "0.5"},
		`quantization_config: {"bits": 4, "quant_method": "gptq", "of": "aaaaaaaaaaaaaaaaa…: want it absent`: {"quantization_config", `{"bits": 4, "quant_method": "gptq", "of": "` + strings.Repeat("a", 99) + `"}`},
		`layer_types: ["sliding_attention"]: want full_attention for all layers, not "sliding_attention"`:    {"layer_types", `["sliding_attention"]`},
		"sliding_window: 8: want null, or no less than max_position_embeddings (64)":                         {"sliding_window", "8"},
		"sliding_window: absent: want null, or no less than max_position_embeddings (9999)":                  {"model_type", `"mistral"`, "max_position_embeddings", "9999"},
		"use_sliding_window: true: want false, for nothing else is computed":                                 {"model_type", `"qwen2"`, "use_sliding_window", "true"},
		"rope_scaling: 4: want an object":                                                                    {"rope_scaling", "4"},
		`rope_scaling.rope_type: "yarn": want default, linear or llama3`:                                     {"rope_scaling", `{"rope_type": "yarn"}`},
		`rope_scaling.type: "dynamic": want default, linear or llama3`:                                       {"rope_scaling", `{"type": "dynamic"}`},
		"rope_scaling.factor: 2: want 1, for nothing else is computed":                                       {"rope_scaling", `{"factor": 2}`},
		`rope_parameters.rope_type: "longrope": want default, linear or llama3`:                              {"rope_parameters", `{"rope_type": "longrope"}`},
		"rope_parameters.partial_rotary_factor: 0.5: want 1, for nothing else is computed":                   {"rope_parameters", `{"partial_rotary_factor": 0.5}`},
		"rope_scaling.original_max_position_embeddings: absent: want a whole number from 1 to 2147483647":    {"rope_scaling", `{"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}`},
	} {
		if _, err := weights.ParseConfig([]byte(configJSON(plain(), replaced...))); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	for _, text := range []string{"", "[]", "null", `"x"`, "{"} {
		if _, err := weights.ParseConfig([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "want a JSON object: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What is no setting of a model is an error, and never a panic.
func FuzzParseConfig(f *testing.F) {
	for _, c := range shapes {
		f.Add(configJSON(c))
	}
	f.Add(`{"model_type": "llama", "rope_parameters": {"full_attention": {"rope_type": "default"}}, "sliding_window": 1e999}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := weights.ParseConfig([]byte(text))
		if err != nil {
			return
		}
		if err := c.Validate(); err == nil && c.Layers < 100 {
			c.Tensors()
		}
	})
}
