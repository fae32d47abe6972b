package bpe

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Spec is a tokenizer.
type Spec struct {
	Merges []Merge // in the order of their rank
	Added  []Added
	// Pattern cuts text into words, which no merge goes beyond.
	Pattern string
	// Digits makes a word of each digit before Pattern sees the text.
	Digits bool
	// NFC composes the characters of the text first.
	NFC bool
}

// Added is a token that is found in text before anything else.
type Added struct {
	Content string
	Special bool // structure, as against text that templates and parsers know
}

type object map[string]any

// File returns the tokenizer.json. Ids are given to the 256 bytes first, then to
// the tokens in the order of the merges that make them, then to the added ones.
func (s Spec) File() ([]byte, error) {
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
	for _, m := range s.Merges {
		if token := m.Left + m.Right; !made[token] {
			made[token] = true
			tokens = append(tokens, spell(token))
		}
		pairs = append(pairs, spell(m.Left)+" "+spell(m.Right))
	}
	var added []object
	for i, t := range s.Added {
		added = append(added, object{
			"id": len(tokens) + i, "content": t.Content, "special": t.Special,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	vocab, err := vocabObject(tokens)
	if err != nil {
		return nil, err
	}
	// The words are found by the stages before it; this one spells bytes.
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	var stages []any
	if s.Digits {
		stages = append(stages, object{"type": "Digits", "individual_digits": true})
	}
	stages = append(stages,
		object{"type": "Split", "pattern": object{"Regex": s.Pattern}, "behavior": "Isolated", "invert": false},
		byteLevel,
	)
	var normalizer any
	if s.NFC {
		normalizer = object{"type": "NFC"}
	}
	return json.Marshal(object{
		"version":        "1.0",
		"truncation":     nil,
		"padding":        nil,
		"added_tokens":   added,
		"normalizer":     normalizer,
		"pre_tokenizer":  object{"type": "Sequence", "pretokenizers": stages},
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
