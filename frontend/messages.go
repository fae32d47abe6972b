package frontend

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/dynago/dynago/anthropic"
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/prompt"
)

const messagesPath = "/v1/messages"

// speaksMessages says whether a request is one of the Messages API: by its path,
// or, where that is shared, by a header that all clients of that API send.
func (s *Server) speaksMessages(r *http.Request) bool {
	below := func(path string) bool {
		rest, ok := strings.CutPrefix(r.URL.Path, path)
		return ok && (rest == "" || rest[0] == '/')
	}
	if s.NoMessages {
		return false
	}
	if below(messagesPath) {
		return true
	}
	models := s.Paths[PathModels]
	if models == "" {
		models = "/v1/models"
	}
	return below(strings.TrimSuffix(models, "/")) && r.Header.Get("Anthropic-Version") != ""
}

// messagesAPI is POST /v1/messages.
type messagesAPI struct{ *Server }

func (messagesAPI) endpoint() string { return "anthropic_messages" }

func (a messagesAPI) decode(h http.Header, body []byte) (call, error) {
	c, err := anthropic.Decode(body, anthropic.Dialect{Version: h.Get("Anthropic-Version"), Betas: h.Values("Anthropic-Beta")}, a.Anthropic)
	if err != nil {
		return call{}, err
	}
	return call{
		requests: []*chat.Request{c.Request}, ext: c.Ext, model: c.Model, userID: c.UserID, unknown: &c.Unknown, extDropped: c.ExtDropped, stream: c.Stream,
		encoder: func(x *exchange, model string) encoder {
			e := messagesEncoder{c.Encoder(anthropic.Header{ID: x.id, Model: model}), a.Server, c.Model}
			c.Request = nil // the encoder keeps the call, which shall not keep the conversation
			return e
		},
		whole: func(x *exchange, model string) whole { return c.Encoder(anthropic.Header{ID: x.id, Model: model}) },
	}, nil
}

func (a messagesAPI) refuse(w http.ResponseWriter, err error) { a.refuseMessages(w, err, "") }

// messagesEncoder is the encoder of Messages.
type messagesEncoder struct {
	*anthropic.Encoder
	server *Server
	asked  string // the model that the client asked for
}

func (e messagesEncoder) appendEvent(dst []byte, event chat.Event) []byte {
	return e.AppendEvent(dst, event)
}

func (e messagesEncoder) note(event chat.Event) { e.Note(event) }

func (e messagesEncoder) appendAnswer(dst []byte, answers []chat.Answer) []byte {
	dst = e.AppendAnswer(dst, answers)
	e.server.metrics.invalidInputs.Add(float64(e.InvalidInputs()))
	return dst
}

func (e messagesEncoder) AppendFailure(dst []byte, err error) []byte {
	return anthropic.AppendErrorFrame(dst, e.server.messagesError(err, e.asked))
}

func (e messagesEncoder) Refuse(w http.ResponseWriter, err error) {
	e.server.refuseMessages(w, err, e.asked)
}

// countTokens answers POST /v1/messages/count_tokens: the prompt is made as for
// an answer, and asks no worker.
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	s.quick(w, r, func(body []byte) ([]byte, error) {
		request, err := anthropic.DecodeCount(body, s.Anthropic)
		if err != nil {
			return nil, err
		}
		ids, _, err := s.Backend.Tokenize(s.resolved(request), true)
		if err != nil {
			return nil, s.messagesError(err, request.Model)
		}
		return anthropic.AppendCount(nil, len(ids)), nil
	})
}

// refuseMessages answers with an error in the shape of Messages. Asked is the
// model that the client asked for, if that is known.
func (s *Server) refuseMessages(w http.ResponseWriter, err error, asked string) {
	e := s.messagesError(err, asked)
	h := w.Header()
	setBackoff(h, e)
	s.respond(w, e.Status, anthropic.AppendError(nil, e, h.Get("Request-Id"))) //nolint:errcheck // the client has gone, and nothing is left to do
}

// messagesError turns a failure into what clients of Messages are told, in the
// words by which they know an unknown model and a prompt that is too long.
func (s *Server) messagesError(err error, asked string) *wire.Error {
	e := wire.ErrorOf(err, s.OverloadStatus)
	words := ""
	switch {
	case e.Code == wire.CodeModelNotFound && asked != "":
		words = "Model '" + clip(asked) + "' not found"
	case e.Code == wire.CodeContextLength:
		words = "prompt is too long: " + e.Message
		if long, ok := errors.AsType[*prompt.TooLong](err); ok {
			words = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", long.Tokens, long.Limit)
		}
	default:
		return e
	}
	told := *e
	told.Message = words
	return &told
}

func messagesModels(list []openai.Model) []anthropic.Model {
	out := make([]anthropic.Model, len(list))
	for i, m := range list {
		out[i] = messagesModel(m)
	}
	return out
}

func messagesModel(m openai.Model) anthropic.Model {
	return anthropic.Model{
		ID: m.ID, Created: time.Unix(m.Created, 0),
		ContextWindow: m.ContextWindow, MaxOutputTokens: m.MaxOutputTokens,
	}
}

// messagesDescription is what the OpenAPI document tells of these routes.
func messagesDescription() openai.Description {
	return openai.Description{
		Operations: []openai.Operation{
			{
				Method: "post", Path: messagesPath, ID: "createMessage", Summary: "Answer a conversation, as Messages",
				Body: anthropic.RequestSchema(false), Answer: schemaRef("AnsweredMessage"), Streams: true, Refusal: schemaRef("MessagesError"),
			},
			{
				Method: "post", Path: messagesPath + "/count_tokens", ID: "countMessageTokens", Summary: "Count the tokens of its prompt",
				Body: anthropic.RequestSchema(true), Answer: schemaRef("TokenCount"), Refusal: schemaRef("MessagesError"),
			},
		},
		Schemas: anthropic.Schemas(),
	}
}
