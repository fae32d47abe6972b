// Package prompt stands between conversations and tokens: it turns a
// chat.Request into the ids that an engine is given, and an engine's ids back
// into text. Template choice, token data, context limits and stop conditions
// are decided here and nowhere else, so that every engine behaves the same.
//
// The one idea: text and ids are never separated. An id travels with the piece
// of text that releases its last byte, through every stage that holds text
// back, and what is counted, reported or replayed is therefore exact.
package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/tokenizer"
)

// Model is what the prompt stage knows about one model. It is immutable and
// safe for concurrent use.
type Model struct {
	Tokenizer *tokenizer.Tokenizer
	// Template is nil for a model without a chat template; it completes, and
	// does not chat.
	Template *chattemplate.Template
	// Family is the grammar of the model's output.
	Family parser.Family
	// EOS are the ids that end a turn; they stay hidden from clients.
	EOS []uint32
	// ContextLength is how many tokens prompt and answer may have together; 0
	// is unknown, and then nothing is checked.
	ContextLength int
	// MaxNewTokens is the model's own default for the length of an answer; 0 is
	// none.
	MaxNewTokens int
	// AllowSpecialInContent lets control tokens that clients spell in messages,
	// results and tools have their effect, as is common elsewhere. Without it
	// they are text like any other.
	AllowSpecialInContent bool
	// Cache remembers the ids of messages; nil remembers nothing.
	Cache *Cache
	// Turns remembers the ids of answers; nil remembers nothing.
	Turns *Turns

	longest int // token of the vocabulary, in bytes
	encoder *encoder
}

// Parsers name the families of tool calls and of reasoning: empty or "auto" is
// what the chat template shows, "none" is plain text.
type Parsers struct{ Tool, Reasoning string }

// Load reads a model from the files of a Hugging Face snapshot. The function
// read returns a file by name, or an error that is fs.ErrNotExist for one that
// the model does not have; only tokenizer.json is required.
func Load(read func(name string) ([]byte, error), parsers Parsers) (*Model, error) {
	var (
		tokenizerConfig struct {
			ChatTemplate   json.RawMessage             `json:"chat_template"`
			BOS            specialToken                `json:"bos_token"`
			EOS            specialToken                `json:"eos_token"`
			UNK            specialToken                `json:"unk_token"`
			AddedTokens    map[uint32]addedTokenConfig `json:"added_tokens_decoder"`
			ModelMaxLength float64                     `json:"model_max_length"`
		}
		generationConfig struct {
			EOS          tokenIDs `json:"eos_token_id"`
			MaxNewTokens int      `json:"max_new_tokens"`
		}
		config struct {
			EOS          tokenIDs `json:"eos_token_id"`
			MaxPositions int      `json:"max_position_embeddings"`
			Text         struct {
				MaxPositions int `json:"max_position_embeddings"`
			} `json:"text_config"`
		}
	)
	raw, err := read("tokenizer.json")
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	for name, into := range map[string]any{
		"tokenizer_config.json":  &tokenizerConfig,
		"generation_config.json": &generationConfig,
		"config.json":            &config,
	} {
		if err := readJSON(read, name, into); err != nil {
			return nil, err
		}
	}

	m := &Model{ContextLength: max(config.MaxPositions, config.Text.MaxPositions), MaxNewTokens: generationConfig.MaxNewTokens}
	if m.Tokenizer, err = tokenizer.Load(raw); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	special := map[uint32]string{}
	for id, t := range tokenizerConfig.AddedTokens {
		if t.Special {
			special[id] = t.Content
		}
	}
	m.Tokenizer = m.Tokenizer.AddSpecial(special)
	m.encoder, m.Cache, m.Turns = newEncoder(m.Tokenizer), NewCache(DefaultCacheBytes), NewTurns(DefaultTurnBytes)
	for id := range m.Tokenizer.Size() {
		m.longest = max(m.longest, len(m.Tokenizer.Bytes(uint32(id))))
	}
	// Snapshots write 1e30 here for "no limit".
	if m.ContextLength == 0 && tokenizerConfig.ModelMaxLength < 1e9 {
		m.ContextLength = int(tokenizerConfig.ModelMaxLength)
	}

	m.EOS = append(m.EOS, generationConfig.EOS...)
	if len(m.EOS) == 0 {
		m.EOS = append(m.EOS, config.EOS...)
	}
	if id, ok := m.Tokenizer.ID(string(tokenizerConfig.EOS)); ok && tokenizerConfig.EOS != "" {
		m.EOS = append(m.EOS, id)
	}
	slices.Sort(m.EOS)
	m.EOS = slices.Compact(m.EOS)

	named, err := templates(read, tokenizerConfig.ChatTemplate)
	if err != nil {
		return nil, err
	}
	if len(named) > 0 {
		m.Template, err = chattemplate.CompileNamed(named, chattemplate.Config{
			BOS: string(tokenizerConfig.BOS),
			EOS: string(tokenizerConfig.EOS),
			UNK: string(tokenizerConfig.UNK),
		})
		if err != nil {
			return nil, fmt.Errorf("chat template: %w", err)
		}
	}
	m.Family, err = parser.Detect(named["default"]).With(parsers.Tool, parsers.Reasoning)
	return m, err
}

// templates returns the chat templates by name. A template file of its own
// beats the one inside tokenizer_config.json.
func templates(read func(string) ([]byte, error), inConfig json.RawMessage) (map[string]string, error) {
	switch b, err := read("chat_template.jinja"); {
	case err == nil:
		return map[string]string{"default": string(b)}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("chat_template.jinja: %w", err)
	}
	var file struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	if err := readJSON(read, "chat_template.json", &file); err != nil {
		return nil, err
	}
	if len(file.ChatTemplate) > 0 {
		inConfig = file.ChatTemplate
	}
	if len(inConfig) == 0 || string(inConfig) == "null" {
		return nil, nil
	}
	var one string
	if json.Unmarshal(inConfig, &one) == nil {
		return map[string]string{"default": one}, nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(inConfig, &list); err != nil {
		return nil, fmt.Errorf("chat_template: want a string or a list of {name, template}: %w", err)
	}
	named := make(map[string]string, len(list))
	for _, t := range list {
		named[t.Name] = t.Template
	}
	if _, ok := named["default"]; !ok {
		return nil, errors.New(`chat_template: the list has no template named "default"`)
	}
	return named, nil
}

func readJSON(read func(string) ([]byte, error), name string, into any) error {
	b, err := read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

type addedTokenConfig struct {
	Content string `json:"content"`
	Special bool   `json:"special"`
}

// specialToken is a token's text, written as a string, as an object, or null.
type specialToken string

func (t *specialToken) UnmarshalJSON(b []byte) error {
	var object struct {
		Content string `json:"content"`
	}
	if len(b) > 0 && b[0] == '{' {
		err := json.Unmarshal(b, &object)
		*t = specialToken(object.Content)
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// tokenIDs is one id, a list of ids, or null.
type tokenIDs []uint32

func (t *tokenIDs) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]uint32)(t))
	}
	var one *uint32
	err := json.Unmarshal(b, &one)
	if one != nil {
		*t = tokenIDs{*one}
	}
	return err
}
