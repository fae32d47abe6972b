package trtllm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// request is what the server takes.
type request struct {
	Model         string         `json:"model"`
	Prompt        []uint32       `json:"prompt"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options"`
	Detokenize    *bool          `json:"detokenize"`

	MaxTokens         *int               `json:"max_tokens"`
	MinTokens         int                `json:"min_tokens"`
	Temperature       *float64           `json:"temperature"`
	TopP              *float64           `json:"top_p"`
	TopK              *int               `json:"top_k"`
	MinP              *float64           `json:"min_p"`
	FrequencyPenalty  *float64           `json:"frequency_penalty"`
	PresencePenalty   *float64           `json:"presence_penalty"`
	RepetitionPenalty *float64           `json:"repetition_penalty"`
	Seed              *int64             `json:"seed"`
	LogitBias         map[string]float64 `json:"logit_bias"`
	Stop              []string           `json:"stop"`
	StopTokenIDs      []uint32           `json:"stop_token_ids"`
	IncludeStop       bool               `json:"include_stop_str_in_output"`
	IgnoreEOS         bool               `json:"ignore_eos"`
	Logprobs          *int               `json:"logprobs"`
	ResponseFormat    jsontext.Value     `json:"response_format"`
	LoRA              jsontext.Value     `json:"lora_request"`
	Disagg            jsontext.Value     `json:"disaggregated_params"`
	User              string             `json:"user"`
	LengthPenalty     *float64           `json:"length_penalty"`

	ThinkingBudget *int     `json:"thinking_token_budget" since:"1.3"`
	Priority       *float64 `json:"priority" since:"1.3"`
	Conversation   *struct {
		ID string `json:"conversation_id"`
	} `json:"conversation_params" since:"1.3"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// known lists the names of the members.
func known(old bool) []string { return tagged(reflect.TypeFor[request](), old) }

// tagged lists the members of a type, or those that old builds have.
func tagged(t reflect.Type, old bool) (names []string) {
	for f := range t.Fields() {
		if f.Tag.Get("since") == "" || !old {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// parse reads a request. One member too many is an error.
func (s *Server) parse(text []byte) (*request, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	names := known(s.config.Old)
	for name := range members {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("[{'type': 'extra_forbidden', 'loc': ('body', '%s'), 'msg': 'Extra inputs are not permitted'}]", name)
		}
	}
	q := new(request)
	if err := json.Unmarshal(text, q); err != nil {
		return nil, err
	}
	switch {
	case q.StreamOptions != nil && !q.Stream:
		return nil, errors.New("stream_options can only be set if stream is true")
	case len(q.Prompt) == 0:
		return nil, errors.New("prompt is empty")
	case q.Priority != nil && !(*q.Priority >= 0 && *q.Priority <= 1):
		return nil, errors.New("priority must be in [0, 1]")
	}
	return q, nil
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.last = text
	s.mu.Unlock()
	q, err := s.parse(text)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if s.asleep.Load() {
		<-r.Context().Done() // it takes what comes and computes nothing
		return
	}
	leg, err := s.leg(q)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := s.untilGone(r.Context())
	defer cancel(nil)
	a := reply{server: s, q: q, leg: leg, w: w}
	defer s.note(&a, cancel)()
	over, err := leg.begin(ctx, s.config.Transceiver)
	if err != nil {
		a.fail(ctx, err)
		return
	}
	whole := false
	defer func() { over(whole) }()
	for d, err := range s.config.Engine.Generate(ctx, s.ask(q)) {
		if err != nil {
			a.fail(ctx, err)
			return
		}
		whole = d.Finish != engine.Running
		a.tell(d)
	}
}

// fail ends an answer: by a status before it has begun, and by silence when the
// process is gone.
func (a *reply) fail(ctx context.Context, err error) {
	switch kind := engine.KindOf(err); {
	case errors.Is(context.Cause(ctx), errDied), a.begun, kind == engine.EngineShutdown:
		panic(http.ErrAbortHandler)
	case ctx.Err() != nil:
	case kind == engine.InvalidArgument:
		refuse(a.w, http.StatusBadRequest, err.Error())
	default:
		refuse(a.w, http.StatusServiceUnavailable, err.Error())
	}
}

// untilGone returns the context of the computation: it outlives the client by the
// latency of aborts.
func (s *Server) untilGone(client context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	stop := context.AfterFunc(client, func() {
		if s.config.AbortLatency == 0 {
			cancel(context.Canceled)
			return
		}
		time.AfterFunc(s.config.AbortLatency, func() { cancel(context.Canceled) })
	})
	return ctx, func(cause error) { stop(); cancel(cause) }
}

// ask turns a request into the mock engine's. The server has no ids of requests,
// and equal requests without a seed have equal answers.
func (s *Server) ask(q *request) *engine.Request {
	r := &engine.Request{
		ID: "trtllm-0", TokenIDs: q.Prompt, Logprobs: q.Logprobs,
		Sampling: engine.Sampling{Temperature: q.Temperature, TopP: q.TopP, TopK: q.TopK, Seed: q.Seed},
		Stop:     engine.Stop{MaxTokens: 1 << 20, MinTokens: q.MinTokens, IDs: q.StopTokenIDs},
	}
	if q.MaxTokens != nil {
		r.Stop.MaxTokens = *q.MaxTokens
	}
	if q.Priority != nil {
		p := int32((*q.Priority - 0.5) * 200)
		r.Priority = &p
	}
	return r
}

// reply writes an answer.
type reply struct {
	server *Server
	q      *request
	leg    *leg
	w      http.ResponseWriter
	begun  bool
	ids    []uint32
}

type choice struct {
	Index    int            `json:"index"`
	Text     string         `json:"text"`
	TokenIDs []uint32       `json:"token_ids"`
	Logprobs *logprobs      `json:"logprobs"`
	Context  any            `json:"context_logits"`
	Finish   *string        `json:"finish_reason"`
	Stop     *uint32        `json:"stop_reason"`
	Params   jsontext.Value `json:"disaggregated_params"`
}

type logprobs struct {
	Offset []int                `json:"text_offset"`
	Token  []float64            `json:"token_logprobs"`
	Tokens []string             `json:"tokens"`
	Top    []map[string]float64 `json:"top_logprobs"`
}

type usage struct {
	Prompt     int            `json:"prompt_tokens"`
	Completion int            `json:"completion_tokens"`
	Total      int            `json:"total_tokens"`
	Details    map[string]int `json:"prompt_tokens_details"`
}

type answer struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitzero"`
	Prompt  any      `json:"prompt_token_ids,omitzero"`
}

// tell writes one delta of a stream, or keeps it for the answer.
func (a *reply) tell(d engine.Delta) {
	c := choice{TokenIDs: d.TokenIDs}
	if k := a.q.Logprobs; k != nil && *k > 0 {
		c.Logprobs = spell(d.Logprobs)
	}
	if a.q.Detokenize == nil || *a.q.Detokenize {
		c.Text, c.TokenIDs = strings.Repeat("x", len(d.TokenIDs)), nil
	}
	if d.Finish != engine.Running {
		a.close(&c, &d)
	}
	full := answer{ID: "cmpl-0", Object: "text_completion", Created: 1, Model: a.server.config.Model, Choices: []choice{c}}
	if !a.q.Stream {
		a.ids = append(a.ids, c.TokenIDs...)
		if d.Finish == engine.Running {
			return
		}
		full.Choices[0].TokenIDs, full.Usage = a.ids, usageOf(d.Usage)
		if a.leg != nil {
			a.leg.prefilled(a.server.config.Transceiver, &full, a.q, a.ids)
		}
		write(a.w, &full)
		return
	}
	a.event(&full)
	if d.Finish == engine.Running {
		return
	}
	if a.q.StreamOptions != nil && a.q.StreamOptions.IncludeUsage {
		full.Choices, full.Usage = []choice{}, usageOf(d.Usage)
		a.event(&full)
	}
	io.WriteString(a.w, "data: [DONE]\n\n") //nolint:errcheck // the client has gone
}

// close says how a choice ended. A stop id is cut off unless it is asked for.
func (a *reply) close(c *choice, d *engine.Delta) {
	finish := "stop"
	switch d.Finish {
	case engine.FinishLength:
		finish = "length"
	case engine.FinishStop:
		c.Stop = &d.MatchedIDs[0]
		if n := len(c.TokenIDs); n > 0 && !a.q.IncludeStop {
			c.TokenIDs = c.TokenIDs[:n-1]
		}
	}
	c.Finish = &finish
	a.server.mu.Lock()
	a.server.served++
	a.server.mu.Unlock()
}

func (a *reply) event(v *answer) {
	if !a.begun {
		a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		a.begun = true
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // a struct of numbers and texts
	}
	fmt.Fprintf(a.w, "data: %s\n\n", text)
	http.NewResponseController(a.w).Flush() //nolint:errcheck // the client has gone
}

func spell(list []engine.Logprob) *logprobs {
	l := &logprobs{}
	for _, lp := range list {
		word := func(id uint32) string { return "t" + strconv.FormatUint(uint64(id), 10) }
		top := map[string]float64{word(lp.ID): lp.Logprob}
		for _, other := range lp.Top {
			top[word(other.ID)] = other.Logprob
		}
		l.Tokens, l.Token, l.Top, l.Offset = append(l.Tokens, word(lp.ID)), append(l.Token, lp.Logprob), append(l.Top, top), append(l.Offset, 0)
	}
	return l
}

func usageOf(u *engine.Usage) *usage {
	cached := 0
	if u.Cached != nil {
		cached = *u.Cached
	}
	return &usage{Prompt: u.Prompt, Completion: u.Output, Total: u.Prompt + u.Output, Details: map[string]int{"cached_tokens": cached}}
}
