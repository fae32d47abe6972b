package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// addedTokens are the tokens behind those of the vocabulary. Special ones are
// structure; the tags are text that the chat template and the parsers know.
var addedTokens = []struct {
	content string
	special bool
}{
	{"<|endoftext|>", true},
	{"<|im_start|>", true},
	{"<|im_end|>", true},
	{"<think>", false},
	{"</think>", false},
	{"<tool_call>", false},
	{"</tool_call>", false},
	{"<tool_response>", false},
	{"</tool_response>", false},
}

type object map[string]any

// tokenizerJSON writes the merges as a tokenizer.json of the Hugging Face form.
func tokenizerJSON(merges []merge) ([]byte, error) {
	alphabet := byteAlphabet()
	spell := func(token string) string {
		var s strings.Builder
		for _, b := range []byte(token) {
			s.WriteRune(alphabet[b])
		}
		return s.String()
	}
	var tokens, pairs []string
	for _, r := range slices.Sorted(maps.Values(alphabet)) {
		tokens = append(tokens, string(r))
	}
	made := map[string]bool{}
	for _, m := range merges {
		if token := m.left + m.right; !made[token] {
			made[token] = true
			tokens = append(tokens, spell(token))
		}
		pairs = append(pairs, spell(m.left)+" "+spell(m.right))
	}
	var added []object
	for i, t := range addedTokens {
		added = append(added, object{
			"id": len(tokens) + i, "content": t.content, "special": t.special,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	vocab, err := vocabObject(tokens)
	if err != nil {
		return nil, err
	}
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	return json.Marshal(object{
		"version":      "1.0",
		"truncation":   nil,
		"padding":      nil,
		"added_tokens": added,
		"normalizer":   object{"type": "NFC"},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "pattern": object{"Regex": splitPattern}, "behavior": "Isolated", "invert": false},
			byteLevel,
		}},
		"post_processor": byteLevel,
		"decoder":        byteLevel,
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "", "end_of_word_suffix": "",
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
			"vocab": vocab, "merges": pairs,
		},
	}, json.Deterministic(true))
}

// vocabObject returns the ids by token, in the order of the ids.
func vocabObject(tokens []string) (jsontext.Value, error) {
	var out bytes.Buffer
	enc := jsontext.NewEncoder(&out)
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return nil, err
	}
	for id, token := range tokens {
		if err := enc.WriteToken(jsontext.String(token)); err != nil {
			return nil, fmt.Errorf("token %q: %w", token, err)
		}
		if err := enc.WriteToken(jsontext.Int(int64(id))); err != nil {
			return nil, fmt.Errorf("token %q: %w", token, err)
		}
	}
	err := enc.WriteToken(jsontext.EndObject)
	return bytes.TrimSpace(out.Bytes()), err
}

// byteAlphabet returns the printable character that a byte-level vocabulary
// writes for each byte: printable ones of Latin-1 stand for themselves, and the
// others for the characters from U+0100 on.
func byteAlphabet() map[byte]rune {
	alphabet := map[byte]rune{}
	next := rune(0x100)
	for b := range 256 {
		if b > ' ' && b < 0x7f || b > 0xa0 && b != 0xad {
			alphabet[byte(b)] = rune(b)
			continue
		}
		alphabet[byte(b)] = next
		next++
	}
	return alphabet
}
