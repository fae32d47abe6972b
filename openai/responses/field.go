package responses

import (
	"math"
	"slices"
	"strconv"

	"github.com/dynago/dynago/internal/wire"
)

// field is one member of a body: its name, the JSON schema of its value, and how
// it is read. A read function that meets null forgets an earlier value, so that
// of repeated members the last one wins.
type field struct {
	name, schema string
	read         func(r *wire.Reader, b *body) error
}

// Schemas that occur more than once.
const (
	anyValue = `{}`
	anObject = `{"type":["object","null"]}`
	aBoolean = `{"type":["boolean","null"]}`
	aString  = `{"type":["string","null"]}`
)

var fields = []field{
	{"model", `{"type":"string"}`, text(func(b *body) *string { return &b.model })},
	{"input", `{"oneOf":[{"type":"string"},{"type":"array","items":{"$ref":"#/components/schemas/ResponseItem"}},{"type":"null"}]}`, readInput},
	{"instructions", aString, optionalText(func(b *body) **string { return &b.instructions })},
	{"previous_response_id", aString, text(func(b *body) *string { return &b.previousID })},
	{"conversation", `{"type":["string","object","null"]}`, raw(func(b *body) *[]byte { return &b.conversation })},
	{"store", `{"type":["boolean","null"],"default":true}`, boolean(func(b *body) **bool { return &b.store })},
	{"stream", `{"type":["boolean","null"],"default":false}`, boolean(func(b *body) **bool { return &b.stream })},
	{"stream_options", anyValue, accept},
	{"background", `{"type":["boolean","null"],"default":false}`, boolean(func(b *body) **bool { return &b.background })},

	{"max_output_tokens", `{"type":["integer","null"],"minimum":1}`, integer(func(b *body) **int64 { return &b.maxOutputTokens })},
	{"max_tool_calls", `{"type":["integer","null"]}`, integer(func(b *body) **int64 { return &b.maxToolCalls })},
	{"temperature", `{"type":["number","null"],"minimum":0,"maximum":2}`, number(func(b *body) **float64 { return &b.temperature })},
	{"top_p", `{"type":["number","null"],"exclusiveMinimum":0,"maximum":1}`, number(func(b *body) **float64 { return &b.topP })},
	{"presence_penalty", `{"type":["number","null"],"minimum":-2,"maximum":2}`, number(func(b *body) **float64 { return &b.presencePenalty })},
	{"frequency_penalty", `{"type":["number","null"],"minimum":-2,"maximum":2}`, number(func(b *body) **float64 { return &b.frequencyPenalty })},
	{"top_logprobs", `{"type":["integer","null"],"minimum":0,"maximum":20}`, integer(func(b *body) **int64 { return &b.topLogprobs })},
	{"prompt_logprobs", `{"type":["integer","null"],"minimum":0}`, integer(func(b *body) **int64 { return &b.promptLogprobs })},

	{"tools", `{"type":["array","null"],"maxItems":1536,"items":{"type":"object","required":["type"],"properties":{"type":{"type":"string"}}}}`, raw(func(b *body) *[]byte { return &b.tools })},
	{"tool_choice", `{"oneOf":[{"enum":["none","auto","required",null]},{"type":"object","required":["type"]}]}`, raw(func(b *body) *[]byte { return &b.toolChoice })},
	{"parallel_tool_calls", `{"type":["boolean","null"],"default":true}`, boolean(func(b *body) **bool { return &b.parallel })},

	{"reasoning", `{"type":["object","null"],"properties":{"effort":{"enum":["none","minimal","low","medium","high","xhigh","max",null]},"summary":{"enum":["auto","concise","detailed",null]},"context":{"enum":["auto","current_turn","all_turns",null]}}}`, readReasoning},
	{"text", `{"type":["object","null"],"properties":{"format":{"type":["object","null"],"required":["type"],"properties":{"type":{"enum":["text","json_object","json_schema"]},"name":{"type":"string"},"schema":{"type":"object"},"strict":{"type":["boolean","null"]}}},"verbosity":{"enum":["low","medium","high",null]}}}`, readText},
	{"include", `{"type":["array","null"],"items":{"type":"string"}}`, readInclude},
	{"truncation", `{"enum":["disabled","auto",null],"default":"disabled"}`, text(func(b *body) *string { return &b.truncation })},

	{"metadata", `{"type":["object","null"],"maxProperties":16,"additionalProperties":{"type":"string","maxLength":512}}`, readMetadata},
	{"service_tier", aString, optionalText(func(b *body) **string { return &b.serviceTier })},
	{"user", aString, optionalText(func(b *body) **string { return &b.user })},
	{"safety_identifier", aString, optionalText(func(b *body) **string { return &b.safetyIdentifier })},
	{"prompt_cache_key", aString, optionalText(func(b *body) **string { return &b.promptCacheKey })},
	{"prompt_cache_retention", aString, optionalText(func(b *body) **string { return &b.promptCacheRetention })},
	{"prompt", anObject, raw(func(b *body) *[]byte { return &b.prompt })},

	{"cache_salt", aString, text(func(b *body) *string { return &b.cacheSalt })},
	{"nvext", `{"$ref":"#/components/schemas/NVExt"}`, raw(func(b *body) *[]byte { return &b.nvext })},
	{"chat_template_args", anObject, raw(func(b *body) *[]byte { return &b.templateArgs })},
	{"chat_template_kwargs", anObject, raw(func(b *body) *[]byte { return &b.templateArgs })},

	{"prompt_cache_options", anyValue, accept},
	{"context_management", anyValue, accept},
	{"moderation", anyValue, accept},
	{"client_metadata", anyValue, accept},
}

// required are the members that every body has.
var required = []string{"model"}

var byName = func() map[string]func(*wire.Reader, *body) error {
	m := make(map[string]func(*wire.Reader, *body) error, len(fields))
	for _, f := range fields {
		m[f.name] = f.read
	}
	return m
}()

// body holds what a client sent, before it is checked. Pointers are nil, and
// values empty, for what is absent or null.
type body struct {
	model, previousID, truncation, cacheSalt   string
	input                                      []Item
	count                                      wire.Tally // of items and their parts
	hasInput                                   bool
	instructions                               *string
	conversation, prompt, nvext, templateArgs  []byte
	store, stream, background, parallel        *bool
	maxOutputTokens, maxToolCalls, topLogprobs *int64
	promptLogprobs                             *int64
	temperature, topP                          *float64
	presencePenalty, frequencyPenalty          *float64
	tools, toolChoice                          []byte
	reasoning                                  reasoning
	format                                     []byte
	verbosity                                  *string
	includeReasoning, includeLogprobs          bool
	metadata                                   map[string]string
	metadataRaw                                []byte
	serviceTier, user, safetyIdentifier        *string
	promptCacheKey, promptCacheRetention       *string
	unknown                                    []string
}

// decode reads a body. One that is broken by raw control characters inside
// strings is read once more with those escaped.
func decode(doc []byte) (*body, error) {
	b, err := read(doc)
	if _, broken := err.(*wire.SyntaxError); broken {
		if mended, ok := wire.EscapeControls(doc); ok {
			b, err = read(mended)
		}
	}
	if broken, ok := err.(*wire.SyntaxError); ok {
		return nil, broken.Cause
	}
	return b, err
}

func read(doc []byte) (*body, error) {
	r, b := wire.NewReader(doc, ""), new(body)
	err := r.Object("an object", func(name []byte) error {
		if read := byName[string(name)]; read != nil {
			return read(r, b)
		}
		if unknown := wire.CleanText(string(name)); !slices.Contains(b.unknown, unknown) && len(b.unknown) < maxUnknown {
			b.unknown = append(b.unknown, unknown)
		}
		return r.Skip()
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// readInput reads a string, which is one user message, or items.
func readInput(r *wire.Reader, b *body) error {
	b.input, b.hasInput = nil, false
	switch r.Kind() {
	case 'n':
		return r.Skip()
	case '"':
		s, err := r.Text("a string")
		b.input, b.hasInput = []Item{userItem(s)}, true
		return err
	}
	b.hasInput = true
	return r.Array("a string or an array of items", func(i int) error {
		if err := b.count.Take(r, itemParts); err != nil {
			return err
		}
		item, err := readItem(r, i, &b.count)
		b.input = append(b.input, item)
		return err
	})
}

// readMetadata reads at most 16 pairs of short strings.
func readMetadata(r *wire.Reader, b *body) error {
	const most, longestKey, longestValue = 16, 64, 512
	b.metadata, b.metadataRaw = nil, nil
	if null, err := r.Null(); null {
		return err
	}
	b.metadata = map[string]string{}
	raw, err := r.ObjectRaw("an object of strings", func(name []byte) error {
		key := wire.CleanText(string(name))
		value, err := r.Text("a string")
		if err != nil {
			return err
		}
		if len([]rune(key)) > longestKey || len([]rune(value)) > longestValue {
			return wire.Invalid("metadata", "metadata: keys have at most %d characters and values at most %d, see %q", longestKey, longestValue, wire.Clip(key))
		}
		b.metadata[key] = value
		return nil
	})
	if err == nil && len(b.metadata) > most {
		err = wire.Invalid("metadata", "metadata: at most %d pairs, got %d", most, len(b.metadata))
	}
	b.metadataRaw = wire.CleanRaw(raw)
	return err
}

// readInclude notes what else an answer shall show. Most of what can be asked
// for comes from tools that are not run here.
func readInclude(r *wire.Reader, b *body) error {
	b.includeReasoning, b.includeLogprobs = false, false
	if null, err := r.Null(); null {
		return err
	}
	return r.Array("an array of strings", func(int) error {
		what, err := r.Text("a string")
		switch what {
		case "reasoning.encrypted_content":
			b.includeReasoning = true
		case "message.output_text.logprobs":
			b.includeLogprobs = true
		}
		return err
	})
}

// The functions below make the read function of a field from the place its
// value goes to. What is null counts as absent.

func text(at func(*body) *string) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error { return wire.Nullable(r, at(b), wire.Text) }
}

func optionalText(at func(*body) **string) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error { return wire.Optional(r, at(b), wire.Text) }
}

func boolean(at func(*body) **bool) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error { return wire.Optional(r, at(b), (*wire.Reader).Boolean) }
}

func integer(at func(*body) **int64) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error {
		return wire.Optional(r, at(b), func(r *wire.Reader) (int64, error) { return r.Integer(math.MinInt64, math.MaxInt64) })
	}
}

func number(at func(*body) **float64) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error { return wire.Optional(r, at(b), (*wire.Reader).Float) }
}

func raw(at func(*body) *[]byte) func(*wire.Reader, *body) error {
	return func(r *wire.Reader, b *body) error { return wire.Nullable(r, at(b), wire.Clean) }
}

// accept takes a value of any type, without effect.
func accept(r *wire.Reader, _ *body) error { return r.Skip() }

// looseBoolean reads a boolean; what is none counts as absent.
func looseBoolean(r *wire.Reader) (*bool, error) {
	if k := r.Kind(); k != 't' && k != 'f' {
		return nil, r.Skip()
	}
	v, err := r.Boolean()
	return &v, err
}

// index returns the path of an element.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
