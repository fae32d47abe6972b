package frontend

import (
	"net/http"

	"github.com/dynago/dynago/internal/wire"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/sse"
	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/pipeline"
)

// chatAPI is POST /v1/chat/completions.
type chatAPI struct{ *Server }

func (chatAPI) endpoint() string { return "chat_completions" }

func (a chatAPI) decode(_ http.Header, body []byte) (call, error) {
	c, err := openai.DecodeChat(body, a.OpenAI)
	if err != nil {
		return call{}, err
	}
	return a.openAICall(c), nil
}

// completionsAPI is POST /v1/completions.
type completionsAPI struct{ *Server }

func (completionsAPI) endpoint() string { return "completions" }

func (a completionsAPI) decode(_ http.Header, body []byte) (call, error) {
	c, err := openai.DecodeCompletion(body, a.OpenAI)
	if err != nil {
		return call{}, err
	}
	return a.openAICall(c), nil
}

func (s *Server) openAICall(c *openai.Call) call {
	return call{
		requests: c.Requests, ext: c.Ext, model: c.Model, promptCacheKey: c.PromptCacheKey, unknown: &c.Unknown, extDropped: c.ExtDropped, stream: c.Stream,
		encoder: func(x *exchange, model string) encoder {
			e := openAIEncoder{s, c.Encoder(openai.Header{ID: x.id, Model: model, Created: x.arrived.Unix()})}
			c.Requests = nil // the encoder keeps the call, which shall not keep the conversation
			return e
		},
		whole: func(x *exchange, model string) whole {
			return c.Encoder(openai.Header{ID: x.id, Model: model, Created: x.arrived.Unix()})
		},
	}
}

// openAIEncoder is the encoder of both.
type openAIEncoder struct {
	server *Server
	openai.Encoder
}

func (e openAIEncoder) appendEvent(dst []byte, event chat.Event) []byte {
	return e.AppendEvent(dst, event)
}

func (e openAIEncoder) appendAnswer(dst []byte, answers []chat.Answer) []byte {
	return e.AppendAnswer(dst, answers)
}

func (e openAIEncoder) note(event chat.Event) { e.Note(event) }

func (e openAIEncoder) annotate(dst []byte, notes []pipeline.Notes) []byte {
	for i := range notes {
		dst = e.AppendAnnotations(dst, openai.Annotations{Prompt: notes[i].Formatted, TokenIDs: notes[i].TokenIDs})
		notes[i].Formatted, notes[i].TokenIDs = "", nil
	}
	return dst
}

func (openAIEncoder) AppendPing(dst []byte) []byte { return append(dst, sse.Comment...) }

func (e openAIEncoder) AppendFailure(dst []byte, err error) []byte {
	return openai.AppendErrorFrame(dst, wire.ErrorOf(err, e.server.OverloadStatus))
}

func (e openAIEncoder) Refuse(w http.ResponseWriter, err error) { e.server.refuse(w, err) }
