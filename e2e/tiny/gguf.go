package main

import (
	"encoding/binary"
	"math"
	"strings"
)

// The types of values and of tokens in a GGUF file, and what its tensors are
// aligned to: see docs/gguf.md of ggml.
const (
	ggufUint32, ggufInt32, ggufFloat32, ggufBool, ggufString, ggufArray = 4, 5, 6, 7, 8, 9

	plainToken, controlToken = 1, 3

	alignment = 32
)

// writer appends the parts of a GGUF file.
type writer struct {
	b    []byte
	keys uint64
}

func (w *writer) u32(v uint32) { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *writer) u64(v uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, v) }

func (w *writer) text(s string) {
	w.u64(uint64(len(s)))
	w.b = append(w.b, s...)
}

// key writes a pair of the metadata.
func (w *writer) key(name string, value any) {
	w.keys++
	w.text(name)
	switch value := value.(type) {
	case int:
		w.u32(ggufUint32)
		w.u32(uint32(value))
	case float64:
		w.u32(ggufFloat32)
		w.u32(math.Float32bits(float32(value)))
	case bool:
		w.u32(ggufBool)
		w.b = append(w.b, map[bool]byte{true: 1}[value])
	case string:
		w.u32(ggufString)
		w.text(value)
	case []string:
		w.array(ggufString, len(value))
		for _, s := range value {
			w.text(s)
		}
	case []int32:
		w.array(ggufInt32, len(value))
		for _, v := range value {
			w.u32(uint32(v))
		}
	default:
		panic("no such type in GGUF")
	}
}

func (w *writer) array(of uint32, n int) {
	w.u32(ggufArray)
	w.u32(of)
	w.u64(uint64(n))
}

// pad fills up to where a tensor may begin.
func (w *writer) pad() { w.b = append(w.b, make([]byte, -len(w.b)&(alignment-1))...) }

// gguf is the model as one file, version 3.
func gguf(v *vocabulary, all tensors) []byte {
	var keys writer
	describe(&keys, v)

	var places, data writer
	for _, t := range all {
		places.text(t.short)
		if t.rows == 0 {
			places.u32(1)
			places.u64(uint64(t.cols))
		} else { // the fastest dimension stands first
			places.u32(2)
			places.u64(uint64(t.cols))
			places.u64(uint64(t.rows))
		}
		places.u32(0) // 32-bit floats
		places.u64(uint64(len(data.b)))
		data.b = t.append(data.b)
		data.pad()
	}

	var w writer
	w.b = append(w.b, "GGUF"...)
	w.u32(3)
	w.u64(uint64(len(all)))
	w.u64(keys.keys)
	w.b = append(append(w.b, keys.b...), places.b...)
	w.pad()
	return append(w.b, data.b...)
}

// describe writes the metadata.
func describe(w *writer, v *vocabulary) {
	w.key("general.architecture", "llama")
	w.key("general.name", "tiny")
	w.key("general.alignment", alignment)
	w.key("llama.context_length", positions)
	w.key("llama.embedding_length", width)
	w.key("llama.block_count", layers)
	w.key("llama.feed_forward_length", inner)
	w.key("llama.attention.head_count", heads)
	w.key("llama.attention.head_count_kv", heads)
	w.key("llama.attention.layer_norm_rms_epsilon", epsilon)
	w.key("llama.rope.dimension_count", width/heads)
	w.key("llama.rope.freq_base", float64(theta))
	w.key("llama.vocab_size", v.size())

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
	w.key("tokenizer.ggml.model", "gpt2")
	w.key("tokenizer.ggml.pre", "gpt-2")
	w.key("tokenizer.ggml.tokens", v.tokens)
	w.key("tokenizer.ggml.token_type", kinds)
	w.key("tokenizer.ggml.merges", merges)
	w.key("tokenizer.ggml.eos_token_id", v.id(end))
	w.key("tokenizer.ggml.padding_token_id", v.id(specials[0]))
	w.key("tokenizer.ggml.add_bos_token", false)
	w.key("tokenizer.chat_template", template)
}
