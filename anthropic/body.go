package anthropic

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/nvext"
)

// body holds what a client sent, before it is checked and made a chat.Request.
// Pointers are nil, and values empty, for what is absent or null.
type body struct {
	model             string
	messages          []message
	count             wire.Tally // of messages and blocks
	system            content
	maxTokens, topK   *int64
	promptLogprobs    *int64 // not of the API: shown by nvext alone
	temperature, topP *float64
	stream            bool
	stop              []string
	tools             []chat.Tool
	toolMarks         []mark
	choice            choice
	thinking          thinking
	keep              *int // thoughts that context_management keeps
	effort            string
	format            format
	userID, cacheSalt string
	mark              *mark
	betas             []string
	nvext             []byte
	goesOn            bool // with a thread, and does not say what was before

	unknown []string
}

// field is one member of a body: its name, the JSON schema of its value, and how it
// is read. A read function that meets null forgets an earlier value, so that of
// repeated members the last one wins.
type field struct {
	name   string
	schema string
	read   func(r *wire.Reader, b *body) error
}

// fields are the members of a body that have an effect.
var fields = []field{
	{"model", `{"type":"string"}`, func(r *wire.Reader, b *body) error { return wire.Nullable(r, &b.model, wire.Text) }},
	{"messages", `{"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/InputMessage"}}`, readMessages},
	{"system", aContent, func(r *wire.Reader, b *body) (err error) { b.system, err = readContent(r, &b.count); return err }},
	{"max_tokens", `{"type":"integer","minimum":1}`, func(r *wire.Reader, b *body) error { return wire.Optional(r, &b.maxTokens, integer) }},
	{"temperature", `{"type":"number","minimum":0,"maximum":2}`, func(r *wire.Reader, b *body) error { return wire.Optional(r, &b.temperature, (*wire.Reader).Float) }},
	{"top_p", `{"type":"number","exclusiveMinimum":0,"maximum":1}`, func(r *wire.Reader, b *body) error { return wire.Optional(r, &b.topP, (*wire.Reader).Float) }},
	{"top_k", `{"type":"integer","minimum":-1}`, func(r *wire.Reader, b *body) error { return wire.Optional(r, &b.topK, integer) }},
	{"prompt_logprobs", `{"type":"integer","minimum":0}`, func(r *wire.Reader, b *body) error { return wire.Optional(r, &b.promptLogprobs, integer) }},
	{"stream", `{"type":"boolean","default":false}`, func(r *wire.Reader, b *body) error { return wire.Nullable(r, &b.stream, (*wire.Reader).Boolean) }},
	{"stop_sequences", `{"type":"array","maxItems":128,"items":{"type":"string","minLength":1}}`, func(r *wire.Reader, b *body) error { return wire.Nullable(r, &b.stop, texts) }},
	{"tools", `{"type":"array","maxItems":1536,"items":{"$ref":"#/components/schemas/InputTool"}}`, readTools},
	{"tool_choice", `{"type":"object","required":["type"],"properties":{"type":{"enum":["auto","any","tool","none"]},"name":{"type":"string"},"disable_parallel_tool_use":{"type":"boolean","default":false}}}`, readChoice},
	{"thinking", `{"type":"object","required":["type"],"properties":{"type":{"type":"string","examples":["enabled","adaptive","disabled","between_tools"]},"budget_tokens":{"type":"integer","minimum":0},"display":{"type":["string","null"],"examples":["summarized","omitted"]}}}`, readThinking},
	{"context_management", `{"type":"object","properties":{"edits":{"type":"array","items":{"type":"object"}}}}`, readContextManagement},
	{"output_config", `{"type":"object","properties":{"effort":{"type":"string"},"format":` + aFormat + `}}`, readOutputConfig},
	{"output_format", aFormat, func(r *wire.Reader, b *body) error { return b.format.read(r) }},
	{"metadata", `{"type":"object","properties":{"user_id":{"type":["string","null"]}}}`, readMetadata},
	{"cache_control", aMark, func(r *wire.Reader, b *body) (err error) { b.mark, err = readMark(r); return err }},
	{"betas", `{"type":"array","items":{"type":"string"}}`, func(r *wire.Reader, b *body) error { return lenient(r, &b.betas, '[', texts) }},
	{"thread", `{"type":"object"}`, readThread},
	{"cache_salt", `{"type":"string"}`, func(r *wire.Reader, b *body) error { return wire.Nullable(r, &b.cacheSalt, wire.Text) }},
	{"nvext", `{"$ref":"#/components/schemas/NVExt"}`, func(r *wire.Reader, b *body) error { return wire.Nullable(r, &b.nvext, (*wire.Reader).Raw) }},
}

var byName = func() map[string]func(*wire.Reader, *body) error {
	m := make(map[string]func(*wire.Reader, *body) error, len(fields))
	for _, f := range fields {
		m[f.name] = f.read
	}
	return m
}()

// ignored are members that are known and have no effect here.
var ignored = []string{
	"billing_policy", "compaction", "container", "diagnostics", "fallbacks", "inference_geo", "mcp_servers",
	"service_tier", "speed", "user_profile_id", "workspace_id",
}

// maxUnknown bounds the list of what was passed over: it goes into a log line.
const maxUnknown = 32

func (b *body) passOver(what string) {
	if len(b.unknown) < maxUnknown && !slices.Contains(b.unknown, what) {
		b.unknown = append(b.unknown, what)
	}
}

// read reads a body. One that is broken by raw control characters inside strings
// is read once more with those escaped.
func read(doc []byte) (*body, error) {
	b, err := readOnce(doc)
	if _, broken := err.(*wire.SyntaxError); broken {
		if mended, ok := wire.EscapeControls(doc); ok {
			b, err = readOnce(mended)
		}
	}
	if broken, ok := err.(*wire.SyntaxError); ok {
		return nil, broken.Cause
	}
	return b, err
}

func readOnce(doc []byte) (*body, error) {
	r, b := wire.NewReader(doc, ""), new(body)
	err := r.Object("an object", func(name []byte) error {
		if read := byName[string(name)]; read != nil {
			return read(r, b)
		}
		if unknown := wire.CleanText(string(name)); !slices.Contains(ignored, unknown) {
			b.passOver(wire.Clip(unknown))
		}
		return r.Skip()
	})
	if err == nil {
		err = r.End()
	}
	return b, err
}

// call checks a body and makes its call. A count asks for less than an answer.
func (b *body) call(d Dialect, o Options, answered bool) (*Call, error) {
	model := cmp.Or(b.model, o.DefaultModel)
	switch {
	case strings.TrimSpace(model) == "":
		return nil, missing("model")
	case b.goesOn:
		return nil, threadNotFound()
	case len(b.messages) == 0:
		return nil, missing("messages")
	}
	request := &chat.Request{API: chat.APIMessages, Model: model, Tools: b.tools}
	if answered {
		if o.DefaultMaxTokens > 0 && (b.maxTokens == nil || *b.maxTokens == 0) {
			b.maxTokens = new(int64(o.DefaultMaxTokens))
		}
		if err := b.sampling(&request.Sampling); err != nil {
			return nil, err
		}
	}
	var err error
	if request.ToolChoice, err = b.toolChoice(); err != nil {
		return nil, err
	}
	if request.Output, err = b.output(request.ToolChoice); err != nil {
		return nil, err
	}
	request.Thinking = b.thoughts()
	c := &Call{
		Request: request, Model: model, UserID: b.userID, Stream: b.stream,
		omitThoughts: b.thinking.omitted, envelope: o.envelope(),
	}
	d.Betas = slices.Concat(d.Betas, b.betas)
	c.tellsContext = d.tellsContext()
	if err := b.converse(request, o); err != nil {
		return nil, err
	}
	if n := len(request.Cache); n > 0 {
		c.marked, c.markedLong = true, request.Cache[n-1].TTL >= longTTL
	}
	if b.userID != "" {
		request.Metadata = map[string]string{"user_id": b.userID}
	}
	if answered {
		if c.Ext, err = b.extension(c, o); err != nil {
			return nil, err
		}
		applyExtension(c.Ext, request)
	}
	c.Unknown = b.unknown
	return c, nil
}

// maxStops bounds the list of stop sequences: each is looked for in every piece
// of an answer.
const maxStops = 128

// sampling checks what says how tokens are chosen and when to stop.
func (b *body) sampling(s *chat.Sampling) error {
	switch {
	case b.maxTokens == nil:
		return missing("max_tokens")
	case *b.maxTokens < 1:
		return wire.Invalid("max_tokens", "max_tokens: must be greater than 0")
	case outside(b.temperature, 0, 2):
		return wire.Invalid("temperature", "temperature: must be between 0 and 2, got %v", *b.temperature)
	case outside(b.topP, math.SmallestNonzeroFloat64, 1):
		return wire.Invalid("top_p", "top_p: must be greater than 0 and at most 1, got %v", *b.topP)
	case b.topK != nil && *b.topK < -1:
		return wire.Invalid("top_k", "top_k: must be -1, 0 or greater, got %d", *b.topK)
	case b.promptLogprobs != nil && *b.promptLogprobs < 0:
		return wire.Invalid("prompt_logprobs", "prompt_logprobs: must be 0 or greater, got %d", *b.promptLogprobs)
	case len(b.stop) > maxStops:
		return wire.Invalid("stop_sequences", "stop_sequences: must have at most %d elements, got %d", maxStops, len(b.stop))
	}
	for i, stop := range b.stop {
		if stop == "" {
			path := index("stop_sequences", i)
			return wire.Invalid(path, "%s: must not be empty", path)
		}
	}
	*s = chat.Sampling{
		Temperature: b.temperature, TopP: b.topP, Stop: b.stop,
		MaxTokens: new(int(min(*b.maxTokens, math.MaxInt32))),
	}
	if b.promptLogprobs != nil {
		s.PromptLogprobs = new(int(min(*b.promptLogprobs, math.MaxInt32)))
	}
	if b.topK != nil {
		s.TopK = new(int(min(*b.topK, math.MaxInt32)))
		if *s.TopK == 0 {
			*s.TopK = -1
		}
	}
	return nil
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
	if err != nil {
		path := "nvext"
		if e, ok := err.(*nvext.Error); ok {
			path = e.Path
		}
		return nil, wire.Invalid(path, "Failed to convert request: invalid nvext: %s", err)
	}
	for _, path := range unknown {
		b.passOver(path)
	}
	if ext != nil {
		ext.UseRawPrompt = nil // a conversation of messages has no raw form
	}
	return ext, nil
}

// applyExtension applies what the extension says about the answer itself.
func applyExtension(ext *nvext.Ext, r *chat.Request) {
	if ext == nil {
		return
	}
	if ext.GreedSampling != nil && *ext.GreedSampling {
		r.Sampling.Temperature, r.Sampling.TopP, r.Sampling.TopK = new(0.0), nil, nil
	}
	if ext.MaxThinkingTokens != nil {
		r.Thinking.Budget = new(int(*ext.MaxThinkingTokens))
	}
}

func readMetadata(r *wire.Reader, b *body) error {
	b.userID = ""
	if null, err := r.Null(); null {
		return err
	}
	return r.Object("an object", func(name []byte) error {
		if string(name) != "user_id" {
			return r.Skip()
		}
		return wire.Nullable(r, &b.userID, wire.Text)
	})
}

// missing is the error of a member that has to be there.
func missing(path string) *wire.Error { return wire.Missing(path, "%s: field required", path) }

// outside says whether a number that was given lies outside [low, high].
func outside(p *float64, low, high float64) bool {
	return p != nil && !(*p >= low && *p <= high)
}

// index returns the path of an element.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
