package sglang

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// generate is the body of /generate but for the ids of the prompt, which are
// written by hand.
type generate struct {
	RID              string   `json:"rid"`
	Stream           bool     `json:"stream"`
	ReturnLogprob    bool     `json:"return_logprob,omitempty"`
	LogprobStartLen  *int     `json:"logprob_start_len,omitempty"`
	TopLogprobsNum   int      `json:"top_logprobs_num,omitempty"`
	Priority         *int64   `json:"priority,omitempty"`
	ExtraKey         string   `json:"extra_key,omitempty"`
	CacheSalt        string   `json:"cache_salt,omitempty"`
	LoRA             string   `json:"lora_path,omitempty"`
	DPRank           *uint32  `json:"routed_dp_rank,omitempty"`
	OldDPRank        *uint32  `json:"data_parallel_rank,omitempty"`
	SessionID        string   `json:"session_id,omitempty"`
	Session          *inside  `json:"session_params,omitempty"`
	MaxThinkingToken *int     `json:"max_thinking_tokens,omitempty"`
	RoutedExperts    bool     `json:"return_routed_experts,omitempty"`
	Sampling         sampling `json:"sampling_params"`
}

// inside names the session that a request belongs to.
type inside struct {
	ID string `json:"id"`
}

type sampling struct {
	MaxNewTokens      int                `json:"max_new_tokens"`
	MinNewTokens      int                `json:"min_new_tokens,omitempty"`
	Temperature       *float64           `json:"temperature,omitempty"`
	TopP              *float64           `json:"top_p,omitempty"`
	TopK              *int               `json:"top_k,omitempty"`
	MinP              *float64           `json:"min_p,omitempty"`
	FrequencyPenalty  *float64           `json:"frequency_penalty,omitempty"`
	PresencePenalty   *float64           `json:"presence_penalty,omitempty"`
	RepetitionPenalty *float64           `json:"repetition_penalty,omitempty"`
	Seed              *int64             `json:"sampling_seed,omitempty"`
	LogitBias         map[string]float64 `json:"logit_bias,omitempty"`
	StopTokenIDs      []uint32           `json:"stop_token_ids,omitempty"`
	IgnoreEOS         bool               `json:"ignore_eos,omitempty"`
	JSONSchema        string             `json:"json_schema,omitempty"`
	Regex             string             `json:"regex,omitempty"`
	EBNF              string             `json:"ebnf,omitempty"`
	StructuralTag     string             `json:"structural_tag,omitempty"`
}

// body writes a request for /generate, within a session or not, or says why the
// server cannot do it.
func (e *Engine) body(r *engine.Request, t *turn) ([]byte, error) {
	if err := e.refuse(r); err != nil {
		return nil, err
	}
	g := generate{RID: r.ID, Stream: true, LoRA: r.KV.Namespace.LoRA, Priority: e.priority(r), Sampling: e.sampling(r)}
	ids := r.TokenIDs
	var takes fields
	if f := e.facts.Load(); f != nil {
		takes = f.fields
		g.RoutedExperts = r.RoutedExperts && f.tellsExperts && takes.has("return_routed_experts", true)
	}
	switch takes.rank() {
	case "routed_dp_rank":
		g.DPRank = r.DPRank
	case "data_parallel_rank":
		g.OldDPRank = r.DPRank
	}
	if salt := r.KV.Namespace.Salt; salt != "" {
		if takes.salt() == "cache_salt" {
			g.CacheSalt = saltPrefix + salt
		} else {
			g.ExtraKey = saltPrefix + salt
		}
	}
	switch {
	case t == nil:
	case t.kind == streaming:
		g.Session, ids = &inside{t.name()}, ids[t.from:]
	case takes.has("session_id", true):
		g.SessionID = t.name()
	default:
		g.Session = &inside{t.name()}
	}
	if f, _ := e.features(); f.Has(engine.FeatureThinkingBudget) {
		g.MaxThinkingToken = r.ThinkingBudget
	}
	start := -1 // of the output alone
	for _, k := range []*int{r.Logprobs, r.PromptLogprobs} {
		if k != nil {
			g.ReturnLogprob, g.LogprobStartLen = true, &start
			g.TopLogprobsNum = max(g.TopLogprobsNum, *k)
		}
	}
	if r.PromptLogprobs != nil {
		start = 0
	}
	if err := g.Sampling.hold(r.Format); err != nil {
		return nil, err
	}
	if r.Disagg.Phase == engine.PhasePrefill {
		g.Sampling.MaxNewTokens, g.Sampling.MinNewTokens = 1, 0 // thrown away
	}
	// In front of ours, which hold where both have a member.
	var more []byte
	objects := []jsontext.Value{jsontext.Value(e.cfg.ExtraBody), jsontext.Value(r.Extra)}
	if r.Disagg.Phase != engine.PhaseWhole {
		objects = append(objects, jsontext.Value(r.Disagg.Handoff))
	}
	for _, object := range objects {
		m, err := members(object)
		if err != nil {
			return nil, err
		}
		more = append(more, m...)
	}
	rest, err := json.Marshal(&g)
	if err != nil {
		return nil, engine.Errorf(engine.InvalidArgument, "sglang: a parameter cannot be written: %v", err)
	}
	body := make([]byte, 0, len(rest)+8*len(ids)+len(more)+16)
	body = append(body, `{"input_ids":`...)
	body = httpapi.AppendIDs(body, ids)
	body = append(append(body, more...), ',')
	return append(body, rest[1:]...), nil
}

// members returns those of an object, each behind a comma, as they came: numbers
// in them may be larger than a float64 holds.
func members(object jsontext.Value) ([]byte, error) {
	if len(object) == 0 {
		return nil, nil
	}
	v := object.Clone()
	if err := v.Compact(); err != nil || v.Kind() != '{' {
		return nil, engine.Errorf(engine.InvalidArgument, "sglang: what is to go along with a request is no JSON object")
	}
	if len(v) == len("{}") {
		return nil, nil
	}
	return append([]byte{','}, v[1:len(v)-1]...), nil
}

// refuse returns the error for a request that the server would not do as asked.
func (e *Engine) refuse(r *engine.Request) error {
	features, known := e.features()
	switch lora := r.KV.Namespace.LoRA; {
	case len(r.TokenIDs) == 0:
		return engine.Errorf(engine.Unsupported, "sglang: the request has no token ids")
	case len(r.Stop.Strings) > 0:
		return engine.Errorf(engine.Unsupported, "sglang: stop strings are found in texts, and this server is asked for ids")
	case len(r.Sampling.AllowedIDs) > 0:
		return engine.Errorf(engine.Unsupported, "sglang: the server has no list of allowed token ids")
	case len(r.Sampling.BadWords) > 0:
		return engine.Errorf(engine.Unsupported, "sglang: the server has no list of forbidden words")
	case known && lora != "" && !features.Has(engine.FeatureLoRA):
		return engine.Errorf(engine.Unsupported, "sglang: adapter %q asked for, but the server was started without --enable-lora", lora)
	case known && r.KV.Namespace.Salt != "" && !features.Has(engine.FeatureCacheSalt):
		return engine.Errorf(engine.Unsupported, "sglang: a cache of one's own was asked for, and the server keeps one for all")
	}
	if err := e.misplaced(r); err != nil {
		return err
	}
	for _, k := range []*int{r.Logprobs, r.PromptLogprobs} {
		if k != nil && *k > int(e.cfg.MaxLogprobs) {
			return engine.Errorf(engine.InvalidArgument, "%d alternatives per token asked for, the most are %d", *k, e.cfg.MaxLogprobs)
		}
	}
	return nil
}

// priority is what the server is told, whose numbers rise with urgency unless it
// was started to see them the other way round. Where they protect what was cached,
// too, work in the background keeps the number of what it works for, or else
// nobody's: what it has warmed would go first.
func (e *Engine) priority(r *engine.Request) *int64 {
	facts := e.facts.Load()
	if r.Priority == nil || facts == nil || facts.card == nil || !facts.card.Features.Has(engine.FeaturePriority) {
		return nil
	}
	p := int64(*r.Priority)
	if facts.evictsByPriority && p < 0 {
		p = 0
		if of := r.KV.Priority; of != nil {
			p = max(int64(*r.Priority), int64(*of))
		}
	}
	if facts.lowFirst {
		p = min(-p, 1<<31-1)
	}
	return &p
}

func (e *Engine) sampling(r *engine.Request) sampling {
	s := &r.Sampling
	out := sampling{
		MaxNewTokens: r.Stop.MaxTokens, Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK, MinP: s.MinP,
		FrequencyPenalty: s.FrequencyPenalty, PresencePenalty: s.PresencePenalty, RepetitionPenalty: s.RepetitionPenalty,
		LogitBias: s.NamedBias(), StopTokenIDs: r.Stop.Ends(),
		// Nothing that the model ends with is to end it: the server knows such
		// ids of its own.
		IgnoreEOS: len(r.Stop.Hidden) == 0,
	}
	if s.TopK != nil && *s.TopK <= 0 {
		off := -1
		out.TopK = &off
	}
	f, known := e.features()
	if !known || f.Has(engine.FeatureMinTokens) {
		out.MinNewTokens = min(r.Stop.MinTokens, r.Stop.MaxTokens) // more than that is refused
	}
	if !known || f.Has(engine.FeatureSeed) {
		out.Seed = s.Seed
	}
	return out
}

// hold writes what an answer is held to. The server takes a schema as a text.
func (s *sampling) hold(f *chat.OutputFormat) error {
	if f == nil {
		return nil
	}
	switch f.Kind {
	case chat.FormatText:
	case chat.FormatJSONObject:
		s.JSONSchema = `{"type":"object"}`
	case chat.FormatJSONSchema:
		s.JSONSchema = string(f.Schema)
	case chat.FormatRegex:
		s.Regex = f.Pattern
	case chat.FormatGrammar:
		s.EBNF = f.Pattern
	case chat.FormatStructuralTag:
		s.StructuralTag = string(f.Schema)
	case chat.FormatChoice:
		s.Regex = f.ChoicePattern()
	default:
		return engine.Errorf(engine.Unsupported, "sglang: output format %q", f.Kind)
	}
	return nil
}
