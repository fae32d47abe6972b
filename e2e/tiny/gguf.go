package main

import (
	"bytes"
	"strings"

	"github.com/dynago/dynago/engine/tiny/gguf"
)

// The kinds of tokens in a GGUF file.
const plainToken, controlToken int32 = 1, 3

// gguf is the model as one file.
func (all tensors) gguf(v *vocabulary) ([]byte, error) {
	var list []gguf.Source
	for _, t := range all {
		list = append(list, gguf.Source{Name: t.short, Type: gguf.F32, Shape: t.shape(), Data: t.append(nil)})
	}
	var b bytes.Buffer
	err := gguf.Write(&b, describe(v), list)
	return b.Bytes(), err
}

// describe returns the metadata.
func describe(v *vocabulary) gguf.Metadata {
	kinds := make([]int32, v.size())
	for i := range kinds {
		kinds[i] = plainToken
		if i >= v.size()-len(specials) {
			kinds[i] = controlToken
		}
	}
	merges := make([]string, len(v.merges))
	for i, m := range v.merges {
		merges[i] = strings.Join(m[:], " ")
	}
	return gguf.Metadata{
		"general.architecture":                   "llama",
		"general.name":                           "tiny",
		"llama.context_length":                   uint32(positions),
		"llama.embedding_length":                 uint32(width),
		"llama.block_count":                      uint32(layers),
		"llama.feed_forward_length":              uint32(inner),
		"llama.attention.head_count":             uint32(heads),
		"llama.attention.head_count_kv":          uint32(heads),
		"llama.attention.layer_norm_rms_epsilon": float32(epsilon),
		"llama.rope.dimension_count":             uint32(width / heads),
		"llama.rope.freq_base":                   float32(theta),
		"llama.vocab_size":                       uint32(v.size()),
		"tokenizer.ggml.model":                   "gpt2",
		"tokenizer.ggml.pre":                     "gpt-2",
		"tokenizer.ggml.tokens":                  v.tokens,
		"tokenizer.ggml.token_type":              kinds,
		"tokenizer.ggml.merges":                  merges,
		"tokenizer.ggml.eos_token_id":            uint32(v.id(end)),
		"tokenizer.ggml.padding_token_id":        uint32(v.id(specials[0])),
		"tokenizer.ggml.add_bos_token":           false,
		"tokenizer.chat_template":                template,
	}
}
