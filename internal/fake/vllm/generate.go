package vllm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
)

// Limits that a server has unless it was told otherwise.
const (
	mostLogprobs = 20
	mostSalt     = 1024
)

// params are the members that both routes call by the same names.
type params struct {
	MaxTokens      *int        `json:"max_tokens"`
	MinTokens      int         `json:"min_tokens"`
	N              int         `json:"n"`
	Temperature    *float64    `json:"temperature"`
	Seed           *int64      `json:"seed"`
	StopTokenIDs   []uint32    `json:"stop_token_ids"`
	IgnoreEOS      bool        `json:"ignore_eos"`
	Logprobs       *int        `json:"logprobs"`
	PromptLogprobs *int        `json:"prompt_logprobs"`
	Budget         *int        `json:"thinking_token_budget"`
	Structured     *structured `json:"structured_outputs"`
	ExtraArgs      struct {
		Transfer json.RawMessage `json:"kv_transfer_params"`
	} `json:"extra_args"`
}

type structured struct {
	JSON   json.RawMessage `json:"json"`
	Object bool            `json:"json_object"`
	Regex  string          `json:"regex"`
	Choice []string        `json:"choice"`
}

// asked is the body of either route.
type asked struct {
	params
	RequestID     string   `json:"request_id"`
	Model         string   `json:"model"`
	TokenIDs      []uint32 `json:"token_ids"`
	Prompt        []uint32 `json:"prompt"`
	ReturnIDs     bool     `json:"return_token_ids"`
	IDsAsTokens   bool     `json:"return_tokens_as_token_ids"`
	Stream        bool     `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	CacheSalt *string         `json:"cache_salt"`
	Priority  int             `json:"priority"`
	Sampling  *params         `json:"sampling_params"`
	Transfer  json.RawMessage `json:"kv_transfer_params"`

	keep   string // the name under which this request's blocks are kept
	pulled int    // tokens of the blocks that it has got from another server
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request)    { s.serve(w, r, true) }
func (s *Server) completions(w http.ResponseWriter, r *http.Request) { s.serve(w, r, false) }

// serve answers a request over one of the two routes.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, gen bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var a asked
	if err := json.Unmarshal(body, &a); err != nil {
		s.refuse(w, http.StatusBadRequest, "BadRequestError", "the body cannot be read: "+err.Error())
		return
	}
	if gen {
		if a.Sampling == nil || a.TokenIDs == nil {
			write(w, http.StatusUnprocessableEntity, map[string]any{"detail": []map[string]any{{"type": "missing", "loc": []string{"body", "token_ids"}}}})
			return
		}
		a.params, a.Prompt = *a.Sampling, a.TokenIDs
	}
	s.mu.Lock()
	s.bodies = append(s.bodies, body)
	s.mu.Unlock()
	q, status, problem := s.request(&a, gen, r.Header)
	if problem != "" {
		kind := "BadRequestError"
		if status == http.StatusNotFound {
			kind = "NotFoundError"
		}
		s.refuse(w, status, kind, problem)
		return
	}
	told, err := s.transferOf(&a, gen)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "BadRequestError", err.Error())
		return
	}
	a.keep = told.key(q.ID)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	name := "cmpl-" + q.ID + "-0"
	if gen {
		name = "generate-tokens-" + q.ID
	}
	leave, ok := s.enter(name, cancel)
	if !ok {
		s.refuse(w, http.StatusBadRequest, "BadRequestError", fmt.Sprintf("Request id %s already running.", q.ID))
		return
	}
	defer leave()
	if !s.rest.end(ctx) {
		return // it accepted, and has answered nothing
	}
	b, err := s.pull(ctx, told)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && s.config.Transfer.Fail:
		s.refuse(w, http.StatusInternalServerError, "InternalServerError", "the KV blocks cannot be loaded: "+err.Error())
		return
	}
	a.pulled = b.Tokens
	s.leg(q, a.keep, b)
	if a.Stream {
		s.stream(ctx, w, &a, q, gen)
	} else {
		s.whole(ctx, w, r, &a, q, gen)
	}
}

// enter makes a request known to aborts, under the name that its route makes of its
// id, until leave is called. One that runs is of nobody else.
func (s *Server) enter(id string, cancel context.CancelFunc) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[id] != nil {
		return nil, false
	}
	s.running[id] = cancel
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, id)
	}, true
}

// name returns the id of a request: as its header says, or its body, or one that
// nobody else has.
func (s *Server) name(body string, h http.Header) string {
	if id := cmp.Or(h.Get("X-Request-Id"), body); id != "" {
		return id
	}
	return fmt.Sprintf("request-%d", s.unnamed.Add(1))
}

// request applies the server's rules, and says what is wrong.
func (s *Server) request(a *asked, gen bool, h http.Header) (q *engine.Request, status int, problem string) {
	const bad = http.StatusBadRequest
	q = &engine.Request{ID: s.name(a.RequestID, h), TokenIDs: a.Prompt, Sampling: engine.Sampling{Temperature: a.Temperature, Seed: a.Seed}}
	s.mu.Lock()
	adapter := slices.Contains(s.adapters, a.Model)
	s.mu.Unlock()
	switch {
	case adapter:
		q.KV.Namespace.LoRA = a.Model
	case a.Model != "" && a.Model != s.config.Mock.Model:
		return nil, http.StatusNotFound, fmt.Sprintf("The model `%s` does not exist.", a.Model)
	}
	q.Stop.MaxTokens, q.Stop.MinTokens = 16, a.MinTokens
	if a.MaxTokens != nil {
		q.Stop.MaxTokens = *a.MaxTokens
	}
	if room := s.context() - len(a.Prompt); q.Stop.MaxTokens > room {
		return nil, bad, fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d tokens in the prompt and %d in the completion.", s.context(), len(a.Prompt), q.Stop.MaxTokens)
	}
	switch {
	case a.Priority != 0 && !s.config.Priority:
		return nil, bad, "Got priority but the scheduling policy is not priority"
	case a.Budget != nil && !s.config.Reasoning:
		return nil, bad, "thinking_token_budget is set but no reasoning config is given"
	case a.CacheSalt != nil && *a.CacheSalt == "":
		return nil, bad, "Parameter 'cache_salt' must be a non-empty string if provided."
	case a.CacheSalt != nil && len(*a.CacheSalt) > mostSalt:
		return nil, bad, fmt.Sprintf("String should have at most %d characters", mostSalt)
	case a.N > s.config.Mock.Args.MaxNumSeqs:
		return nil, bad, fmt.Sprintf("n must be at most %d", s.config.Mock.Args.MaxNumSeqs)
	case a.Logprobs != nil && *a.Logprobs > mostLogprobs:
		return nil, bad, fmt.Sprintf("Requested sample logprobs of %d, which is greater than max allowed: %d", *a.Logprobs, mostLogprobs)
	case a.PromptLogprobs != nil && a.Stream:
		return nil, bad, "`prompt_logprobs` are not available when `stream=True`."
	case a.MinTokens > q.Stop.MaxTokens:
		return nil, bad, "min_tokens must be less than or equal to max_tokens"
	}
	if a.CacheSalt != nil {
		q.KV.Namespace.Salt = *a.CacheSalt
	}
	priority := int32(min(max(-int64(a.Priority), math.MinInt32), math.MaxInt32))
	q.Priority = &priority
	q.Stop.IDs = slices.Clone(a.StopTokenIDs)
	if !a.IgnoreEOS {
		q.Stop.IDs = append(q.Stop.IDs, s.config.Mock.EOS...)
	}
	q.Logprobs, q.PromptLogprobs = a.Logprobs, a.PromptLogprobs
	if !gen && s.config.NoTokenIDs {
		a.ReturnIDs = false
	}
	if rank := h.Get("X-data-parallel-rank"); rank != "" {
		n, err := strconv.ParseUint(rank, 10, 32)
		if err != nil || int(n) >= max(1, s.config.Mock.Args.DPSize) {
			return nil, bad, "data_parallel_rank " + rank + " is out of range"
		}
		at := uint32(n)
		q.DPRank = &at
	}
	q.Format = a.Structured.format()
	return q, 0, ""
}

func (f *structured) format() *chat.OutputFormat {
	switch {
	case f == nil:
		return nil
	case f.Object:
		return &chat.OutputFormat{Kind: chat.FormatJSONObject}
	case f.Regex != "":
		return &chat.OutputFormat{Kind: chat.FormatRegex, Pattern: f.Regex}
	case f.Choice != nil:
		return &chat.OutputFormat{Kind: chat.FormatChoice, Choices: f.Choice}
	}
	return &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(f.JSON)}
}

// context returns how many tokens a request may have.
func (s *Server) context() int {
	if n := s.config.Mock.ContextLength; n > 0 {
		return int(n)
	}
	return s.config.Mock.Args.Capacity()
}

// stream answers in server-sent events.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, a *asked, q *engine.Request, gen bool) {
	begun := false
	send := func(v any) bool {
		if !begun {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			begun = true
		}
		_, err := fmt.Fprintf(w, "data: %s\n\n", encode(v))
		w.(http.Flusher).Flush()
		return err == nil
	}
	for d, err := range s.mock.Generate(ctx, q) {
		if err != nil {
			s.fail(ctx, w, begun, err, send)
			return
		}
		if len(d.TokenIDs) == 0 && d.Finish == engine.Running {
			continue
		}
		if !send(map[string]any{"request_id": a.RequestID, "choices": []any{s.choice(a, &d, gen)}}) {
			return
		}
		if d.Finish != engine.Running && a.StreamOptions.IncludeUsage {
			send(map[string]any{"request_id": a.RequestID, "choices": []any{}, "usage": s.usage(a, d.Usage)})
		}
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n") // the client may have gone
}

// fail ends an answer that cannot go on: an engine that is gone takes the
// connection with it.
func (s *Server) fail(ctx context.Context, w http.ResponseWriter, begun bool, err error, send func(any) bool) {
	kind := engine.KindOf(err)
	switch {
	case ctx.Err() != nil && begun:
		send(map[string]any{"choices": []any{map[string]any{"index": 0, "token_ids": []int{}, "finish_reason": "abort"}}})
	case kind == engine.EngineShutdown || begun:
		panic(http.ErrAbortHandler)
	case kind == engine.InvalidArgument || kind == engine.Unsupported:
		s.refuse(w, http.StatusBadRequest, "BadRequestError", err.Error())
	default:
		s.refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable", err.Error())
	}
}

// whole answers in one piece.
func (s *Server) whole(ctx context.Context, w http.ResponseWriter, r *http.Request, a *asked, q *engine.Request, gen bool) {
	var all engine.Delta
	for d, err := range s.mock.Generate(ctx, q) {
		if err != nil {
			s.fail(ctx, w, false, err, func(any) bool { return false })
			return
		}
		all.TokenIDs = append(all.TokenIDs, d.TokenIDs...)
		all.Logprobs = append(all.Logprobs, d.Logprobs...)
		if d.PromptLogprobs != nil {
			all.PromptLogprobs = d.PromptLogprobs
		}
		all.Finish, all.MatchedIDs, all.Usage, all.Handoff = d.Finish, d.MatchedIDs, d.Usage, d.Handoff
	}
	c := s.choice(a, &all, gen)
	answer := map[string]any{"request_id": a.RequestID, "choices": []any{c}, "usage": s.usage(a, all.Usage)}
	if all.PromptLogprobs != nil {
		if gen {
			answer["prompt_logprobs"] = promptLogprobs(all.PromptLogprobs)
		} else {
			c["prompt_logprobs"] = promptLogprobs(all.PromptLogprobs)
		}
	}
	if s.config.Transfer.Connector != "" {
		answer["kv_transfer_params"] = s.handOver(r, a, a.keep, all.Handoff)
	}
	write(w, http.StatusOK, answer)
}

// choice is one choice of an answer, in the shape of the route.
func (s *Server) choice(a *asked, d *engine.Delta, gen bool) map[string]any {
	c := map[string]any{"index": 0, "logprobs": nil, "finish_reason": nil}
	if gen || a.ReturnIDs {
		c["token_ids"] = append([]uint32{}, d.TokenIDs...)
	}
	if !gen {
		var text strings.Builder
		for _, id := range d.TokenIDs {
			fmt.Fprintf(&text, " %d", id)
		}
		c["text"], c["stop_reason"] = text.String(), nil
	}
	switch d.Finish {
	case engine.FinishLength:
		c["finish_reason"] = "length"
	case engine.FinishStop, engine.FinishEOS:
		c["finish_reason"] = "stop"
		if !gen && len(d.MatchedIDs) > 0 && !slices.Contains(s.config.Mock.EOS, d.MatchedIDs[0]) {
			c["stop_reason"] = d.MatchedIDs[0]
		}
	}
	if s.config.Experts != "" && d.Finish != engine.Running {
		c["routed_experts"] = s.config.Experts
	}
	if d.Logprobs != nil {
		if gen {
			c["logprobs"] = s.tokenLogprobs(d.Logprobs)
		} else {
			c["logprobs"] = completionLogprobs(d.Logprobs)
		}
	}
	return c
}

func tokenName(id uint32) string { return fmt.Sprintf("token_id:%d", id) }

func (s *Server) tokenLogprobs(lps []engine.Logprob) any {
	one := func(lp *engine.Logprob) map[string]any {
		if s.late() {
			return map[string]any{"token_id": lp.ID, "logprob": lp.Logprob, "rank": lp.Rank}
		}
		return map[string]any{"token": tokenName(lp.ID), "logprob": lp.Logprob, "bytes": nil}
	}
	var content []any
	for i := range lps {
		top := []any{}
		for j := range lps[i].Top {
			top = append(top, one(&lps[i].Top[j]))
		}
		entry := one(&lps[i])
		entry["top_logprobs"] = top
		content = append(content, entry)
	}
	return map[string]any{"content": content}
}

func completionLogprobs(lps []engine.Logprob) any {
	var tokens []string
	var values []float64
	var tops []map[string]float64
	for _, lp := range lps {
		tokens, values = append(tokens, tokenName(lp.ID)), append(values, lp.Logprob)
		top := map[string]float64{tokenName(lp.ID): lp.Logprob}
		for _, t := range lp.Top {
			top[tokenName(t.ID)] = t.Logprob
		}
		tops = append(tops, top)
	}
	return map[string]any{"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": []int{}}
}

func promptLogprobs(lps []engine.Logprob) any {
	out := make([]any, len(lps))
	for i, lp := range lps[1:] {
		at := map[string]any{}
		for _, t := range append([]engine.Logprob{lp}, lp.Top...) {
			at[strconv.FormatUint(uint64(t.ID), 10)] = map[string]any{"logprob": t.Logprob, "rank": t.Rank, "decoded_token": nil}
		}
		out[i+1] = at
	}
	return out
}

func (s *Server) usage(a *asked, u *engine.Usage) map[string]any {
	out := map[string]any{"prompt_tokens": u.Prompt, "completion_tokens": u.Output, "total_tokens": u.Prompt + u.Output, "prompt_tokens_details": nil}
	if s.config.PromptTokensDetails && u.Cached != nil && !(s.config.NoZeroCached && max(*u.Cached, a.pulled) == 0) {
		// Blocks that came from another server count as cached.
		out["prompt_tokens_details"] = map[string]any{"cached_tokens": max(*u.Cached, a.pulled)}
	}
	return out
}

// abort gives requests up by their ids.
func (s *Server) abort(w http.ResponseWriter, r *http.Request) {
	var ids struct {
		RequestIDs []string `json:"request_ids"`
	}
	if err := json.NewDecoder(r.Body).Decode(&ids); err != nil {
		s.refuse(w, http.StatusBadRequest, "BadRequestError", err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborted = append(s.aborted, ids.RequestIDs...)
	for _, id := range ids.RequestIDs {
		if cancel := s.running[id]; cancel != nil {
			cancel()
		}
	}
}
