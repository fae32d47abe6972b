package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dynago/dynago/engine/tiny/gguf"
	"github.com/dynago/dynago/tokenizer"
)

// The kinds of tokens in a GGUF file.
const (
	normalToken  int32 = 1
	controlToken int32 = 3
	userToken    int32 = 4 // cut out of the text like a control token, and shown
	unusedToken  int32 = 5
)

const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// splits are the names that llama.cpp has for how text is cut before bytes are
// merged, by the stages and the normalizer that tokenizer.json has.
var splits = map[string]string{
	"gpt2":            "gpt-2",
	"digits gpt2":     "smollm",
	"digits gpt2 NFC": "command-r",
	"qwen2":           "qwen2",
	"qwen2 NFC":       "qwen2",
	"llama3":          "llama-bpe",
}

var patterns = map[string]string{
	gpt2Pattern:             "gpt2",
	tokenizer.PatternQwen2:  "qwen2",
	tokenizer.PatternLlama3: "llama3",
}

// stage is a pre-tokenizer or a normalizer of tokenizer.json.
type stage struct {
	Type       string  `json:"type"`
	Stages     []stage `json:"pretokenizers"`
	Individual bool    `json:"individual_digits"`
	Prefix     bool    `json:"add_prefix_space"`
	UseRegex   *bool   `json:"use_regex"`
	Pattern    struct{ Regex string }
}

// names are those of the stages, one after the other.
func (s *stage) names() ([]string, error) {
	switch {
	case s.Type == "Sequence":
		var list []string
		for i := range s.Stages {
			names, err := s.Stages[i].names()
			if err != nil {
				return nil, err
			}
			list = append(list, names...)
		}
		return list, nil
	case s.Type == "Digits" && s.Individual:
		return []string{"digits"}, nil
	case s.Type == "ByteLevel" && !s.Prefix && s.UseRegex != nil && !*s.UseRegex:
		return nil, nil
	case s.Type == "ByteLevel" && !s.Prefix:
		return []string{"gpt2"}, nil
	case s.Type == "Split" && patterns[s.Pattern.Regex] != "":
		return []string{patterns[s.Pattern.Regex]}, nil
	}
	return nil, fmt.Errorf("pre_tokenizer: %s: llama.cpp cuts text in other ways", s.Type)
}

// Vocabulary returns the keys of a GGUF file for a tokenizer.json with a
// byte-level BPE, of as many tokens as the model has rows. Which tokens begin and
// end a text, and the chat template, are for the caller to add.
func Vocabulary(text []byte, rows int) (gguf.Metadata, error) {
	var file struct {
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
			Special bool   `json:"special"`
		} `json:"added_tokens"`
		Normalizer   *stage `json:"normalizer"`
		PreTokenizer *stage `json:"pre_tokenizer"`
		Model        struct {
			Type   string            `json:"type"`
			Vocab  map[string]int    `json:"vocab"`
			Merges []json.RawMessage `json:"merges"`
		} `json:"model"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if file.Model.Type != "BPE" || file.PreTokenizer == nil {
		return nil, errors.New("want a byte-level BPE")
	}
	names, err := file.PreTokenizer.names()
	if err != nil {
		return nil, err
	}
	if file.Normalizer != nil {
		names = append(names, file.Normalizer.Type)
	}
	split, ok := splits[strings.Join(names, " ")]
	if !ok {
		return nil, fmt.Errorf("text is cut by %s: llama.cpp has no name for that", strings.Join(names, " "))
	}
	tokens, kinds := make([]string, rows), make([]int32, rows)
	set := func(id int, content string, kind int32) error {
		if id < 0 || id >= rows {
			return fmt.Errorf("token %q has the id %d: want one below %d, since the model has so many rows", content, id, rows)
		}
		tokens[id], kinds[id] = content, kind
		return nil
	}
	for content, id := range file.Model.Vocab {
		if err := set(id, content, normalToken); err != nil {
			return nil, err
		}
	}
	for _, t := range file.Added {
		kind := userToken
		if t.Special {
			kind = controlToken
		}
		if err := set(t.ID, t.Content, kind); err != nil {
			return nil, err
		}
	}
	for id := range tokens {
		if kinds[id] == 0 { // a row that no text leads to
			tokens[id], kinds[id] = fmt.Sprintf("[PAD%d]", id), unusedToken
		}
	}
	merges := make([]string, len(file.Model.Merges))
	for i, raw := range file.Model.Merges {
		if merges[i], err = merge(raw); err != nil {
			return nil, fmt.Errorf("model.merges[%d]: %w", i, err)
		}
	}
	return gguf.Metadata{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": split, "tokenizer.ggml.tokens": tokens,
		"tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": merges, "tokenizer.ggml.add_bos_token": false,
	}, nil
}

// merge reads a merge in either form: a text with a blank between the two, or a
// list of them.
func merge(raw json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var pair [2]string
	err := json.Unmarshal(raw, &pair)
	return pair[0] + " " + pair[1], err
}
