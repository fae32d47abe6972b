package frontend

import (
	"net/http"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/sse"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses"
)

const responsesPath = "/v1/responses"

// responsesAPI is POST /v1/responses.
type responsesAPI struct{ *Server }

func (responsesAPI) endpoint() string { return "responses" }

func (a responsesAPI) decode(_ http.Header, body []byte) (call, error) {
	c, err := responses.Decode(body, a.Responses)
	if err != nil {
		return call{}, err
	}
	return a.responsesCall(c, nil), nil
}

// responsesCall is a call that came by itself, or by a connection that knows what
// it has said.
func (s *Server) responsesCall(c *responses.Call, conn *socket) call {
	earlier := &past{store: s.ResponsesStore, conn: conn}
	return call{
		requests: []*chat.Request{c.Request}, ext: c.Ext, model: c.Model, promptCacheKey: c.PromptCacheKey, unknown: &c.Unknown,
		extDropped: c.ExtDropped, stream: c.Stream, background: c.Background,
		resolve: func(x *exchange) error {
			earlier.tenant = x.tenant
			return c.Resolve(earlier)
		},
		encoder: func(x *exchange, model string) encoder {
			h := responses.Header{ID: responses.NewID(), Model: model, Created: x.arrived.Unix()}
			e := &responsesEncoder{Encoder: c.Encoder(h), server: s, stream: c.Stream}
			var encode encoder = s.keep(x, c, e, h.ID, earlier.before)
			if conn != nil {
				encode = &spoken{encoder: encode, response: e.Encoder, conn: conn, id: h.ID, before: earlier.before, input: storedItems(c.Input)}
			}
			return encode
		},
	}
}

// responsesEncoder is the encoder of Responses, but for what [kept] adds.
type responsesEncoder struct {
	*responses.Encoder
	server *Server
	stream bool
}

func (e *responsesEncoder) AppendEnd(dst []byte) []byte {
	return e.Encoder.AppendEnd(dst, time.Now().Unix())
}

func (*responsesEncoder) AppendPing(dst []byte) []byte { return append(dst, sse.Comment...) }

func (e *responsesEncoder) AppendFailure(dst []byte, err error) []byte {
	return e.Encoder.AppendFailure(dst, e.server.responsesError(err))
}

// failsInStream says whether a failure before the first event is told by events: a
// conversation that is too long is, since agents compact it then, and give up at a
// status that is not 200.
func (e *responsesEncoder) failsInStream(err error) bool {
	return e.stream && e.server.responsesError(err).Code == wire.CodeContextLength
}

// openStream begins a stream of events that will not wait for anything.
func openStream(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
}

// responsesError turns a failure into what clients of Responses are told.
func (s *Server) responsesError(err error) *wire.Error {
	e := wire.ErrorOf(err, s.OverloadStatus)
	if e.Param != "messages" {
		return e
	}
	told := *e
	told.Param = "input"
	return &told
}
