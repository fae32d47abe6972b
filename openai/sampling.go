package openai

import (
	"cmp"
	"math"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/nvext"
)

// maxChoices bounds n, and prompts times n.
const maxChoices = 128

// maxTokenLimit bounds what a client may ask for.
const maxTokenLimit = 1 << 20

// call checks what both bodies share and starts the call.
func (b *body) call(o Options, api chat.API) (*Call, error) {
	switch {
	case strings.TrimSpace(b.model) == "":
		return nil, wire.Missing("model", "Model cannot be empty")
	case b.user != nil && strings.TrimSpace(*b.user) == "":
		return nil, wire.Invalid("user", "User ID cannot be empty")
	case b.hasStreamOptions && !isTrue(b.stream):
		return nil, wire.Invalid("stream_options", "The 'stream_options' field is only allowed when 'stream' is set to true.")
	}
	usage := b.includeUsage || o.ForceUsage && isTrue(b.stream)
	return &Call{
		Stream: isTrue(b.stream), IncludeUsage: usage, ContinuousUsage: usage && b.continuousUsage,
		Model: b.model, PromptCacheKey: b.promptCacheKey, Unknown: b.unknown,
		api: api, tokenIDs: isTrue(b.tokenIDs), namedToolStop: o.NamedToolStop,
		reasoning: cmp.Or(o.ReasoningField, "reasoning_content"), fingerprint: o.SystemFingerprint, framing: o.Annotations,
	}, nil
}

// sampling checks every field that says how tokens are chosen.
func (b *body) sampling() (chat.Sampling, error) {
	s := chat.Sampling{
		Temperature: b.temperature, TopP: b.topP, MinP: b.minP,
		FrequencyPenalty: b.frequencyPenalty, PresencePenalty: b.presencePenalty,
		RepetitionPenalty: b.repetitionPenalty,
		Seed:              b.seed, LogitBias: b.logitBias,
		IgnoreEOS: isTrue(b.ignoreEOS), Stop: b.stop, StopIDs: b.stopIDs,
		IncludeStop: isTrue(b.includeStop), KeepSpecial: b.skipSpecial != nil && !*b.skipSpecial,
		AllowedIDs: b.allowedIDs, BadWords: b.badWords,
	}
	if len(s.StopIDs) == 0 {
		s.StopIDs = b.stopTokenIDs
	}
	if err := b.checkRanges(); err != nil {
		return s, err
	}
	if b.topK != nil {
		s.TopK = intPointer(max(-1, min(*b.topK, math.MaxInt32)))
		if *s.TopK == 0 {
			*s.TopK = -1
		}
	}
	if b.n != nil {
		s.N = int(*b.n)
	}
	if b.promptLogprobs != nil {
		s.PromptLogprobs = intPointer(*b.promptLogprobs)
	}
	limit := b.maxTokens
	if b.maxCompletionTokens != nil {
		limit = b.maxCompletionTokens
	}
	if limit != nil {
		s.MaxTokens = intPointer(*limit)
	}
	if b.minTokens != nil {
		s.MinTokens = int(*b.minTokens)
		if limit != nil && *b.minTokens > *limit {
			return s, wire.Invalid("min_tokens", "min_tokens must be less than or equal to max_tokens")
		}
	}
	b.template.Fill(&s)
	if s.N > 1 && s.Temperature != nil && *s.Temperature == 0 {
		return s, diverse(s.N)
	}
	return s, nil
}

func diverse(n int) *wire.Error {
	return wire.Invalid("n", "When n > 1, temperature must be greater than 0 to ensure diverse outputs. Got n=%d, temperature=0", n)
}

func (b *body) checkRanges() error {
	switch {
	case outside(b.temperature, 0, 2):
		return wire.Invalid("temperature", "Temperature must be between 0 and 2, got %v", *b.temperature)
	case outside(b.topP, math.SmallestNonzeroFloat64, 1):
		return wire.Invalid("top_p", "Top_p must be between 0 and 1, got %v", *b.topP)
	case b.topK != nil && *b.topK < -1:
		return wire.Invalid("top_k", "Top_k must be null or greater than or equal to -1")
	case outside(b.minP, 0, 1):
		return wire.Invalid("min_p", "Min_p must be between 0 and 1, got %v", *b.minP)
	case outside(b.frequencyPenalty, -2, 2):
		return wire.Invalid("frequency_penalty", "Frequency penalty must be between -2 and 2, got %v", *b.frequencyPenalty)
	case outside(b.presencePenalty, -2, 2):
		return wire.Invalid("presence_penalty", "Presence penalty must be between -2 and 2, got %v", *b.presencePenalty)
	case outside(b.repetitionPenalty, math.SmallestNonzeroFloat64, 2):
		return wire.Invalid("repetition_penalty", "Repetition penalty must be between 0 and 2, got %v", *b.repetitionPenalty)
	case b.n != nil && (*b.n < 1 || *b.n > maxChoices):
		return wire.Invalid("n", "n must be between 1 and %d, got %d", maxChoices, *b.n)
	}
	if err := checkLimit("max_tokens", "Max tokens", b.maxTokens); err != nil {
		return err
	}
	return checkLimit("max_completion_tokens", "Max completion tokens", b.maxCompletionTokens)
}

func checkLimit(param, title string, limit *int64) error {
	switch {
	case limit == nil:
	case *limit < 1:
		return wire.Invalid(param, "%s must be greater than 0, got %d", title, *limit)
	case *limit > maxTokenLimit:
		return wire.Invalid(param, "%s must not exceed %d, got %d", title, maxTokenLimit, *limit)
	}
	return nil
}

// extension decodes nvext, and the members outside it that belong to it.
func (b *body) extension(c *Call, o Options, choices int) (*nvext.Ext, error) {
	var ext *nvext.Ext
	if c.ExtDropped = b.nvext != nil && o.DisableNVExt; b.nvext != nil && !c.ExtDropped {
		decoded, unknown, err := nvext.Decode(b.nvext, o.StrictNVExt)
		if err != nil {
			return nil, extensionError(err)
		}
		ext = decoded
		c.Unknown = append(c.Unknown, unknown...)
	}
	ext, err := ext.WithSalt(b.cacheSalt)
	if err != nil {
		return nil, wire.Invalid("cache_salt", "%s", err)
	}
	if choices > 1 && ext.Fields().Has(nvext.WantCompletionTokenIDs) {
		return nil, wire.Invalid("nvext.extra_fields", "`nvext.extra_fields=[\"completion_token_ids\"]` requires exactly one generated choice")
	}
	return ext, nil
}

func extensionError(err error) error {
	e, ok := err.(*nvext.Error)
	if !ok {
		return wire.Malformed("nvext", "%s", err)
	}
	out := wire.Malformed("", "%s", e)
	out.Param = e.Path
	return out
}

// applyExtension applies what the extension says about sampling.
func applyExtension(ext *nvext.Ext, s *chat.Sampling) error {
	if ext == nil || !isTrue(ext.GreedSampling) {
		return nil
	}
	if s.N > 1 {
		return diverse(s.N)
	}
	var zero float64
	s.Temperature, s.TopP, s.TopK, s.MinP = &zero, nil, nil, nil
	return nil
}

// outside says whether a number that was given lies outside [low, high].
func outside(p *float64, low, high float64) bool {
	return p != nil && !(*p >= low && *p <= high)
}

func isTrue(p *bool) bool { return p != nil && *p }

func intPointer[T int64 | uint32](n T) *int {
	i := int(n)
	return &i
}
