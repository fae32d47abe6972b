package llama

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
)

// completion is the body of POST /completion, as far as it changes an answer
// here. Absent members have the server's defaults, which are not neutral.
type completion struct {
	Prompt         []uint32       `json:"prompt"`
	Stream         bool           `json:"stream"`
	ReturnTokens   bool           `json:"return_tokens"`
	ReturnProgress bool           `json:"return_progress"`
	Predict        *int           `json:"n_predict"`
	Slot           *int           `json:"id_slot"`
	IgnoreEOS      bool           `json:"ignore_eos"`
	Temperature    *float64       `json:"temperature"`
	Seed           *int64         `json:"seed"`
	Probs          int            `json:"n_probs"`
	Schema         jsontext.Value `json:"json_schema"`
	Grammar        string         `json:"grammar"`
	LoRA           []struct {
		ID    int     `json:"id"`
		Scale float64 `json:"scale"`
	} `json:"lora"`
}

// request is what the mock engine is asked. It knows prompts by their tokens
// alone, as the server does.
func (s *Server) request(q *completion) *engine.Request {
	r := &engine.Request{ID: "llama-1", TokenIDs: q.Prompt}
	room := max(1, s.context-len(q.Prompt))
	r.Stop.MaxTokens = room
	if q.Predict != nil && *q.Predict >= 0 {
		r.Stop.MaxTokens = min(room, max(1, *q.Predict))
	}
	if !q.IgnoreEOS {
		r.Stop.Hidden = s.cfg.Mock.EOS
	}
	r.Sampling.Temperature = q.Temperature
	if q.Seed != nil && *q.Seed >= 0 {
		r.Sampling.Seed = q.Seed
	}
	if q.Probs > 0 {
		r.Logprobs = &q.Probs
	}
	switch {
	case q.Grammar != "":
		r.Format = &chat.OutputFormat{Kind: chat.FormatGrammar, Pattern: q.Grammar}
	case len(q.Schema) > 0 && string(q.Schema) == "{}":
		r.Format = &chat.OutputFormat{Kind: chat.FormatJSONObject}
	case len(q.Schema) > 0:
		r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(q.Schema)}
	}
	for i, path := range s.cfg.Adapters {
		scale := 1.0
		if len(q.LoRA) > 0 {
			scale = 0
		}
		for _, l := range q.LoRA {
			if l.ID == i {
				scale = l.Scale
			}
		}
		if scale != 0 {
			r.KV.Namespace.LoRA += path
		}
	}
	return r
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	var q completion
	if !read(w, r, &q) {
		return
	}
	switch {
	case len(q.Prompt) == 0:
		refuse(w, http.StatusBadRequest, "invalid_request_error", "\"prompt\" must not be empty")
		return
	case len(q.Prompt) >= s.context:
		refuse(w, http.StatusBadRequest, "exceed_context_size_error", "the request exceeds the available context size, try increasing it")
		return
	}
	want := -1
	if q.Slot != nil {
		want = *q.Slot
	}
	ask := s.request(&q)
	l := s.now()
	slot, cached, err := l.slots.acquire(r.Context(), want, q.Prompt, ask.KV.Namespace.LoRA)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	o := &output{s: s, w: w, q: &q, slot: slot, cached: cached}
	defer func() { l.slots.release(slot, slices.Concat(q.Prompt, o.ids)) }()
	l.prompt.Add(int64(len(q.Prompt) - cached))
	o.run(r.Context(), ask)
	l.predicted.Add(int64(o.made))
}

// output writes an answer.
type output struct {
	s      *Server
	w      http.ResponseWriter
	q      *completion
	slot   int
	cached int

	begun   bool
	ids     []uint32 // that the slot holds now
	made    int      // tokens, the end of the sequence included
	pending []byte   // bytes that end within a character
}

func (o *output) run(ctx context.Context, ask *engine.Request) {
	for d, err := range o.s.mock.Generate(ctx, ask) {
		if err != nil {
			o.fail(err)
			return
		}
		o.begin()
		for i, id := range d.TokenIDs {
			if o.q.Predict != nil && *o.q.Predict == 0 {
				break // the prompt was all that was wanted
			}
			var lp *engine.Logprob
			if len(d.Logprobs) > 0 {
				lp = &d.Logprobs[i]
			}
			o.token(id, lp)
		}
		if d.Finish != engine.Running {
			o.end(d.Finish)
		}
	}
}

// fail tells of an error while nothing was said, and breaks off later.
func (o *output) fail(err error) {
	e, ok := errors.AsType[*engine.Error](err)
	switch {
	case !ok || o.begun || e.Kind == engine.EngineShutdown || e.Kind == engine.Cancelled:
		panic(http.ErrAbortHandler)
	case e.Kind == engine.InvalidArgument, e.Kind == engine.Unsupported:
		refuse(o.w, http.StatusBadRequest, "invalid_request_error", e.Message)
	default:
		refuse(o.w, http.StatusServiceUnavailable, "unavailable_error", e.Message)
	}
}

func (o *output) begin() {
	if o.begun {
		return
	}
	o.begun = true
	if !o.q.Stream {
		return
	}
	o.w.Header().Set("Content-Type", "text/event-stream")
	if o.q.ReturnProgress {
		c := o.chunk("", []uint32{0}) // which is no token
		c["prompt_progress"] = object{"total": len(o.q.Prompt), "cache": o.cached, "processed": len(o.q.Prompt), "time_ms": 1}
		o.event(c)
	}
}

func (o *output) chunk(content string, ids []uint32) object {
	c := object{
		"index": 0, "content": content, "tokens": []uint32{}, "stop": false,
		"id_slot": o.slot, "tokens_predicted": o.made, "tokens_evaluated": len(o.q.Prompt),
	}
	if o.q.ReturnTokens && len(ids) > 0 {
		c["tokens"] = ids
	}
	return c
}

// token says what a token adds. While the bytes end within a character, the
// server says nothing, and of that token nothing later but its bytes.
func (o *output) token(id uint32, lp *engine.Logprob) {
	o.ids = append(o.ids, id)
	o.made++
	o.pending = append(o.pending, o.s.words.Spell(id)...)
	if !o.q.Stream || unfinished(o.pending) {
		return
	}
	c := o.chunk(string(o.pending), []uint32{id})
	o.pending = o.pending[:0]
	if lp != nil {
		c["completion_probabilities"] = []object{o.probability(lp)}
	}
	o.event(c)
}

func (o *output) probability(lp *engine.Logprob) object {
	top := []object{}
	for i := range lp.Top {
		top = append(top, object{"id": lp.Top[i].ID, "token": string(o.s.words.Spell(lp.Top[i].ID)), "logprob": lp.Top[i].Logprob})
	}
	return object{"id": lp.ID, "token": string(o.s.words.Spell(lp.ID)), "logprob": lp.Logprob, "top_logprobs": top}
}

// end says the last word.
func (o *output) end(why engine.Finish) {
	kind := "limit"
	if why == engine.FinishEOS {
		kind = "eos"
		o.made++
		if o.q.Stream && len(o.pending) == 0 {
			o.event(o.chunk("", o.s.cfg.Mock.EOS[:1]))
		}
	}
	c := o.chunk("", nil)
	if !o.q.Stream {
		c = o.chunk(string(o.pending), o.ids)
	}
	c["stop"], c["stop_type"], c["stopping_word"] = true, kind, ""
	c["truncated"], c["tokens_cached"] = false, len(o.q.Prompt)+o.made
	c["timings"] = object{"cache_n": o.cached, "prompt_n": len(o.q.Prompt) - o.cached, "predicted_n": o.made}
	if o.q.Stream {
		o.event(c)
		return
	}
	answer(o.w, http.StatusOK, c)
}

// event writes and flushes one event. That nobody reads it is seen by the
// request's context.
func (o *output) event(c object) {
	text, err := json.Marshal(c, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err) // it is made here
	}
	if o.s.cfg.Pings {
		o.w.Write([]byte(":\n\n")) //nolint:errcheck // see above
	}
	o.w.Write(append(append([]byte("data: "), text...), "\n\n"...)) //nolint:errcheck // see above
	if f, ok := o.w.(http.Flusher); ok {
		f.Flush()
	}
}

// unfinished says whether a text ends within a character.
func unfinished(text []byte) bool {
	for n := 1; n <= min(len(text), utf8.UTFMax-1); n++ {
		if c := text[len(text)-n]; utf8.RuneStart(c) {
			return c >= utf8.RuneSelf && !utf8.FullRune(text[len(text)-n:])
		}
	}
	return false
}
