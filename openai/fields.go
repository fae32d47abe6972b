package openai

import (
	"cmp"
	"math"
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// field is one member of a body: its name, the JSON schema of its value, and
// how it is read. A read function that meets null forgets an earlier value, so
// that of repeated members the last one wins.
type field struct {
	name   string
	schema string
	read   func(r *wire.Reader, b *body) error
}

// table is the set of members of one body.
type table struct {
	fields   []field
	required []string
	byName   map[string]func(r *wire.Reader, b *body) error
}

func newTable(required []string, parts ...[]field) *table {
	t := &table{fields: slices.Concat(parts...), required: required}
	t.byName = make(map[string]func(*wire.Reader, *body) error, len(t.fields))
	for _, f := range t.fields {
		t.byName[f.name] = f.read
	}
	return t
}

var (
	chatTable       = newTable([]string{"model", "messages"}, commonFields, samplingFields, chatFields, templateFields)
	completionTable = newTable([]string{"model", "prompt"}, commonFields, samplingFields, completionFields)
	tokenizeTable   = newTable([]string{"model"}, tokenizeFields, templateFields)
	detokenizeTable = newTable([]string{"model", "tokens"}, detokenizeFields)
)

// Schemas that occur more than once.
const (
	anyValue      = `{}`
	anObject      = `{"type":"object"}`
	aBoolean      = `{"type":"boolean"}`
	aString       = `{"type":"string"}`
	tokenIDs      = `{"type":"array","items":{"type":"integer","minimum":0}}`
	tokenIDLists  = `{"type":"array","items":{"type":"array","items":{"type":"integer","minimum":0}}}`
	messageList   = `{"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/Message"}}`
	toolList      = `{"type":"array","maxItems":1536,"items":{"$ref":"#/components/schemas/Tool"}}`
	positiveLimit = `{"type":"integer","minimum":1,"maximum":1048576}`
)

// commonFields are members of chat completions and completions that say nothing
// about how tokens are chosen.
var commonFields = []field{
	{"model", aString, text(func(b *body) *string { return &b.model })},
	{"stream", `{"type":"boolean","default":false}`, boolean(func(b *body) **bool { return &b.stream })},
	{"stream_options", `{"type":"object","required":["include_usage"],"properties":{"include_usage":{"type":"boolean"},"continuous_usage_stats":{"type":"boolean","default":false}}}`, readStreamOptions},
	{"user", `{"type":"string","minLength":1}`, optionalText(func(b *body) **string { return &b.user })},
	{"metadata", anObject, readMetadata},
	{"prompt_cache_retention", aString, text(func(b *body) *string { return &b.promptCacheRetention })},
	{"prompt_cache_key", aString, text(func(b *body) *string { return &b.promptCacheKey })},
	{"cache_salt", aString, passThrough("cache_salt", "must be a string", func(r *wire.Reader, b *body) (err error) {
		b.cacheSalt, err = r.Text("a string")
		return err
	}, func(b *body) { b.cacheSalt = "" })},
	{"nvext", `{"$ref":"#/components/schemas/NVExt"}`, raw(func(b *body) *[]byte { return &b.nvext })},
	{"return_tokens_as_token_ids", aBoolean, boolean(func(b *body) **bool { return &b.tokenIDs })},
	{"store", anyValue, accept},
	{"service_tier", anyValue, accept},
}

// samplingFields say how tokens are chosen and when to stop.
var samplingFields = []field{
	{"max_tokens", positiveLimit, integer(math.MinInt64, func(b *body) **int64 { return &b.maxTokens })},
	{"min_tokens", `{"type":"integer","minimum":0}`, integer(0, func(b *body) **int64 { return &b.minTokens })},
	{"temperature", `{"type":"number","minimum":0,"maximum":2}`, number(func(b *body) **float64 { return &b.temperature })},
	{"top_p", `{"type":"number","exclusiveMinimum":0,"maximum":1}`, number(func(b *body) **float64 { return &b.topP })},
	{"top_k", `{"type":"integer","minimum":-1}`, integer(math.MinInt64, func(b *body) **int64 { return &b.topK })},
	{"min_p", `{"type":"number","minimum":0,"maximum":1}`, number(func(b *body) **float64 { return &b.minP })},
	{"frequency_penalty", `{"type":"number","minimum":-2,"maximum":2}`, number(func(b *body) **float64 { return &b.frequencyPenalty })},
	{"presence_penalty", `{"type":"number","minimum":-2,"maximum":2}`, number(func(b *body) **float64 { return &b.presencePenalty })},
	{"repetition_penalty", `{"type":"number","exclusiveMinimum":0,"maximum":2}`, number(func(b *body) **float64 { return &b.repetitionPenalty })},
	{"seed", `{"type":"integer"}`, integer(math.MinInt64, func(b *body) **int64 { return &b.seed })},
	{"n", `{"type":"integer","minimum":1,"maximum":128}`, integer(math.MinInt64, func(b *body) **int64 { return &b.n })},
	{"stop", `{"oneOf":[{"type":"string","minLength":1},{"type":"array","maxItems":32,"items":{"type":"string","minLength":1}},{"type":"array","maxItems":32,"items":{"type":"integer","minimum":0}}]}`, readStop},
	{"stop_token_ids", tokenIDs, ids("stop_token_ids", func(b *body) *[]uint32 { return &b.stopTokenIDs })},
	{"ignore_eos", aBoolean, boolean(func(b *body) **bool { return &b.ignoreEOS })},
	{"include_stop_str_in_output", aBoolean, boolean(func(b *body) **bool { return &b.includeStop })},
	{"skip_special_tokens", `{"type":"boolean","default":true}`, boolean(func(b *body) **bool { return &b.skipSpecial })},
	{"prompt_logprobs", `{"type":"integer","minimum":0}`, integer(0, func(b *body) **int64 { return &b.promptLogprobs })},
	{"logit_bias", `{"type":"object","additionalProperties":{"type":"number","minimum":-100,"maximum":100}}`, readLogitBias},
	{"allowed_token_ids", tokenIDs, ids("allowed_token_ids", func(b *body) *[]uint32 { return &b.allowedIDs })},
	{"logprob_token_ids", tokenIDs, ids("logprob_token_ids", func(b *body) *[]uint32 { return &b.logprobIDs })},
	{"bad_words_token_ids", tokenIDLists, readBadWords},
	{"detokenize", aBoolean, passThrough("detokenize", "must be a boolean", func(r *wire.Reader, _ *body) error {
		_, err := r.Boolean()
		return err
	}, func(*body) {})},
	{"response_format", `{"type":"object","required":["type"],"properties":{"type":{"enum":["text","json_object","json_schema"]},"json_schema":{"type":"object","required":["name","schema"],"properties":{"name":{"type":"string","minLength":1},"schema":{"type":"object"},"strict":{"type":"boolean"}}}}}`, raw(func(b *body) *[]byte { return &b.responseFormat })},
	{"guided_json", `{"type":["object","string"]}`, raw(func(b *body) *[]byte { return &b.guidedJSON })},
	{"guided_regex", aString, optionalText(func(b *body) **string { return &b.guidedRegex })},
	{"guided_choice", `{"type":"array","minItems":1,"items":{"type":"string"}}`, readGuidedChoice},
	{"guided_grammar", aString, optionalText(func(b *body) **string { return &b.guidedGrammar })},
	{"guided_whitespace_pattern", aString, optionalText(func(b *body) **string { return &b.guidedWhitespace })},
	{"guided_decoding_backend", aString, accept},
}

// chatFields are members of chat completions alone.
var chatFields = []field{
	{"messages", messageList, readMessages},
	{"max_completion_tokens", positiveLimit, integer(math.MinInt64, func(b *body) **int64 { return &b.maxCompletionTokens })},
	{"logprobs", aBoolean, boolean(func(b *body) **bool { return &b.logprobs })},
	{"top_logprobs", `{"type":"integer","minimum":0,"maximum":20}`, integer(math.MinInt64, func(b *body) **int64 { return &b.topLogprobs })},
	{"tools", toolList, readTools},
	{"tool_choice", `{"oneOf":[{"enum":["none","auto","required"]},{"type":"object","required":["type"]}]}`, raw(func(b *body) *[]byte { return &b.toolChoice })},
	{"parallel_tool_calls", aBoolean, boolean(func(b *body) **bool { return &b.parallelToolCalls })},
	{"functions", `{"deprecated":true}`, raw(func(b *body) *[]byte { return &b.functions })},
	{"function_call", `{"deprecated":true}`, raw(func(b *body) *[]byte { return &b.functionCall })},
	{"reasoning_effort", `{"enum":["none","minimal","low","medium","high","xhigh","max"]}`, optionalText(func(b *body) **string { return &b.reasoningEffort })},
	{"thinking", `{"oneOf":[{"type":"boolean"},{"type":"object","properties":{"type":{"enum":["enabled","disabled","adaptive"]},"budget_tokens":{"type":"integer","minimum":0}}}]}`, readThinking},
	{"modalities", `{"type":"array","items":{"enum":["text"]}}`, readModalities},
	{"mm_processor_kwargs", anyValue, accept},
	{"media_io_kwargs", anyValue, accept},
	{"prediction", anyValue, accept},
	{"audio", anyValue, accept},
	{"web_search_options", anyValue, accept},
}

// completionFields are members of completions alone.
var completionFields = []field{
	{"prompt", `{"oneOf":[{"type":"string","minLength":1},{"type":"array","minItems":1,"items":{"type":"string","minLength":1}},` + tokenIDs + `,` + tokenIDLists + `]}`, readPrompt},
	{"prompt_embeds", `{"type":"string","contentEncoding":"base64"}`, optionalText(func(b *body) **string { return &b.promptEmbeds })},
	{"suffix", `{"type":"string","maxLength":10000}`, optionalText(func(b *body) **string { return &b.suffix })},
	{"logprobs", `{"type":"integer","minimum":0,"maximum":5}`, integer(math.MinInt64, func(b *body) **int64 { return &b.topLogprobs })},
	{"best_of", `{"type":"integer","minimum":0,"maximum":20}`, integer(math.MinInt64, func(b *body) **int64 { return &b.bestOf })},
	{"echo", `{"type":"boolean","default":false}`, boolean(func(b *body) **bool { return &b.echo })},
	{"add_special_tokens", `{"type":"boolean","default":true}`, boolean(func(b *body) **bool { return &b.addSpecial })},
}

// body holds what a client sent, before it is checked and made a chat.Request.
// Pointers are nil, and values empty, for what is absent or null.
type body struct {
	model, promptCacheKey, cacheSalt string
	promptCacheRetention             string
	stream                           *bool
	includeUsage, continuousUsage    bool
	hasStreamOptions                 bool
	user                             *string
	metadata                         map[string]string
	nvext                            []byte
	tokenIDs                         *bool

	maxTokens, maxCompletionTokens, minTokens *int64
	temperature, topP, minP                   *float64
	topK, seed, n                             *int64
	frequencyPenalty, presencePenalty         *float64
	repetitionPenalty                         *float64
	stop                                      []string
	stopIDs, stopTokenIDs                     []uint32
	ignoreEOS, includeStop, skipSpecial       *bool
	logprobs                                  *bool
	topLogprobs, promptLogprobs               *int64
	logitBias                                 map[uint32]float64
	allowedIDs, logprobIDs                    []uint32
	badWords                                  [][]uint32

	responseFormat, guidedJSON                   []byte
	guidedRegex, guidedGrammar, guidedWhitespace *string
	guidedChoice                                 []string
	hasGuidedChoice                              bool

	count                              wire.Tally // of what is listed
	messages                           []message
	tools                              []chat.Tool
	toolCount                          int
	toolChoice                         []byte
	parallelToolCalls                  *bool
	functions, functionCall            []byte
	reasoningEffort                    *string
	thinking                           thinking
	templateArgs, documents            []byte
	audioOut                           bool
	prompts                            []chat.Prompt
	promptEmbeds, suffix               *string
	bestOf                             *int64
	echo, addSpecial                   *bool
	addGenerationPrompt, continueFinal *bool
	tokens                             []uint32

	unknown  []string
	template *RequestTemplate // nil: what is left open stays so
}

// decode reads a body by a table. A body that is broken by raw control
// characters inside strings is read once more with those escaped.
func decode(doc []byte, t *table, o Options) (*body, error) {
	b, err := t.read(doc, o)
	if _, broken := err.(*wire.SyntaxError); broken {
		if mended, ok := wire.EscapeControls(doc); ok {
			b, err = t.read(mended, o)
		}
	}
	if broken, ok := err.(*wire.SyntaxError); ok {
		return nil, broken.Cause
	}
	return b, err
}

func (t *table) read(doc []byte, o Options) (*body, error) {
	r, b := wire.NewReader(doc, ""), new(body)
	err := r.Object("an object", func(name []byte) error {
		if read := t.byName[string(name)]; read != nil {
			return read(r, b)
		}
		b.passOver(string(name))
		return r.Skip()
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, err
	}
	if o.RejectUnknown && len(b.unknown) > 0 {
		return nil, rejectUnknown(b.unknown)
	}
	b.model = cmp.Or(b.model, o.DefaultModel)
	return b, nil
}

// maxUnknown bounds the list of unknown members: it goes into a log line.
const maxUnknown = 32

func rejectUnknown(names []string) *wire.Error {
	list := ""
	for i, name := range names {
		if i > 0 {
			list += ", "
		}
		list += "`" + wire.Clip(name) + "`"
	}
	return wire.Unsupported(names[0], "Unsupported parameter(s): %s", list)
}
