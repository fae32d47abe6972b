package sglang

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// generateBody is what /generate reads of a request. What it does not know it
// passes over.
type generateBody struct {
	RID           string   `json:"rid"`
	InputIDs      []uint32 `json:"input_ids"`
	Stream        bool     `json:"stream"`
	ReturnLogprob bool     `json:"return_logprob"`
	LogprobStart  *int     `json:"logprob_start_len"`
	TopLogprobs   int      `json:"top_logprobs_num"`
	Priority      *int32   `json:"priority"`
	ExtraKey      string   `json:"extra_key"`
	LoRA          string   `json:"lora_path"`
	DPRank        *uint32  `json:"routed_dp_rank"`
	SessionID     string   `json:"session_id"`
	Room          *uint64  `json:"bootstrap_room"`
	Sampling      struct {
		MaxNew      *int               `json:"max_new_tokens"`
		MinNew      int                `json:"min_new_tokens"`
		Temperature *float64           `json:"temperature"`
		TopP        *float64           `json:"top_p"`
		TopK        *int               `json:"top_k"`
		Seed        *int64             `json:"sampling_seed"`
		LogitBias   map[string]float64 `json:"logit_bias"`
		Stop        []uint32           `json:"stop_token_ids"`
		IgnoreEOS   bool               `json:"ignore_eos"`
		JSONSchema  *string            `json:"json_schema"`
		Regex       *string            `json:"regex"`
		EBNF        *string            `json:"ebnf"`
		Tag         *string            `json:"structural_tag"`
	} `json:"sampling_params"`
}

// request turns a body into what the mock engine is asked.
func (s *Server) request(b *generateBody) (*engine.Request, error) {
	p := &b.Sampling
	r := &engine.Request{
		ID: b.RID, TokenIDs: b.InputIDs, DPRank: b.DPRank,
		KV:       kv.Directives{Namespace: kv.Namespace{LoRA: b.LoRA, Salt: b.ExtraKey}},
		Sampling: engine.Sampling{Temperature: p.Temperature, TopP: p.TopP, Seed: p.Seed},
		Stop:     engine.Stop{MaxTokens: defaultMaxNew, MinTokens: p.MinNew},
	}
	if p.MaxNew != nil {
		r.Stop.MaxTokens = *p.MaxNew
	}
	if !p.IgnoreEOS {
		// The id that ends an answer stays in it, whoever listed it.
		r.Stop.IDs = slices.Concat(p.Stop, s.cfg.Mock.EOS)
	}
	if b.ReturnLogprob {
		r.Logprobs = &b.TopLogprobs
		if b.LogprobStart != nil && *b.LogprobStart == 0 {
			r.PromptLogprobs = &b.TopLogprobs
		}
	}
	if p.TopK != nil && *p.TopK == 0 {
		return nil, errors.New("top_k must be -1 (disable), or at least 1, got 0")
	}
	if !s.cfg.LoRA && b.LoRA != "" {
		return nil, errors.New("LoRA is not enabled")
	}
	if b.Priority != nil {
		if !s.cfg.Priority {
			return nil, errors.New("priority is disabled for this server")
		}
		urgency := *b.Priority
		if s.cfg.LowFirst {
			urgency = -urgency
		}
		r.Priority = &urgency
	}
	for id := range p.LogitBias {
		if _, err := strconv.ParseUint(id, 10, 32); err != nil {
			return nil, errors.New("logit_bias must have token ids as keys")
		}
	}
	return r, b.hold(r)
}

// hold reads the one constraint that a request may have.
func (b *generateBody) hold(r *engine.Request) error {
	p := &b.Sampling
	for _, c := range []struct {
		text *string
		kind chat.FormatKind
	}{
		{p.JSONSchema, chat.FormatJSONSchema},
		{p.Regex, chat.FormatRegex},
		{p.EBNF, chat.FormatGrammar},
		{p.Tag, chat.FormatStructuralTag},
	} {
		if c.text == nil {
			continue
		}
		if r.Format != nil {
			return errors.New("only one of regex, json_schema, ebnf or structural_tag can be set")
		}
		r.Format = &chat.OutputFormat{Kind: c.kind, Pattern: *c.text}
		if c.kind == chat.FormatJSONSchema || c.kind == chat.FormatStructuralTag {
			r.Format.Schema = []byte(*c.text)
		}
	}
	return nil
}

func (s *Server) generate(w http.ResponseWriter, hr *http.Request) {
	var b generateBody
	if err := json.UnmarshalRead(hr.Body, &b); err != nil {
		tell(w, http.StatusUnprocessableEntity, map[string]any{"detail": err.Error()})
		return
	}
	r, err := s.request(&b)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithCancelCause(hr.Context())
	defer cancel(nil)
	finish, ok := s.begin(b.RID, cancel)
	if !ok {
		fail(w, http.StatusBadRequest, "Duplicate request ID: "+b.RID)
		return
	}
	defer finish()
	// A server for one of the legs keeps whoever sends it a whole request.
	if s.held() || s.cfg.Mode != "" && b.Room == nil {
		<-ctx.Done()
		return
	}
	if s.cfg.Mode != "" && !s.cfg.Bootstrap.arrive(*b.Room, s.cfg.Mode) {
		fail(w, http.StatusBadRequest, "the room is taken")
		return
	}
	if s.cfg.Mode == "decode" && !s.cfg.Bootstrap.await(ctx, *b.Room, s.cfg.Mode) {
		return
	}
	a := answer{s: s, w: w, rid: b.RID, r: r, finish: finish}
	for d, err := range s.engine.Generate(ctx, r) {
		if err != nil {
			a.fail(ctx, err)
			return
		}
		// What was computed is kept until the decode leg has come for it.
		if d.Finish != engine.Running && s.cfg.Mode == "prefill" && !s.cfg.Bootstrap.await(ctx, *b.Room, s.cfg.Mode) {
			return
		}
		a.give(d)
	}
	a.done()
}

func (s *Server) held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused
}

// begin notes a request, unless one of its id is running.
func (s *Server) begin(rid string, cancel context.CancelCauseFunc) (finish func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[rid] != nil {
		return nil, false
	}
	mine := &work{cancel}
	s.running[rid] = mine
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running[rid] == mine {
			delete(s.running, rid)
		}
	}, true
}

// answer is a stream on its way out.
type answer struct {
	s   *Server
	w   http.ResponseWriter
	rid string
	r   *engine.Request

	finish func()
	begun  bool
	ids    []uint32
	lps    []engine.Logprob
	prompt []engine.Logprob
	cached int
}

type metaInfo struct {
	ID         string  `json:"id"`
	Finish     any     `json:"finish_reason"`
	Prompt     int     `json:"prompt_tokens"`
	Completion int     `json:"completion_tokens"`
	Cached     int     `json:"cached_tokens"`
	Output     []any   `json:"output_token_logprobs,omitempty"`
	OutputTop  [][]any `json:"output_top_logprobs,omitempty"`
	Input      []any   `json:"input_token_logprobs,omitempty"`
	InputTop   [][]any `json:"input_top_logprobs,omitempty"`
}

// give sends one chunk.
func (a *answer) give(d engine.Delta) {
	before := len(a.ids)
	a.ids, a.lps = append(a.ids, d.TokenIDs...), append(a.lps, d.Logprobs...)
	if d.PromptLogprobs != nil {
		a.prompt = d.PromptLogprobs
	}
	if d.Usage != nil && d.Usage.Cached != nil {
		a.cached = *d.Usage.Cached
	}
	if !a.s.cfg.Incremental {
		before = 0
	}
	m := metaInfo{ID: a.rid, Prompt: len(a.r.TokenIDs), Completion: len(a.ids), Cached: a.cached}
	if a.r.Logprobs != nil {
		m.Output, m.OutputTop = triples(a.lps[before:])
	}
	m.Input, m.InputTop = triples(a.prompt)
	ids := a.ids[before:]
	switch d.Finish {
	case engine.FinishLength:
		m.Finish = map[string]any{"type": "length", "length": len(a.ids)}
	case engine.FinishStop, engine.FinishEOS:
		m.Finish = map[string]any{"type": "stop", "matched": d.MatchedIDs[0]}
		if a.s.cfg.TrimStop && len(ids) > 0 {
			ids = ids[:len(ids)-1]
		}
	}
	if m.Finish != nil {
		a.finish() // who sees the end may use the id again
	}
	a.event(map[string]any{"text": "", "output_ids": slices.Clip(ids), "meta_info": m})
}

// triples writes log probabilities as [logprob, id, text].
func triples(lps []engine.Logprob) (chosen []any, tops [][]any) {
	one := func(lp engine.Logprob) any {
		if math.IsNaN(lp.Logprob) {
			return []any{nil, lp.ID, nil}
		}
		return []any{lp.Logprob, lp.ID, nil}
	}
	for _, lp := range lps {
		chosen = append(chosen, one(lp))
		var top []any
		for _, t := range lp.Top {
			top = append(top, one(t))
		}
		tops = append(tops, top)
	}
	return chosen, tops
}

func (a *answer) event(v any) {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // made by this package alone
	}
	a.write(data)
}

func (a *answer) write(data jsontext.Value) {
	a.w.Write(slices.Concat([]byte("data: "), data, []byte("\n\n"))) //nolint:errcheck // the context tells
	if err := http.NewResponseController(a.w).Flush(); err != nil {
		return // nobody is left to read
	}
}

func (a *answer) done() { a.write(jsontext.Value("[DONE]")) }

// fail ends an answer as the server does: before it began by a status, after
// that by a word in the stream, and when it dies by silence.
func (a *answer) fail(ctx context.Context, err error) {
	kind := engine.KindOf(err)
	switch {
	case errors.Is(context.Cause(ctx), errAborted):
		m := metaInfo{ID: a.rid, Prompt: len(a.r.TokenIDs), Completion: len(a.ids)}
		m.Finish = map[string]any{"type": "abort", "message": "Aborted"}
		a.event(map[string]any{"text": "", "output_ids": []uint32{}, "meta_info": m})
		a.done()
	case ctx.Err() != nil:
	case a.begun, kind == engine.EngineShutdown:
		panic(http.ErrAbortHandler)
	case kind == engine.InvalidArgument:
		fail(a.w, http.StatusBadRequest, err.Error())
	case kind == engine.Unavailable:
		fail(a.w, http.StatusServiceUnavailable, err.Error())
	default:
		fail(a.w, http.StatusInternalServerError, err.Error())
	}
}
