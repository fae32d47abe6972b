package frontend

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"sync"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/sse"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
)

// api is one wire format on one route.
type api interface {
	// endpoint is the route's name in metrics and logs.
	endpoint() string
	// decode reads a body. Its error says which member is at fault.
	decode(body []byte) (call, error)
	// refuse answers a request that fails before it has an encoder.
	refuse(w http.ResponseWriter, err error)
}

// call is one decoded request of an API.
type call struct {
	requests []*chat.Request // one for each prompt
	ext      *nvext.Ext
	model    string
	stream   bool
	// encoder makes what writes the answer, under the model's primary name.
	encoder func(x *exchange, model string) encoder
}

// encoder writes the answer of one call.
type encoder interface {
	// appendEvent appends the frames that an event gives, or nothing.
	appendEvent(dst []byte, e chat.Event) []byte
	// appendAnswer appends the body for a client that does not stream.
	appendAnswer(dst []byte, answers []chat.Answer) []byte
	// The rest is what surrounds the events.
	sse.Protocol
}

// buffers hold frames while they are encoded. A stream that waits has none.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, 1024)) }}

// release gives a buffer back, unless one large answer has made it large.
func release(buf *[]byte) {
	if cap(*buf) <= 64<<10 {
		buffers.Put(buf)
	}
}

// answer serves an API: the one way from a body to an answer.
func (s *Server) answer(a api) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		record := s.metrics.begin(s, x, a.endpoint())
		defer record.end()
		if !s.stage.enter() {
			err := s.notReady()
			a.refuse(w, err)
			record.finish(err)
			return
		}
		defer s.stage.leave()

		c, err := s.intake(w, r, a)
		if err != nil {
			a.refuse(w, err)
			record.finish(err)
			return
		}
		model := s.names.primary(c.model)
		record.accept(model, c.stream)

		ctx, cancel := s.requestContext(r)
		defer cancel(nil)
		notes := make([]pipeline.Notes, len(c.requests))
		events := record.watch(s.Backend.Run(ctx, s.pipelineRequests(r, x, &c, notes)...), notes)
		encode := c.encoder(x, model)
		if c.stream {
			err = s.stream(ctx, cancel, w, x, encode, events)
		} else {
			err = s.unary(ctx, w, x, encode, events)
		}
		record.finish(err)
	}
}

// intake reads and decodes a body.
func (s *Server) intake(w http.ResponseWriter, r *http.Request, a api) (call, error) {
	body, err := s.body(w, r)
	if err != nil {
		return call{}, err
	}
	return a.decode(body)
}

// requestContext returns the context of a request's work. Its cause tells who
// has ended it: the client, or the server.
func (s *Server) requestContext(r *http.Request) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(s.base)
	unwatch := context.AfterFunc(r.Context(), func() { cancel(engine.ErrClientGone) })
	return ctx, func(cause error) {
		unwatch()
		cancel(cause)
	}
}

// pipelineRequests joins the prompts of a call with what came beside them.
func (s *Server) pipelineRequests(r *http.Request, x *exchange, c *call, notes []pipeline.Notes) []*pipeline.Request {
	trace := traceContext(r.Header)
	var directives kv.Directives
	if c.ext != nil {
		directives.Namespace.Salt = c.ext.CacheSalt
		if c.ext.AgentHints != nil {
			directives.Priority = c.ext.AgentHints.Priority
		}
	}
	requests := make([]*pipeline.Request, len(c.requests))
	for i, conversation := range c.requests {
		requests[i] = &pipeline.Request{
			ID: x.id, Chat: conversation, Ext: c.ext, KV: directives,
			Trace: trace, Arrived: x.arrived, Notes: &notes[i],
		}
	}
	return requests
}

// stream sends events as they come. It returns what ended the answer early.
func (s *Server) stream(ctx context.Context, cancel context.CancelCauseFunc, w http.ResponseWriter, x *exchange, encode encoder, events iter.Seq2[chat.Event, error]) error {
	x.answered = true
	out := sse.NewWriter(w, encode, x.arrived, *s.Timing, cancel)
	// A panic below must not leave a timer that writes to a dead answer.
	defer out.Fail(errPanicked)
	for e, err := range events {
		if err != nil {
			if context.Cause(ctx) == engine.ErrClientGone {
				out.Abandon()
				return engine.ErrClientGone
			}
			out.Fail(err)
			return err
		}
		if err := send(out, encode, e); err != nil {
			return err
		}
	}
	return out.Close()
}

var errPanicked = errors.New("the handler panicked")

func send(out *sse.Writer, encode encoder, e chat.Event) error {
	buf := buffers.Get().(*[]byte)
	defer release(buf)
	*buf = encode.appendEvent((*buf)[:0], e)
	if len(*buf) == 0 {
		return nil
	}
	return out.Event(*buf)
}

// unary sends the folded events.
func (s *Server) unary(ctx context.Context, w http.ResponseWriter, x *exchange, encode encoder, events iter.Seq2[chat.Event, error]) error {
	answers, err := chat.Fold(events)
	if context.Cause(ctx) == engine.ErrClientGone {
		return engine.ErrClientGone
	}
	if err != nil {
		x.answered = true
		encode.Refuse(w, err)
		return err
	}
	buf := buffers.Get().(*[]byte)
	defer release(buf)
	*buf = encode.appendAnswer((*buf)[:0], answers)
	x.answered = true
	if s.respond(w, http.StatusOK, *buf) != nil {
		return engine.ErrClientGone
	}
	return nil
}
