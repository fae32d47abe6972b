package vllm

import (
	"bytes"
	"math"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// Routes that answer with tokens.
const (
	generatePath    = "/inference/v1/generate"
	completionsPath = "/v1/completions"
)

// abortPaths give requests up by their ids. Only late builds have the first, and
// others have the second if they were started for tokens only.
var abortPaths = [...]string{"/inference/v1/abort_requests", "/abort_requests"}

// saltPrefix tells a salt from an adapter's name or the hash of an image among the
// keys of a block.
const saltPrefix = "dynamo-cache-salt:"

// dialect is what one build understands.
type dialect struct {
	generate   bool   // /inference/v1/generate
	tokenMode  bool   // completions with return_token_ids
	structured bool   // structured_outputs, else guided_json and its kin
	abort      string // the path by which requests are given up, or ""
	session    bool   // names of sessions
}

func (d *dialect) path() string {
	if d.generate {
		return generatePath
	}
	return completionsPath
}

// header returns what stands outside of the body.
func (d *dialect) header(r *engine.Request, c *engine.Card) http.Header {
	var h http.Header
	set := func(name, value string) {
		if h == nil {
			h = http.Header{}
		}
		h.Set(name, value)
	}
	if id := r.KV.Session.ID; id != "" && d.session && d.generate {
		set("X-Session-Id", id) // the body has no place for it
	}
	if r.DPRank != nil && c.Features.Has(engine.FeatureDPRank) {
		set("X-Data-Parallel-Rank", strconv.FormatUint(uint64(*r.DPRank), 10))
	}
	if r.Disagg.Phase != engine.PhaseWhole {
		set("X-Request-Id", r.ID) // connectors find the legs of a request by it
	}
	if r.Trace.Parent != "" {
		set("Traceparent", r.Trace.Parent)
	}
	if r.Trace.State != "" {
		set("Tracestate", r.Trace.State)
	}
	return h
}

// body returns what is posted to d.path for a request to an engine with this card.
func (d *dialect) body(r *engine.Request, c *engine.Card) []byte {
	o := object{b: make([]byte, 0, 512+7*len(r.TokenIDs))}
	o.value("request_id", r.ID)
	o.value("model", modelOf(r, c))
	if d.generate {
		o.ids("token_ids", r.TokenIDs)
	} else {
		o.ids("prompt", r.TokenIDs)
		o.value("return_token_ids", true)
		o.value("return_tokens_as_token_ids", true)
		if id := r.KV.Session.ID; id != "" && d.session {
			o.value("session_id", id)
		}
	}
	o.value("stream", streams(r))
	if streams(r) {
		o.raw("stream_options", []byte(`{"include_usage":true}`))
	}
	if salt := r.KV.Namespace.Salt; salt != "" {
		o.value("cache_salt", saltPrefix+salt)
	}
	if r.Priority != nil && c.Features.Has(engine.FeaturePriority) {
		o.value("priority", min(-int64(*r.Priority), math.MaxInt32))
	}
	if transfer := r.Disagg.Handoff; len(transfer) > 0 {
		o.raw("kv_transfer_params", transfer)
	}
	if d.generate {
		var params object
		d.sampling(&params, r, c)
		params.value("detokenize", false)
		if transfer := r.Disagg.Handoff; len(transfer) > 0 {
			// Builds differ in which of the two places they read.
			var extra object
			extra.raw("kv_transfer_params", transfer)
			params.raw("extra_args", extra.end())
		}
		o.raw("sampling_params", params.end())
	} else {
		d.sampling(&o, r, c)
	}
	o.members(r.Extra)
	return o.end()
}

// streams says whether the answer comes in pieces. Only one that is given whole
// tells of the prompt's log probabilities, or of what is handed over.
func streams(r *engine.Request) bool {
	return r.PromptLogprobs == nil && r.Disagg.Phase != engine.PhasePrefill
}

// modelOf returns the name that selects the weights: an adapter is a model of its
// own.
func modelOf(r *engine.Request, c *engine.Card) string {
	switch {
	case r.KV.Namespace.LoRA != "":
		return r.KV.Namespace.LoRA
	case r.Model != "":
		return r.Model
	}
	return c.Model
}

// sampling adds what the two routes call by the same names.
func (d *dialect) sampling(o *object, r *engine.Request, c *engine.Card) {
	o.value("max_tokens", r.Stop.MaxTokens)
	if r.Stop.MinTokens > 0 {
		o.value("min_tokens", min(r.Stop.MinTokens, r.Stop.MaxTokens))
	}
	s := &r.Sampling
	optional(o, "temperature", s.Temperature)
	optional(o, "top_p", s.TopP)
	optional(o, "top_k", s.TopK)
	optional(o, "min_p", s.MinP)
	optional(o, "frequency_penalty", s.FrequencyPenalty)
	optional(o, "presence_penalty", s.PresencePenalty)
	optional(o, "repetition_penalty", s.RepetitionPenalty)
	optional(o, "seed", s.Seed)
	if len(s.LogitBias) > 0 {
		o.value("logit_bias", s.LogitBias)
	}
	if len(s.AllowedIDs) > 0 {
		o.ids("allowed_token_ids", s.AllowedIDs)
	}
	if ends := r.Stop.Ends(); len(ends) > 0 {
		o.ids("stop_token_ids", ends)
	}
	if len(r.Stop.Hidden) == 0 {
		o.value("ignore_eos", true) // the engine knows an end of its own
	}
	optional(o, "logprobs", r.Logprobs)
	optional(o, "prompt_logprobs", r.PromptLogprobs)
	if c.Features.Has(engine.FeatureThinkingBudget) {
		optional(o, "thinking_token_budget", r.ThinkingBudget)
	}
	d.form(o, r.Format)
}

// form adds the form that the answer is held to.
func (d *dialect) form(o *object, f *chat.OutputFormat) {
	if f == nil {
		return
	}
	if f.Kind == chat.FormatStructuralTag && !d.structured {
		o.raw("response_format", f.Schema)
		return
	}
	var form object
	switch f.Kind {
	case chat.FormatJSONObject:
		form.value("json_object", true)
	case chat.FormatJSONSchema:
		if form.raw("json", f.Schema); len(f.Schema) == 0 {
			form.b = append(form.b, "{}"...) // any value
		}
	case chat.FormatRegex:
		form.value("regex", f.Pattern)
	case chat.FormatGrammar:
		form.value("grammar", f.Pattern)
	case chat.FormatChoice:
		form.value("choice", f.Choices)
	case chat.FormatStructuralTag:
		form.value("structural_tag", string(f.Schema))
	default:
		return
	}
	if d.structured {
		o.raw("structured_outputs", form.end())
		return
	}
	// What was one object once stood apart, under names with a prefix.
	o.members(append([]byte(`{"guided_`), form.end()[2:]...))
}

// object is a JSON object in the making.
type object struct{ b []byte }

func (o *object) name(name string) {
	if len(o.b) == 0 {
		o.b = append(o.b, '{')
	} else {
		o.b = append(o.b, ',')
	}
	o.b = append(append(append(o.b, '"'), name...), '"', ':')
}

func (o *object) raw(name string, value []byte) {
	o.name(name)
	o.b = append(o.b, value...)
}

func (o *object) ids(name string, ids []uint32) {
	o.name(name)
	o.b = httpapi.AppendIDs(o.b, ids)
}

// value adds what is always possible in JSON, up to numbers that are none.
func (o *object) value(name string, v any) {
	switch v := v.(type) {
	case bool:
		o.name(name)
		o.b = strconv.AppendBool(o.b, v)
		return
	case int:
		o.name(name)
		o.b = strconv.AppendInt(o.b, int64(v), 10)
		return
	case string:
		if utf8.ValidString(v) {
			o.name(name)
			o.b, _ = jsontext.AppendQuote(o.b, v)
			return
		}
	}
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		text = []byte("null")
	}
	o.raw(name, text)
}

// members adds those of an object, or nothing.
func (o *object) members(of []byte) {
	inner := bytes.TrimSpace(of)
	if len(inner) < 2 || inner[0] != '{' {
		return
	}
	if inner = bytes.TrimSpace(inner[1 : len(inner)-1]); len(inner) == 0 {
		return
	}
	if len(o.b) == 0 {
		o.b = append(o.b, '{')
	} else {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, inner...)
}

// end returns the whole object.
func (o *object) end() []byte {
	if len(o.b) == 0 {
		o.b = append(o.b, '{')
	}
	return append(o.b, '}')
}

func optional[T any](o *object, name string, v *T) {
	if v != nil {
		o.value(name, *v)
	}
}
