package openai

import (
	"strconv"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// TokenizeCall asks for the tokens of a prompt or of a conversation.
type TokenizeCall struct {
	// Request holds the model and either Prompt or Turns, Tools and
	// TemplateArgs.
	Request *chat.Request
	// GenerationPrompt says whether a conversation is rendered up to where the
	// answer would begin.
	GenerationPrompt bool
	Unknown          []string
}

// DetokenizeCall asks for the text of tokens.
type DetokenizeCall struct {
	Model   string
	Tokens  []uint32
	Unknown []string
}

var tokenizeFields = []field{
	{"model", aString, text(func(b *body) *string { return &b.model })},
	{"prompt", aString, readPrompt},
	{"messages", messageList, readMessages},
	{"tools", toolList, readTools},
	{"add_special_tokens", `{"type":"boolean","default":true}`, boolean(func(b *body) **bool { return &b.addSpecial })},
}

var detokenizeFields = []field{
	{"model", aString, text(func(b *body) *string { return &b.model })},
	{"tokens", tokenIDs, func(r *wire.Reader, b *body) (err error) {
		b.tokens = nil
		if null, err := r.Null(); null {
			return err
		}
		b.tokens, err = readIDs(r)
		return err
	}},
}

// DecodeTokenize decodes the body of a tokenize request.
func DecodeTokenize(body []byte, o Options) (*TokenizeCall, error) {
	b, err := decode(body, tokenizeTable, o)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(b.model) == "" {
		return nil, wire.Missing("model", "Model cannot be empty")
	}
	call := &TokenizeCall{
		Request:          &chat.Request{API: chat.APIChat, Model: b.model, Tools: b.tools},
		GenerationPrompt: b.addGenerationPrompt == nil || *b.addGenerationPrompt,
		Unknown:          b.unknown,
	}
	switch {
	case len(b.prompts) > 0 && len(b.messages) > 0:
		return nil, wire.Invalid("prompt", "Only one of 'prompt' and 'messages' can be given")
	case len(b.prompts) > 1 || len(b.prompts) == 1 && b.prompts[0].IDs != nil:
		return nil, wire.Invalid("prompt", "prompt must be one string")
	case len(b.prompts) == 1:
		p := b.prompts[0]
		p.NoSpecialTokens = b.addSpecial != nil && !*b.addSpecial
		call.Request.API, call.Request.Prompt = chat.APICompletions, &p
		return call, nil
	case len(b.messages) == 0:
		return nil, wire.Missing("prompt", "At least one of 'prompt' or 'messages' must be provided")
	}
	if call.Request.Turns, err = b.turns(); err != nil {
		return nil, err
	}
	call.Request.Thinking, call.Request.TemplateArgs, err = b.normaliseThinking()
	return call, err
}

// DecodeDetokenize decodes the body of a detokenize request.
func DecodeDetokenize(body []byte, o Options) (*DetokenizeCall, error) {
	b, err := decode(body, detokenizeTable, o)
	switch {
	case err != nil:
		return nil, err
	case strings.TrimSpace(b.model) == "":
		return nil, wire.Missing("model", "Model cannot be empty")
	case b.tokens == nil:
		return nil, wire.Missing("tokens", "The 'tokens' field is required: an array of token IDs")
	}
	return &DetokenizeCall{Model: b.model, Tokens: b.tokens, Unknown: b.unknown}, nil
}

// AppendTokens appends the answer to a [TokenizeCall]. A context length of 0 is
// unknown and left out.
func AppendTokens(dst []byte, tokens []uint32, contextLength int) []byte {
	dst = append(dst, `{"tokens":[`...)
	for i, id := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	dst = append(dst, `],"count":`...)
	dst = strconv.AppendInt(dst, int64(len(tokens)), 10)
	if contextLength > 0 {
		dst = append(dst, `,"max_model_len":`...)
		dst = strconv.AppendInt(dst, int64(contextLength), 10)
	}
	return append(dst, '}')
}

// AppendPrompt appends the answer to a [DetokenizeCall].
func AppendPrompt(dst []byte, prompt string) []byte {
	dst = append(dst, `{"prompt":`...)
	return append(wire.AppendString(dst, prompt), '}')
}
