package ollama

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
)

// question is the body of POST /api/chat and of POST /api/generate, as far as it
// changes an answer here.
type question struct {
	Model    string         `json:"model"`
	Messages []message      `json:"messages"`
	Prompt   string         `json:"prompt"`
	Raw      bool           `json:"raw"`
	Stream   *bool          `json:"stream"`
	Format   jsontext.Value `json:"format"`
	Think    jsontext.Value `json:"think"`
	Truncate *bool          `json:"truncate"`
	Shift    *bool          `json:"shift"`
	Keep     duration       `json:"keep_alive"`
	Tools    []struct {
		Function struct {
			Name string         `json:"name"`
			Args jsontext.Value `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	Options struct {
		Context     int      `json:"num_ctx"`
		Predict     *int     `json:"num_predict"`
		Temperature *float64 `json:"temperature"`
		Seed        *int64   `json:"seed"`
		Stop        []string `json:"stop"`
	} `json:"options"`
}

type message struct {
	Role     string   `json:"role"`
	Content  string   `json:"content"`
	Thinking string   `json:"thinking"`
	Images   []string `json:"images"`
	ToolName string   `json:"tool_name"`
	ToolID   string   `json:"tool_call_id"`
	Calls    []called `json:"tool_calls"`
}

// called is a call that the model made, with arguments that are an object.
type called struct {
	ID       string `json:"id"`
	Function struct {
		Name string                    `json:"name"`
		Args map[string]jsontext.Value `json:"arguments"`
	} `json:"function"`
}

func (s *Server) able(ability string) bool { return slices.Contains(s.cfg.Capabilities, ability) }

// thinks says whether the model is to think, which one that can does unless it is
// told not to.
func (s *Server) thinks(q *question) bool {
	return s.able("thinking") && string(q.Think) != "false"
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request, conversation bool) {
	var q question
	if read(w, r, &q) {
		s.serve(w, r, &q, conversation, nil)
	}
}

// serve answers a question, in lines unless it was asked at the second door.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, q *question, conversation bool, as *events) {
	wants := len(q.Think) > 0 && string(q.Think) != "false" && string(q.Think) != "null"
	keep := s.cfg.KeepAlive
	if q.Keep.set {
		keep = q.Keep.d
	}
	switch {
	case !s.has(q.Model):
		refuse(w, http.StatusNotFound, "model '%s' not found", q.Model)
		return
	case len(q.Messages) == 0 && q.Prompt == "" && q.Keep.set && keep == 0:
		s.memory.unload()
		s.only(w, q, "unload")
		return
	case wants && !s.able("thinking"):
		refuse(w, http.StatusBadRequest, "%q does not support thinking", q.Model)
		return
	case len(q.Tools) > 0 && !s.able("tools"):
		refuse(w, http.StatusBadRequest, "%s does not support tools", q.Model)
		return
	case slices.ContainsFunc(q.Messages, func(m message) bool { return len(m.Images) > 0 }) && !s.able("vision"):
		refuse(w, http.StatusInternalServerError, "this model is missing data required for image input")
		return
	}
	if q.Options.Context == 0 {
		q.Options.Context = s.cfg.Loaded
	}
	q.Options.Context = min(q.Options.Context, s.cfg.Made)
	if err := s.memory.acquire(r.Context(), q.Options.Context); err != nil {
		if !errors.Is(err, errFull) {
			panic(http.ErrAbortHandler)
		}
		refuse(w, http.StatusServiceUnavailable, "%v", err)
		return
	}
	if len(q.Messages) == 0 && q.Prompt == "" {
		s.memory.release(keep)
		s.only(w, q, "load")
		return
	}
	defer s.memory.release(keep)
	prompt, ok := s.prompt(q, conversation)
	if !ok {
		refuse(w, http.StatusBadRequest, "the input length exceeds the context length")
		return
	}
	ask := s.request(q, prompt, conversation)
	o := &output{s: s, w: w, q: q, as: as, conversation: conversation, thinks: conversation && s.thinks(q), prompt: len(prompt)}
	o.run(r.Context(), ask)
}

// only answers that something was done, and nothing said.
func (s *Server) only(w http.ResponseWriter, q *question, what string) {
	answer(w, http.StatusOK, object{"model": q.Model, "created_at": time.Now().UTC(), "response": "", "done": true, "done_reason": what})
}

// prompt writes the messages as the model sees them. What is too long is cut, the
// oldest first, unless the request forbids it.
func (s *Server) prompt(q *question, conversation bool) (string, bool) {
	cuts := s.cfg.CutsAlways || q.Truncate == nil || *q.Truncate
	text := q.Prompt
	if conversation {
		messages := q.Messages
		for text = render(messages); cuts && len(text) > q.Options.Context && len(messages) > 1; text = render(messages) {
			i := slices.IndexFunc(messages, func(m message) bool { return m.Role != "system" })
			if i < 0 || i == len(messages)-1 {
				break
			}
			messages = slices.Delete(slices.Clone(messages), i, i+1)
		}
	}
	switch n := q.Options.Context; {
	case len(text) <= n:
		return text, true
	case cuts:
		return text[len(text)-n:], true
	}
	return "", false
}

func render(messages []message) string {
	var b strings.Builder
	for i := range messages {
		m := &messages[i]
		b.WriteString("<|" + m.Role + "|>" + m.Content)
		for _, c := range m.Calls {
			b.WriteString(openCall + c.Function.Name + closeCall)
		}
	}
	b.WriteString("<|assistant|>")
	return b.String()
}

// request is what the mock engine is asked. Its scripts see the conversation.
func (s *Server) request(q *question, prompt string, conversation bool) *engine.Request {
	r := &engine.Request{
		ID: "ollama-1", TokenIDs: s.cfg.Mock.Encode(nil, prompt),
		Sampling: engine.Sampling{Temperature: q.Options.Temperature, Seed: q.Options.Seed},
		Stop:     engine.Stop{MaxTokens: max(1, q.Options.Context-len(prompt)), Hidden: s.cfg.Mock.EOS},
		Chat:     &chat.Request{Model: q.Model},
	}
	if q.Options.Predict != nil && *q.Options.Predict > 0 {
		r.Stop.MaxTokens = min(r.Stop.MaxTokens, *q.Options.Predict)
	}
	switch {
	case string(q.Format) == `"json"`:
		r.Format = &chat.OutputFormat{Kind: chat.FormatJSONObject}
	case len(q.Format) > 0 && q.Format.Kind() == '{':
		r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(q.Format)}
	}
	if !conversation {
		r.Chat.Prompt = &chat.Prompt{Text: prompt}
		return r
	}
	for _, t := range q.Tools {
		r.Chat.Tools = append(r.Chat.Tools, chat.Tool{Kind: chat.ToolFunction, Name: t.Function.Name})
	}
	for _, m := range q.Messages {
		block := chat.Block{Kind: chat.Text, Text: m.Content}
		turn := chat.Turn{Role: chat.Role(m.Role)}
		if m.Role == "tool" {
			turn.Role = chat.RoleUser
			block = chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: m.ToolID, Name: m.ToolName, Blocks: []chat.Block{block}}}
		}
		turn.Blocks = []chat.Block{block}
		r.Chat.Turns = append(r.Chat.Turns, turn)
	}
	return r
}

// run asks the mock engine, and says what it says.
func (o *output) run(ctx context.Context, ask *engine.Request) {
	for d, err := range o.s.mock.Generate(ctx, ask) {
		if err != nil {
			o.fail(err)
			return
		}
		for _, id := range d.TokenIDs {
			o.made++
			if o.token(byte(id)) {
				o.end("stop", &d)
				return
			}
		}
		switch d.Finish {
		case engine.Running:
			if len(d.TokenIDs) > 0 {
				o.flush()
			}
		case engine.FinishLength:
			o.end("length", &d)
		default:
			o.end("stop", &d)
		}
	}
}
