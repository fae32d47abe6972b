package openai

import (
	"encoding/base64"
	"math"
	"net/http"
	"unicode/utf8"

	"github.com/dynago/dynago/internal/wire"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
)

// readPrompt reads a text, texts, token ids or lists of token ids.
func readPrompt(r *wire.Reader, b *body) error {
	const want = "a string, an array of strings, of token IDs, or of arrays of token IDs"
	b.prompts = nil
	switch r.Kind() {
	case 'n':
		return r.Skip()
	case '"':
		s, err := r.Text(want)
		if err == nil && s == "" {
			err = wire.Missing("prompt", "Prompt string cannot be empty")
		}
		b.prompts = []chat.Prompt{{Text: s}}
		return err
	}
	var form jsontext.Kind // kind of the first element; all have it
	var ids []uint32
	err := r.Array(want, func(i int) error {
		kind := r.Kind()
		if i == 0 {
			form = kind
		}
		switch {
		case kind != form:
			return r.Mistyped(wire.Describe(form) + ", as before it")
		case kind == '0':
			id, err := r.Integer(0, math.MaxUint32)
			ids = append(ids, uint32(id))
			return err
		}
		if err := b.count.Take(r, "prompts"); err != nil {
			return err
		}
		if kind == '[' {
			list, err := readIDs(r)
			if err == nil && len(list) == 0 {
				err = wire.Invalid(index("prompt", i), "Prompt integer array at index %d cannot be empty", i)
			}
			b.prompts = append(b.prompts, chat.Prompt{IDs: list})
			return err
		}
		s, err := r.Text("a string, a token ID or an array of token IDs")
		if err == nil && s == "" {
			err = wire.Invalid(index("prompt", i), "Prompt string at index %d cannot be empty", i)
		}
		b.prompts = append(b.prompts, chat.Prompt{Text: s})
		return err
	})
	switch {
	case err != nil:
		return err
	case ids != nil:
		b.prompts = []chat.Prompt{{IDs: ids}}
	case form == 0:
		return wire.Missing("prompt", "Prompt string array cannot be empty")
	}
	return nil
}

// completionCall checks a completions body and makes its call.
func (b *body) completionCall(o Options) (*Call, error) {
	c, err := b.call(o, chat.APICompletions)
	if err != nil {
		return nil, err
	}
	switch {
	case b.promptEmbeds != nil:
		return nil, checkPromptEmbeds(*b.promptEmbeds)
	case len(b.prompts) == 0:
		return nil, wire.Missing("prompt", "At least one of 'prompt' or 'prompt_embeds' must be provided")
	}
	s, err := b.sampling()
	if err != nil {
		return nil, err
	}
	if err := b.checkCompletion(s.Choices()); err != nil {
		return nil, err
	}
	format, err := b.outputFormat(chat.ToolChoice{})
	if err != nil {
		return nil, err
	}
	ext, err := b.extension(c, o, len(b.prompts)*s.Choices())
	if err != nil {
		return nil, err
	}
	if ext != nil && ext.TokenData != nil && len(b.prompts) > 1 {
		return nil, wire.Invalid("nvext.token_data", "nvext.token_data requires exactly one prompt, got %d", len(b.prompts))
	}
	if err := applyExtension(ext, &s); err != nil {
		return nil, err
	}
	echo := b.echo != nil && *b.echo
	if b.topLogprobs != nil {
		k := int(*b.topLogprobs)
		s.Logprobs = &k
		c.showLogprobs, c.topLogprobs = true, k
		if echo {
			s.PromptLogprobs = &k
		}
	}
	c.Ext, c.choices = ext, s.Choices()
	c.Requests = make([]*chat.Request, len(b.prompts))
	for i, p := range b.prompts {
		p.Echo, p.NoSpecialTokens = echo, b.addSpecial != nil && !*b.addSpecial
		c.Requests[i] = &chat.Request{
			API: chat.APICompletions, Model: b.model, Prompt: &p,
			Sampling: s, Output: format, Metadata: b.metadata, KeepCached: wire.KeepCached(b.promptCacheRetention),
		}
		if ext != nil && ext.MaxThinkingTokens != nil {
			c.Requests[i].Thinking.Budget = intPointer(*ext.MaxThinkingTokens)
		}
	}
	return c, nil
}

func (b *body) checkCompletion(n int) error {
	if b.suffix != nil {
		if utf8.RuneCountInString(*b.suffix) > 10000 {
			return wire.Invalid("suffix", "Suffix is too long, maximum 10000 characters")
		}
		if *b.suffix != "" {
			return wire.Unsupported("suffix", "suffix is not supported")
		}
	}
	if b.topLogprobs != nil && (*b.topLogprobs < 0 || *b.topLogprobs > 5) {
		return wire.Invalid("logprobs", "Logprobs must be between 0 and 5, got %d", *b.topLogprobs)
	}
	if b.bestOf != nil {
		switch best := *b.bestOf; {
		case best < 0 || best > 20:
			return wire.Invalid("best_of", "Best_of must be between 0 and 20, got %d", best)
		case best < int64(n):
			return wire.Invalid("best_of", "Best_of must be greater than or equal to n, got best_of=%d and n=%d", best, n)
		case best > int64(n):
			return wire.Unsupported("best_of", "best_of greater than n is not supported, got best_of=%d and n=%d", best, n)
		}
	}
	if total := n * len(b.prompts); total > maxChoices {
		return wire.Invalid("prompt", "Total choices (batch_size × n = %d × %d = %d) exceeds maximum of %d", len(b.prompts), n, total, maxChoices)
	}
	return nil
}

// checkPromptEmbeds says what is wrong with embeddings in place of a prompt; if
// nothing else, that text models do not take them.
func checkPromptEmbeds(s string) error {
	const param, low, high = "prompt_embeds", 100, 10 << 20
	n := base64.StdEncoding.DecodedLen(len(s))
	if n <= high+2 {
		data, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return wire.Invalid(param, "prompt_embeds must be valid base64-encoded data")
		}
		n = len(data)
	}
	switch {
	case n < low:
		return wire.Invalid(param, "prompt_embeds decoded data must be at least %d bytes, got %d bytes", low, n)
	case n > high:
		return wire.Invalid(param, "prompt_embeds decoded data exceeds maximum size of 10MB, got %d bytes", n)
	}
	e := wire.Unsupported(param, "prompt_embeds is not supported")
	e.Status = http.StatusNotImplemented
	return e
}
