package responses

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/envelope"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/openai"
)

// call checks a body and makes its call.
func (b *body) call(o Options) (*Call, error) {
	b.model = cmp.Or(b.model, o.DefaultModel)
	if err := b.check(o); err != nil {
		return nil, err
	}
	c := &Call{
		Model: b.model, PromptCacheKey: value(b.promptCacheKey), PreviousID: b.previousID,
		Stream: isTrue(b.stream), Background: isTrue(b.background),
		Store: !o.NoStore && (b.store == nil || *b.store),
		Input: b.input, Unknown: b.unknown, box: cmp.Or(o.Envelope, new(envelope.Box)),
	}
	c.show = shown{
		raw: o.RawReasoning, summary: b.reasoning.summarised(), encrypted: b.includeReasoning,
		logprobs: b.includeLogprobs, background: c.Background,
	}
	if err := c.tools.add(b.tools, "tools"); err != nil {
		return nil, err
	}
	for _, hosted := range c.tools.hosted {
		c.ignore(hosted)
	}
	choice, err := c.tools.choice(b.toolChoice, b.parallel)
	if err != nil {
		return nil, err
	}
	format, err := b.outputFormat()
	if err != nil {
		return nil, err
	}
	if choice.Mode == chat.ToolRequired || choice.Mode == chat.ToolNamed {
		// A forced call is itself the form of the output.
		format = chat.OutputFormat{}
	}
	thinking, args, err := b.thinking()
	if err != nil {
		return nil, err
	}
	sampling := b.sampling(c)
	if c.Ext, err = b.extension(c, o); err != nil {
		return nil, err
	}
	if c.Ext != nil && c.Ext.MaxThinkingTokens != nil {
		budget := int(*c.Ext.MaxThinkingTokens)
		thinking.Budget = &budget
	}
	if c.Ext != nil && isTrue(c.Ext.GreedSampling) {
		sampling.Temperature, sampling.TopP = new(float64), nil
	}
	c.Request = &chat.Request{
		API: chat.APIResponses, Model: b.model, ToolChoice: choice, Thinking: thinking, Output: format,
		Sampling: sampling, TemplateArgs: args, Truncate: b.truncation == "auto", Metadata: b.metadata,
		KeepCached: wire.KeepCached(value(b.promptCacheRetention)),
	}
	if s := value(b.instructions); s != "" {
		c.Request.System = []chat.Block{{Kind: chat.Text, Text: s}}
	}
	c.echo = b.echoOf(c)
	return c, nil
}

// check refuses what breaks a rule, or is not served.
func (b *body) check(o Options) error {
	switch {
	case strings.TrimSpace(b.model) == "":
		return wire.Missing("model", "Model cannot be empty")
	case o.RejectUnknown && len(b.unknown) > 0:
		return wire.Unsupported(b.unknown[0], "Unsupported parameter(s): `%s`", strings.Join(b.unknown, "`, `"))
	case b.conversation != nil && b.previousID != "":
		return wire.Invalid("conversation", "conversation and previous_response_id cannot be used together")
	case b.conversation != nil:
		return wire.Unsupported("conversation", "conversation is not supported: send the items as input, or use previous_response_id")
	case b.prompt != nil:
		return wire.Unsupported("prompt", "prompt is not supported: there is no store of prompts; send instructions and input")
	case !b.hasInput && b.previousID == "" && !o.EmptyInput:
		return wire.Missing("input", "input is required: a string or an array of items")
	case len(b.input) == 0 && b.previousID == "" && !o.EmptyInput:
		return wire.Invalid("input", "input cannot be empty")
	case isTrue(b.background) && o.NoStore:
		return wire.Unsupported("background", "background is not supported: responses are not stored here")
	case isTrue(b.background) && b.store != nil && !*b.store:
		return wire.Invalid("background", "background needs store: what nobody keeps cannot be fetched later")
	case b.truncation != "" && b.truncation != "auto" && b.truncation != "disabled":
		return wire.Invalid("truncation", "truncation must be auto or disabled, got %q", wire.Clip(b.truncation))
	case outside(b.temperature, 0, 2):
		return wire.Invalid("temperature", "Temperature must be between 0 and 2, got %v", *b.temperature)
	case outside(b.topP, math.SmallestNonzeroFloat64, 1):
		return wire.Invalid("top_p", "Top_p must be between 0 and 1, got %v", *b.topP)
	case outside(b.presencePenalty, -2, 2):
		return wire.Invalid("presence_penalty", "Presence penalty must be between -2 and 2, got %v", *b.presencePenalty)
	case outside(b.frequencyPenalty, -2, 2):
		return wire.Invalid("frequency_penalty", "Frequency penalty must be between -2 and 2, got %v", *b.frequencyPenalty)
	case b.maxOutputTokens != nil && *b.maxOutputTokens < 1:
		return wire.Invalid("max_output_tokens", "max_output_tokens must be greater than 0, got %d", *b.maxOutputTokens)
	case b.topLogprobs != nil && *b.topLogprobs < 0:
		return wire.Invalid("top_logprobs", "top_logprobs must be between 0 and %d, got %d", maxTopLogprobs, *b.topLogprobs)
	}
	if k := b.promptLogprobs; k != nil && *k < 0 {
		return wire.Invalid("prompt_logprobs", "prompt_logprobs must be 0 or greater, got %d", *k)
	}
	if err := oneOf("text.verbosity", b.verbosity, verbosities); err != nil {
		return err
	}
	return b.reasoning.check()
}

const maxTopLogprobs = 20

// sampling says how tokens are chosen. Log probabilities that are not shown are
// not asked for.
func (b *body) sampling(c *Call) chat.Sampling {
	s := chat.Sampling{
		Temperature: b.temperature, TopP: b.topP,
		PresencePenalty: b.presencePenalty, FrequencyPenalty: b.frequencyPenalty,
	}
	if b.maxOutputTokens != nil {
		limit := int(min(*b.maxOutputTokens, math.MaxInt32))
		s.MaxTokens = &limit
	}
	if b.promptLogprobs != nil {
		s.PromptLogprobs = new(int(min(*b.promptLogprobs, math.MaxInt32)))
	}
	if b.topLogprobs != nil {
		c.show.topLogprobs = int(min(*b.topLogprobs, maxTopLogprobs))
	}
	if c.show.logprobs {
		k := max(1, c.show.topLogprobs)
		s.Logprobs = &k
	}
	return s
}

// thinking says how much the model shall reason, and what its template sees.
func (b *body) thinking() (chat.Thinking, json.RawMessage, error) {
	args := b.templateArgs
	if args != nil && args[0] != '{' {
		return chat.Thinking{}, nil, wire.Malformed("chat_template_args", "expected an object")
	}
	t, args, err := openai.Thinking(args, b.reasoning.effort)
	if err != nil {
		return t, nil, err
	}
	t.Keep = b.reasoning.keep()
	if b.verbosity != nil && !bytes.Contains(args, []byte(`"verbosity"`)) {
		args = withMember(args, "verbosity", wire.AppendString(nil, *b.verbosity))
	}
	return t, args, nil
}

// withMember returns a JSON object, or nil for an empty one, with one member
// more.
func withMember(object []byte, name string, value []byte) []byte {
	out := append([]byte(nil), '{')
	if object != nil {
		object = bytes.TrimSpace(object)
		if inside := bytes.TrimSpace(object[1 : len(object)-1]); len(inside) > 0 {
			out = append(append(out, inside...), ',')
		}
	}
	out = append(wire.AppendString(out, name), ':')
	return append(append(out, value...), '}')
}

// extension decodes nvext, and the salt outside it that belongs to it.
func (b *body) extension(c *Call, o Options) (*nvext.Ext, error) {
	ext, err := b.decodeExtension(c, o)
	if err != nil {
		return nil, err
	}
	if ext, err = ext.WithSalt(b.cacheSalt); err != nil {
		return nil, wire.Invalid("cache_salt", "%s", err)
	}
	return ext, nil
}

func (b *body) decodeExtension(c *Call, o Options) (*nvext.Ext, error) {
	if c.ExtDropped = b.nvext != nil && o.DisableNVExt; b.nvext == nil || c.ExtDropped {
		return nil, nil
	}
	ext, unknown, err := nvext.Decode(b.nvext, o.StrictNVExt)
	if e, ok := err.(*nvext.Error); ok {
		out := wire.Malformed("", "%s", e)
		out.Param = e.Path
		return nil, out
	}
	if err != nil {
		return nil, wire.Malformed("nvext", "%s", err)
	}
	for _, name := range unknown {
		c.ignore(name)
	}
	if ext != nil {
		ext.UseRawPrompt = nil // a conversation of items has no raw form
	}
	return ext, nil
}

// outside says whether a number that was given lies outside [low, high].
func outside(p *float64, low, high float64) bool {
	return p != nil && !(*p >= low && *p <= high)
}

func isTrue(p *bool) bool { return p != nil && *p }

func value(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
