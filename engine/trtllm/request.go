package trtllm

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// body is a request as the server takes it. Members are left out, never null.
type body struct {
	Model         string         `json:"model"`
	Prompt        jsontext.Value `json:"prompt"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options,omitzero"`
	Detokenize    bool           `json:"detokenize"`

	MaxTokens         int                `json:"max_tokens"`
	MinTokens         int                `json:"min_tokens,omitzero"`
	Temperature       *float64           `json:"temperature,omitzero"`
	TopP              *float64           `json:"top_p,omitzero"`
	TopK              *int               `json:"top_k,omitzero"`
	MinP              *float64           `json:"min_p,omitzero"`
	FrequencyPenalty  *float64           `json:"frequency_penalty,omitzero"`
	PresencePenalty   *float64           `json:"presence_penalty,omitzero"`
	RepetitionPenalty *float64           `json:"repetition_penalty,omitzero"`
	Seed              *int64             `json:"seed,omitzero"`
	LogitBias         map[string]float64 `json:"logit_bias,omitempty"`
	StopTokenIDs      []uint32           `json:"stop_token_ids,omitempty"`
	IncludeStop       bool               `json:"include_stop_str_in_output,omitzero"`
	IgnoreEOS         bool               `json:"ignore_eos,omitzero"`
	Logprobs          *int               `json:"logprobs,omitzero"`
	ThinkingBudget    *int               `json:"thinking_token_budget,omitzero"`
	Priority          *float64           `json:"priority,omitzero"`
	ResponseFormat    *responseFormat    `json:"response_format,omitzero"`
	LoRA              *Adapter           `json:"lora_request,omitzero"`
	Conversation      *conversation      `json:"conversation_params,omitzero"`
	Disagg            jsontext.Value     `json:"disaggregated_params,omitzero"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type conversation struct {
	ID string `json:"conversation_id"`
}

// responseFormat is how the server takes a constraint.
type responseFormat struct {
	Type   string         `json:"type"`
	Schema jsontext.Value `json:"schema,omitzero"`
	Regex  string         `json:"regex,omitzero"`
	EBNF   string         `json:"ebnf,omitzero"`
	Format jsontext.Value `json:"format,omitzero"`
}

// encode returns the body of a request, or the error of one that asks for what
// the server does not have.
func (e *Engine) encode(r *engine.Request) ([]byte, error) {
	about := e.about.Load()
	f := about.fields
	if err := e.refuse(r, f); err != nil {
		return nil, err
	}
	s := &r.Sampling
	b := body{
		Model: r.Model, Prompt: httpapi.AppendIDs(nil, r.TokenIDs), Stream: true, StreamOptions: &streamOptions{IncludeUsage: true},
		MaxTokens: r.Stop.MaxTokens, Temperature: s.Temperature, TopP: s.TopP, TopK: topK(s.TopK),
		FrequencyPenalty: s.FrequencyPenalty, PresencePenalty: s.PresencePenalty, RepetitionPenalty: s.RepetitionPenalty,
		StopTokenIDs: r.Stop.Ends(),
	}
	if r.Logprobs != nil {
		k := max(1, *r.Logprobs) // 0 is none at all
		b.Logprobs = &k
	}
	if b.Model == "" {
		b.Model = e.config.Model
	}
	b.IncludeStop = keepsStop(r) && f.has("include_stop_str_in_output")
	// Without ids that end a sequence it is not to end by itself either.
	b.IgnoreEOS = len(r.Stop.Hidden) == 0 && f.has("ignore_eos")
	if f.has("min_tokens") {
		b.MinTokens = min(r.Stop.MinTokens, r.Stop.MaxTokens)
	}
	if f.has("min_p") {
		b.MinP = s.MinP
	}
	if f.has("seed") {
		b.Seed = s.Seed
	}
	if f.has("logit_bias") {
		b.LogitBias = s.NamedBias()
	}
	if f.has("thinking_token_budget") {
		b.ThinkingBudget = r.ThinkingBudget
	}
	if r.Priority != nil && e.config.PriorityEnabled && f.has("priority") {
		p := squash(*r.Priority)
		b.Priority = &p
	}
	if id := r.KV.Session.ID; id != "" && f.has("conversation_params") {
		b.Conversation = &conversation{id}
	}
	if name := r.KV.Namespace.LoRA; name != "" {
		b.LoRA = e.adapter(name)
	}
	if formed(r) {
		b.ResponseFormat = formatOf(r.Format)
	}
	if err := b.leg(r, about.legs); err != nil {
		return nil, err
	}
	out, err := json.Marshal(&b, json.Deterministic(true), jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, engine.Errorf(engine.InvalidArgument, "a parameter cannot be written: %v", err)
	}
	return e.extend(out, r, f)
}

// ours are the members of bodies that are set here.
var ours = func() (names []string) {
	for f := range reflect.TypeFor[body]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}()

// extend adds the members that an operator and a request have besides, if the
// server knows them: any other would be refused.
func (e *Engine) extend(body []byte, r *engine.Request, f fields) ([]byte, error) {
	out := body[:len(body)-1]
	seen := slices.Clone(ours)
	for _, extra := range []jsontext.Value{jsontext.Value(r.Extra), jsontext.Value(e.config.ExtraBody)} {
		if len(extra) == 0 {
			continue
		}
		err := eachMember(extra, func(name string, value jsontext.Value) {
			if f.has(name) && !slices.Contains(seen, name) {
				seen, out = append(seen, name), appendMember(out, name, value)
			}
		})
		if err != nil {
			return nil, engine.Errorf(engine.InvalidArgument, "what is to go along with a request is no JSON object")
		}
	}
	return append(out, '}'), nil
}

// keepsStop says whether the server has to be told not to cut off the id that ends
// an answer. It names that id, which can be put back; not so how likely it was, nor
// whether one that stands at the end is that one, where it may stand there before.
func keepsStop(r *engine.Request) bool {
	return len(r.Stop.IDs) > 0 && (r.Logprobs != nil || r.Stop.MinTokens > 0)
}

// refuse is the error of a request that must not lose what it asks for.
func (e *Engine) refuse(r *engine.Request, f fields) error {
	lacks := func(what string) error {
		return engine.Errorf(engine.Unsupported, "%s is not available on TensorRT-LLM over HTTP", what)
	}
	switch {
	case formed(r) && (forms[r.Format.Kind] == "" || !f.has("response_format")):
		return lacks("guided output (" + string(r.Format.Kind) + ")")
	case r.KV.Namespace.LoRA != "" && (len(e.config.Adapters) == 0 || !f.has("lora_request")):
		return lacks("the adapter " + strconv.Quote(r.KV.Namespace.LoRA))
	case r.KV.Namespace.LoRA != "" && e.adapter(r.KV.Namespace.LoRA) == nil:
		return &engine.Error{Kind: engine.NotFound, Code: "model_not_found", Message: "the adapter " + strconv.Quote(r.KV.Namespace.LoRA) + " is none of this server's"}
	case r.KV.Namespace.Salt != "":
		return lacks("a cache of one's own (cache_salt)")
	case len(r.Stop.Strings) > 0:
		return lacks("a stop string")
	case len(r.Sampling.AllowedIDs) > 0, len(r.Sampling.BadWords) > 0:
		return lacks("a list of allowed or forbidden tokens")
	case r.PromptLogprobs != nil:
		return lacks("log probabilities of the prompt (prompt_logprobs)")
	case r.Disagg.Phase != engine.PhaseWhole && !f.has("disaggregated_params"):
		return lacks("a hand-off between prefill and decode")
	}
	return nil
}

func (e *Engine) adapter(name string) *Adapter {
	for i := range e.config.Adapters {
		if e.config.Adapters[i].Name == name {
			return &e.config.Adapters[i]
		}
	}
	return nil
}

// topK turns the -1 that stands for no limit into the server's 0.
func topK(k *int) *int {
	if k == nil || *k >= 0 {
		return k
	}
	off := 0
	return &off
}

// squash maps a priority to 0..1, where none is in the middle.
func squash(p int32) float64 {
	return 0.5 + float64(max(-100, min(p, 100)))/200
}

// forms are the constraints that the server takes, with their features.
var forms = map[chat.FormatKind]engine.Feature{
	chat.FormatJSONObject:    engine.FeatureGuidedObject,
	chat.FormatJSONSchema:    engine.FeatureGuidedJSON,
	chat.FormatRegex:         engine.FeatureGuidedRegex,
	chat.FormatChoice:        engine.FeatureGuidedChoice,
	chat.FormatGrammar:       engine.FeatureGuidedGrammar,
	chat.FormatStructuralTag: engine.FeatureStructuralTag,
}

func formed(r *engine.Request) bool { return r.Format != nil && r.Format.Kind != chat.FormatText }

func formatOf(f *chat.OutputFormat) *responseFormat {
	switch f.Kind {
	case chat.FormatJSONSchema:
		return &responseFormat{Type: "json", Schema: jsontext.Value(f.Schema)}
	case chat.FormatRegex:
		return &responseFormat{Type: "regex", Regex: f.Pattern}
	case chat.FormatGrammar:
		return &responseFormat{Type: "ebnf", EBNF: f.Pattern}
	case chat.FormatChoice:
		return &responseFormat{Type: "regex", Regex: f.ChoicePattern()}
	case chat.FormatStructuralTag:
		return &responseFormat{Type: "structural_tag", Format: tagFormat(f.Schema)}
	}
	return &responseFormat{Type: string(f.Kind)}
}

// tagFormat returns the format of a structural tag, which may stand in the tag
// or alone.
func tagFormat(tag []byte) jsontext.Value {
	var outer struct {
		Format jsontext.Value `json:"format"`
	}
	if json.Unmarshal(tag, &outer) == nil && len(outer.Format) > 0 && outer.Format[0] == '{' {
		return outer.Format
	}
	return jsontext.Value(tag)
}
