package main

import (
	"encoding/json"
	"strings"
)

// texts are what the vocabulary has tokens for, besides single bytes. Each is
// built from its left end, byte by byte, and every step is a token too.
var texts = []string{
	" the", " and", " that", " with", " for", " you", " are", " is", " it", " to",
	" of", " in", " on", " a", " we", " what", " tell", "ing", "tion", "er", "ed",
	"user", "assistant", "system", "hello", "world", "word", "number",
}

// specials end the vocabulary. None is ever made of plain text.
var specials = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}

const end = "<|im_end|>"

// template is the chat template of both forms.
const template = `{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// vocabulary is a byte-level BPE: tokens by id, and merges by rank.
type vocabulary struct {
	tokens []string // in the letters that stand for bytes
	plain  []bool   // made of printable ASCII alone
	merges [][2]string
}

// size is the number of tokens that the weights are made for.
func (v *vocabulary) size() int { return len(v.tokens) }

func words() *vocabulary {
	v := &vocabulary{}
	known := map[string]bool{}
	add := func(token string, plain bool) {
		known[token] = true
		v.tokens, v.plain = append(v.tokens, token), append(v.plain, plain)
	}
	for b := range 256 {
		add(string(letter(byte(b))), ' ' <= b && b <= '~')
	}
	for _, text := range texts {
		left := string(letter(text[0]))
		for _, b := range []byte(text[1:]) {
			right := string(letter(b))
			if !known[left+right] {
				v.merges = append(v.merges, [2]string{left, right})
				add(left+right, true)
			}
			left += right
		}
	}
	for _, s := range specials {
		add(s, false)
	}
	return v
}

// letter is the letter by which byte-level BPE writes a byte: itself where it can
// be seen, else one from 256 upwards, in order.
func letter(b byte) rune {
	seen := func(b byte) bool {
		return '!' <= b && b <= '~' || 0xa1 <= b && b <= 0xac || b >= 0xae
	}
	if seen(b) {
		return rune(b)
	}
	r := rune(256)
	for c := range b {
		if !seen(c) {
			r++
		}
	}
	return r
}

func (v *vocabulary) id(token string) int {
	for i, t := range v.tokens {
		if t == token {
			return i
		}
	}
	panic("no such token: " + token)
}

// tokenizer is tokenizer.json.
func (v *vocabulary) tokenizer() ([]byte, error) {
	ids := map[string]int{}
	var added []map[string]any
	for i, t := range v.tokens {
		if i < v.size()-len(specials) {
			ids[t] = i
			continue
		}
		added = append(added, map[string]any{
			"id": i, "content": t, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	merges := make([]string, len(v.merges))
	for i, m := range v.merges {
		merges[i] = strings.Join(m[:], " ")
	}
	bytes := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	return json.Marshal(map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "post_processor": nil,
		"added_tokens": added, "pre_tokenizer": bytes, "decoder": bytes,
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "fuse_unk": false, "byte_fallback": false,
			"continuing_subword_prefix": nil, "end_of_word_suffix": nil, "vocab": ids, "merges": merges,
		},
	})
}

// settings is tokenizer_config.json.
func (v *vocabulary) settings() ([]byte, error) {
	return json.Marshal(map[string]any{
		"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": positions,
		"eos_token": end, "pad_token": specials[0], "chat_template": template,
		"clean_up_tokenization_spaces": false,
	})
}
