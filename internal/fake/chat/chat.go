// Package chat is any server of chat completions as those see it who know nothing
// else of it: a list of models and one route, over the scheduler of engine/mock.
//
// The one idea: the route is the smallest that clients agree on, and what servers
// leave out of it is a switch in [Config].
package chat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
)

// Vocabulary is how a model spells.
type Vocabulary interface {
	// Spell returns the bytes of an id, none for one that is special.
	Spell(id uint32) []byte
	// Encode returns the ids of a text.
	Encode(text string) []uint32
}

// Config says which server is imitated.
type Config struct {
	Mock       mock.Config
	Vocabulary Vocabulary
	// NoUsage leaves the counts out of answers, NoCached what was cached of them.
	NoUsage, NoCached bool
	// NoDone ends streams without the event that says so.
	NoDone bool
	// NoMaxLen leaves the context length out of the list of models, as most do.
	NoMaxLen bool
	// Key is what clients must send as bearer token; "": nothing.
	Key string
}

// Server is an http.Handler. It is safe for concurrent use.
type Server struct {
	config Config
	engine *mock.Engine
	mux    *http.ServeMux
	next   atomic.Uint64 // number of the next answer
}

// New returns a server. Only bad configuration is an error.
func New(c Config) (*Server, error) {
	if c.Vocabulary == nil {
		return nil, errors.New("fake chat server: it needs a vocabulary")
	}
	e, err := mock.New(c.Mock)
	if err != nil {
		return nil, fmt.Errorf("fake chat server: %w", err)
	}
	s := &Server{config: c, engine: e, mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("POST /v1/chat/completions", s.complete)
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.config.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.config.Key {
		refuse(w, http.StatusUnauthorized, "invalid_api_key", "Incorrect API key provided.")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// Engine returns the engine that computes.
func (s *Server) Engine() *mock.Engine { return s.engine }

// Restart is a crash and a new start.
func (s *Server) Restart() { s.engine.Restart() }

// Close ends what runs.
func (s *Server) Close() error { return s.engine.Close() }

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	model := map[string]any{"id": s.config.Mock.Model, "object": "model", "created": 1700000000, "owned_by": "fake"}
	if !s.config.NoMaxLen && s.config.Mock.ContextLength > 0 {
		model["max_model_len"] = s.config.Mock.ContextLength
	}
	write(w, http.StatusOK, map[string]any{"object": "list", "data": []any{model}})
}

// asked is the part of a request that is heeded.
type asked struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	MaxTokens           *int     `json:"max_tokens"`
	MaxCompletionTokens *int     `json:"max_completion_tokens"`
	Temperature         *float64 `json:"temperature"`
	Seed                *int64   `json:"seed"`
	Stream              bool     `json:"stream"`
	StreamOptions       struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// prompt is the conversation as the model reads it. A prefix of a conversation is
// one of its prompt.
func (a *asked) prompt() string {
	var b strings.Builder
	for _, m := range a.Messages {
		var text string
		if json.Unmarshal(m.Content, &text) != nil {
			var parts []struct {
				Text string `json:"text"`
			}
			json.Unmarshal(m.Content, &parts) //nolint:errcheck // no text is none
			for _, p := range parts {
				text += p.Text
			}
		}
		fmt.Fprintf(&b, "%s: %s\n", m.Role, text)
	}
	return b.String()
}

// usual is how long an answer may be where nobody says.
const usual = 256

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var a asked
	switch err := json.Unmarshal(body, &a); {
	case err != nil:
		refuse(w, http.StatusBadRequest, "invalid_request_error", "We could not parse the JSON body of your request: "+err.Error())
		return
	case a.Model != s.config.Mock.Model:
		refuse(w, http.StatusNotFound, "model_not_found", fmt.Sprintf("The model %q does not exist.", a.Model))
		return
	case len(a.Messages) == 0:
		refuse(w, http.StatusBadRequest, "invalid_request_error", "messages is empty")
		return
	}
	q := &engine.Request{
		ID: fmt.Sprintf("chatcmpl-%d-0", s.next.Add(1)), TokenIDs: s.config.Vocabulary.Encode(a.prompt()),
		Sampling: engine.Sampling{Temperature: a.Temperature, Seed: a.Seed},
		Stop:     engine.Stop{MaxTokens: usual, Hidden: s.config.Mock.EOS},
	}
	room := cmp.Or(int(s.config.Mock.ContextLength), s.config.Mock.Args.Capacity())
	q.Stop.MaxTokens = min(q.Stop.MaxTokens, room-len(q.TokenIDs))
	for _, most := range []*int{a.MaxTokens, a.MaxCompletionTokens} {
		if most != nil {
			q.Stop.MaxTokens = *most
		}
	}
	v := voice{server: s, w: w, id: strings.TrimSuffix(q.ID, "-0"), asked: &a}
	for d, err := range s.engine.Generate(r.Context(), q) {
		if err != nil {
			v.fail(err)
			return
		}
		v.say(&d)
	}
}

// voice writes an answer, whole or in pieces.
type voice struct {
	server *Server
	w      http.ResponseWriter
	id     string
	asked  *asked
	begun  bool
	text   []byte // that was not sent yet
}

func (v *voice) say(d *engine.Delta) {
	for _, id := range d.TokenIDs {
		v.text = append(v.text, v.server.config.Vocabulary.Spell(id)...)
	}
	finish := any(nil)
	switch d.Finish {
	case engine.Running:
	case engine.FinishLength:
		finish = "length"
	default:
		finish = "stop"
	}
	if !v.asked.Stream {
		if finish != nil {
			answer := v.object("chat.completion", map[string]any{
				"index": 0, "finish_reason": finish, "message": map[string]any{"role": "assistant", "content": string(v.text)},
			})
			if !v.server.config.NoUsage {
				answer["usage"] = v.usage(d.Usage)
			}
			write(v.w, http.StatusOK, answer)
		}
		return
	}
	delta := map[string]any{}
	if !v.begun {
		v.w.Header().Set("Content-Type", "text/event-stream")
		delta["role"], v.begun = "assistant", true
	}
	if whole := complete(v.text, finish != nil); whole > 0 {
		delta["content"] = string(v.text[:whole])
		v.text = v.text[whole:]
	}
	v.event(v.object("chat.completion.chunk", map[string]any{"index": 0, "finish_reason": finish, "delta": delta}))
	if finish == nil {
		return
	}
	if v.asked.StreamOptions.Usage && !v.server.config.NoUsage {
		last := v.object("chat.completion.chunk")
		last["usage"] = v.usage(d.Usage)
		v.event(last)
	}
	if !v.server.config.NoDone {
		io.WriteString(v.w, "data: [DONE]\n\n") //nolint:errcheck // the client has gone
	}
}

// complete returns how many bytes are whole characters; at the end all are.
func complete(text []byte, end bool) int {
	n := len(text)
	if end {
		return n
	}
	for i := 1; i <= min(3, n); i++ {
		if c := text[n-i]; c >= 0xc0 {
			if need := 2 + b2i(c >= 0xe0) + b2i(c >= 0xf0); need > i {
				return n - i
			}
			break
		} else if c < 0x80 {
			break
		}
	}
	return n
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (v *voice) object(kind string, choices ...any) map[string]any {
	if choices == nil {
		choices = []any{}
	}
	return map[string]any{"id": v.id, "object": kind, "created": 1700000000, "model": v.asked.Model, "choices": choices}
}

func (v *voice) usage(u *engine.Usage) map[string]any {
	told := map[string]any{"prompt_tokens": u.Prompt, "completion_tokens": u.Output, "total_tokens": u.Prompt + u.Output}
	if u.Cached != nil && !v.server.config.NoCached {
		told["prompt_tokens_details"] = map[string]any{"cached_tokens": *u.Cached}
	}
	return told
}

func (v *voice) event(e any) {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // texts and numbers
	}
	fmt.Fprintf(v.w, "data: %s\n\n", text)
	http.NewResponseController(v.w).Flush() //nolint:errcheck // the client has gone
}

// fail ends an answer: with a status before it has begun, and by breaking off
// afterwards.
func (v *voice) fail(err error) {
	switch kind := engine.KindOf(err); {
	case v.begun:
		panic(http.ErrAbortHandler)
	case kind == engine.InvalidArgument:
		refuse(v.w, http.StatusBadRequest, "context_length_exceeded", err.Error())
	default:
		refuse(v.w, http.StatusServiceUnavailable, "server_error", err.Error())
	}
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) //nolint:errcheck // the client has gone
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	write(w, status, map[string]any{"error": map[string]any{"message": message, "type": kind, "code": kind, "param": nil}})
}
