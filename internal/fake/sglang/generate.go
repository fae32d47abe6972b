package sglang

import (
	"cmp"
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
// passes over, but for late builds.
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
	OldDPRank     *uint32  `json:"data_parallel_rank"`
	Session       *struct {
		ID string `json:"id"`
	} `json:"session_params"`
	Host        string  `json:"bootstrap_host"`
	Port        uint16  `json:"bootstrap_port"`
	Room        *uint64 `json:"bootstrap_room"`
	PrefillRank *uint32 `json:"disagg_prefill_dp_rank"`

	DPRank    *uint32 `json:"routed_dp_rank" since:"0.5.14"`
	SessionID string  `json:"session_id" since:"0.5.14"`
	CacheSalt string  `json:"cache_salt" since:"0.5.22"`
	Thinking  *int    `json:"max_thinking_tokens" since:"0.5.22"`
	Experts   bool    `json:"return_routed_experts"`

	Sampling struct {
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
		ID: b.RID, TokenIDs: b.InputIDs, DPRank: cmp.Or(b.DPRank, b.OldDPRank),
		KV:       kv.Directives{Namespace: kv.Namespace{LoRA: b.LoRA, Salt: cmp.Or(b.CacheSalt, b.ExtraKey)}},
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
	switch {
	case b.LoRA == "":
	case !s.cfg.LoRA:
		return nil, errors.New("LoRA is not enabled")
	case !s.loaded(b.LoRA):
		return nil, errors.New("Got LoRA adapter that has never been loaded: " + b.LoRA)
	}
	if b.Thinking != nil && !s.cfg.StrictThinking {
		return nil, errors.New("max_thinking_tokens requires --enable-strict-thinking")
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
	b, err := s.parse(hr.Body)
	if err != nil {
		tell(w, http.StatusUnprocessableEntity, map[string]any{"detail": err.Error()})
		return
	}
	a := answer{s: s, w: w, rid: b.RID, stream: b.Stream, experts: b.Experts, finish: func() {}}
	r, err := s.request(b)
	if err != nil {
		a.refuse(err)
		return
	}
	a.r = r
	ctx, cancel := context.WithCancelCause(hr.Context())
	defer cancel(nil)
	finish, err := s.begin(b.RID, cancel)
	switch {
	case errors.Is(err, errQueueFull):
		a.abort(http.StatusServiceUnavailable, err.Error())
		return
	case err != nil:
		a.refuse(err)
		return
	}
	defer finish()
	a.finish = finish
	if s.stuck() {
		a.hang(ctx)
		return
	}
	if b.Session != nil {
		leave, err := s.enter(b.Session.ID, r)
		if err != nil {
			a.abort(http.StatusBadRequest, err.Error())
			return
		}
		a.leave = leave
		defer leave(nil)
	}
	s.leg(ctx, b, &a)
}

// leg answers a request, or does the part of it that this server is for.
func (s *Server) leg(ctx context.Context, b *generateBody, a *answer) {
	mode := s.cfg.Mode
	if mode == "" || b.Host == FakeHost {
		a.run(ctx, nil)
		return
	}
	if b.Room == nil {
		a.hang(ctx) // a server for one of the legs keeps whoever sends it a whole request
		return
	}
	meet := s.cfg.Bootstrap
	room, err := meet.enter(*b.Room, mode)
	if err != nil {
		a.refuse(err)
		return
	}
	defer meet.leave(*b.Room, mode)
	if mode == "prefill" {
		// What was computed is kept until the decode leg has come for it.
		a.run(ctx, func() error { return meet.keep(ctx, room) })
		return
	}
	switch err := meet.fetch(ctx, room); {
	case errors.Is(err, errTransfer):
		a.abort(http.StatusInternalServerError, err.Error())
	case err != nil:
		a.fail(ctx, err)
	default:
		a.run(ctx, nil)
	}
}

// hang keeps whoever asks until it leaves, or is made to.
func (a *answer) hang(ctx context.Context) {
	<-ctx.Done()
	a.fail(ctx, ctx.Err())
}

// run gives what the mock engine makes of a request. Before its end it calls last.
func (a *answer) run(ctx context.Context, last func() error) {
	for d, err := range a.s.engine.Generate(ctx, a.r) {
		if err == nil && d.Finish != engine.Running && last != nil {
			err = last()
		}
		if err != nil {
			a.fail(ctx, err)
			return
		}
		a.give(d)
	}
	a.done()
}

// refusal is an error in the server's own words.
type refusal string

func (r refusal) Error() string { return string(r) }

const errQueueFull = refusal("The request queue is full.")

// begin notes a request, unless one of its id is running.
func (s *Server) begin(rid string, cancel context.CancelCauseFunc) (finish func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.running[rid] != nil:
		return nil, errors.New("Duplicate request ID: " + rid)
	case s.cfg.MostRunning > 0 && len(s.running) >= s.cfg.MostRunning:
		return nil, errQueueFull
	}
	mine := &work{cancel}
	s.running[rid] = mine
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running[rid] == mine {
			delete(s.running, rid)
		}
	}, nil
}

// answer is a stream on its way out.
type answer struct {
	s   *Server
	w   http.ResponseWriter
	rid string
	r   *engine.Request

	stream  bool
	experts bool // are asked for
	finish  func()
	begun   bool
	ids     []uint32
	lps     []engine.Logprob
	prompt  []engine.Logprob
	cached  int
	leave   func(whole []uint32) // its session; nil: it has none
}

type metaInfo struct {
	ID         string  `json:"id"`
	Finish     any     `json:"finish_reason"`
	Prompt     int     `json:"prompt_tokens"`
	Completion int     `json:"completion_tokens"`
	Cached     int     `json:"cached_tokens"`
	Details    any     `json:"cached_tokens_details,omitempty"`
	Experts    string  `json:"routed_experts,omitempty"`
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
	if a.s.cfg.Late {
		m.Details = map[string]int{"device": a.cached, "host": 0}
	}
	if m.Finish != nil {
		if a.experts {
			m.Experts = a.s.cfg.Experts
		}
		a.finish() // who sees the end may use the id again, and go on
		if a.leave != nil {
			a.leave(slices.Concat(a.r.TokenIDs, a.ids))
		}
	}
	a.event(map[string]any{"text": "", "output_ids": slices.Clip(ids), "meta_info": m})
	if n := len(a.ids) / 2; a.s.cfg.Retract && m.Finish == nil && !a.s.cfg.Incremental && n > 0 {
		// Taken back, and computed again from here.
		m.Completion, m.Output, m.OutputTop = n, m.Output[:min(n, len(m.Output))], m.OutputTop[:min(n, len(m.OutputTop))]
		a.event(map[string]any{"text": "", "output_ids": a.ids[:n:n], "meta_info": m})
	}
}

// refuse says what is wrong with a request: with a status, or in the stream that was
// asked for, which has begun by then and names none.
func (a *answer) refuse(err error) {
	if !a.stream {
		fail(a.w, http.StatusBadRequest, err.Error())
		return
	}
	a.event(map[string]any{"error": map[string]any{"message": err.Error()}})
	a.done()
}

// abort ends an answer with a word about what is wrong, as the scheduler does.
func (a *answer) abort(status int, message string) {
	m := metaInfo{ID: a.rid, Prompt: len(a.r.TokenIDs)}
	m.Finish = map[string]any{"type": "abort", "message": message, "status_code": status, "err_type": http.StatusText(status)}
	a.finish()
	a.event(map[string]any{"text": "", "output_ids": []uint32{}, "meta_info": m})
	a.done()
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
	case errors.Is(context.Cause(ctx), errDied):
		panic(http.ErrAbortHandler)
	case ctx.Err() != nil:
	case a.begun, kind == engine.EngineShutdown:
		panic(http.ErrAbortHandler)
	case kind == engine.InvalidArgument:
		a.refuse(err)
	case kind == engine.Unavailable:
		fail(a.w, http.StatusServiceUnavailable, err.Error())
	default:
		fail(a.w, http.StatusInternalServerError, err.Error())
	}
}
