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
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
)

// api is one wire format on one route.
type api interface {
	// endpoint is the route's name in metrics and logs.
	endpoint() string
	// decode reads a body; some protocols say a part of what they want in headers.
	// Its error says which member is at fault.
	decode(header http.Header, body []byte) (call, error)
	// refuse answers a request that fails before it has an encoder.
	refuse(w http.ResponseWriter, err error)
}

// call is one decoded request of an API.
type call struct {
	requests []*chat.Request // one for each prompt
	ext      *nvext.Ext
	model    string
	// promptCacheKey is the client's name for a family of prompts.
	promptCacheKey string
	userID         string    // that Messages names in its metadata
	sequenceID     string    // that KServe names what a call continues
	sequenceEnd    bool      // nothing more of it will come
	unknown        *[]string // what of the body is passed over; resolve adds to it
	extDropped     bool      // the body had an extension, and there is to be none
	stream         bool
	// background says that nobody waits for the answer: the encoder outlives it.
	background bool
	// answer, if not nil, stands in for the backend.
	answer func(ctx context.Context, requests ...*pipeline.Request) iter.Seq2[chat.Event, error]
	// resolve, if not nil, completes the requests with what this client has said in
	// earlier calls.
	resolve func(x *exchange) error
	// encoder makes what writes the answer, under the model's primary name.
	encoder func(x *exchange, model string) encoder
	// whole makes what writes the answer again that a stream has been, for records;
	// nil where its encoder knows it.
	whole func(x *exchange, model string) whole
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

// gatherer is an encoder that folds the events of an answer itself, before its
// appendAnswer is called.
type gatherer interface {
	gather(events iter.Seq2[chat.Event, error]) error
}

// noter is an encoder whose whole answer holds more than its folded events. It is
// told of each of them.
type noter interface {
	note(e chat.Event)
}

// annotator is an encoder whose stream begins with what was noted of its requests.
type annotator interface {
	// annotate appends the frames that come before the first event, or nothing.
	annotate(dst []byte, notes []pipeline.Notes) []byte
}

// lasting is an encoder whose answer others can see, and stop, from other requests.
type lasting interface {
	// begin comes before the first event; stop ends the work.
	begin(stop context.CancelCauseFunc)
	// end comes when the answer has ended, and says how. Only the first call counts.
	end(err error)
}

// fold reads an answer to its end, for a client that does not stream.
func fold(encode encoder, events iter.Seq2[chat.Event, error]) ([]chat.Answer, error) {
	if g, ok := encode.(gatherer); ok {
		return nil, g.gather(events)
	}
	if n, ok := encode.(noter); ok {
		events = noted(events, n)
	}
	return chat.Fold(events)
}

// noted tells an encoder of events as they pass.
func noted(events iter.Seq2[chat.Event, error], n noter) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		for e, err := range events {
			if err == nil {
				n.note(e)
			}
			if !yield(e, err) {
				return
			}
		}
	}
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
		if job := s.accept(w, r, a); job != nil {
			job.start(w, r)
		}
	}
}

// job is one call that was understood and is to be answered.
type job struct {
	*Server
	x      *exchange
	record *record
	call   call
	beside beside
	trace  engine.Trace
	// ctx ends with the work; its cause tells who has ended it: the client, or
	// the server.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// accept takes a permit, reads a body and decodes it. It returns nil if the
// request was refused.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, a api) *job {
	return s.understand(w, exchangeOf(r), r.Header, a, func() ([]byte, error) { return s.body(w, r) })
}

// understand is [Server.accept] for a body that comes in any way.
func (s *Server) understand(w http.ResponseWriter, x *exchange, header http.Header, a api, read func() ([]byte, error)) *job {
	j := &job{Server: s, x: x, trace: s.trace(x, header)}
	j.record = s.metrics.begin(s, j.x, a.endpoint())
	accepted, entered := false, false
	defer func() {
		if accepted {
			return
		}
		j.record.end()
		if entered {
			s.stage.leave()
		}
	}()
	if entered = s.stage.enter(); !entered {
		err := s.notReady()
		a.refuse(w, err)
		j.record.finish(err)
		return nil
	}
	body, err := read()
	if err == nil {
		j.call, err = a.decode(header, body)
	}
	if err == nil {
		j.record.payload = s.said(a.endpoint(), header, body)
	}
	if err == nil && j.call.resolve != nil {
		err = j.call.resolve(j.x)
	}
	if err != nil {
		a.refuse(w, err)
		j.record.finish(err)
		return nil
	}
	j.call.model = s.resolve(j.call.model)
	for i, request := range j.call.requests {
		j.call.requests[i] = s.filled(s.resolved(request))
	}
	if err := j.heed(header); err != nil {
		a.refuse(w, err)
		j.record.finish(err)
		return nil
	}
	if passed := s.strangers.sift(*j.call.unknown); len(passed) > 0 {
		s.Logger.Debug("passed over", "request_id", j.x.id, "endpoint", a.endpoint(), "members", passed)
	}
	accepted = true
	return j
}

// start answers, for a stream in a goroutine of its own if that can be.
func (j *job) start(w http.ResponseWriter, r *http.Request) {
	j.ctx, j.cancel = context.WithCancelCause(j.x.spanned(context.WithValue(j.base, exchangeKey{}, j.x)))
	if j.call.background {
		j.startBackground(w, r)
		return
	}
	gone := func() { j.cancel(engine.ErrClientGone) }
	if j.call.stream {
		if d := j.detach(w, r, gone); d != nil {
			go func() {
				// The permit is held until the last byte is written.
				defer j.stage.leave()
				defer d.end()
				defer j.recover(d, j.x)
				j.run(d)
			}()
			return
		}
	}
	defer j.stage.leave()
	defer context.AfterFunc(r.Context(), gone)()
	j.run(w)
}

// run answers, and ends the job.
func (j *job) run(w http.ResponseWriter) {
	defer j.record.end()
	defer j.cancel(nil)

	model := j.names.primary(j.call.model)
	j.record.accept(model, j.call.stream)
	j.record.payload.begin(j, model)
	encode := j.call.encoder(j.x, model)
	j.record.payload.by(encode)
	notes := make([]pipeline.Notes, len(j.call.requests))
	run := j.Backend.Run
	if j.call.answer != nil {
		run = j.call.answer
	}
	events := j.record.watch(run(j.ctx, j.requests(notes)...), notes)
	// A long answer shall not keep the conversation here.
	j.call = call{stream: j.call.stream}
	last, lasts := encode.(lasting)
	if lasts {
		last.begin(j.cancel)
		defer last.end(errPanicked)
	}
	var err error
	if j.call.stream {
		err = j.stream(w, encode, events, notes)
	} else {
		err = j.unary(w, encode, events, &notes[0])
	}
	j.record.finish(err)
	if lasts {
		last.end(err)
	}
}

// requests joins the prompts of a call with what came beside them.
func (j *job) requests(notes []pipeline.Notes) []*pipeline.Request {
	id := &j.beside.identity
	ext := j.call.ext
	directives := inSession(id, ext)
	if ext != nil {
		directives.Namespace.Salt = ext.CacheSalt
		if ext.AgentHints != nil {
			directives.Priority = ext.AgentHints.Priority
			directives.NextIn, _ = ext.AgentHints.NextIn()
		}
	}
	meta := j.beside.meta
	requests := make([]*pipeline.Request, len(j.call.requests))
	for i, conversation := range j.call.requests {
		requests[i] = &pipeline.Request{
			ID: j.x.id, Chat: conversation, Ext: ext, Identity: *id, Tenant: j.x.tenant, Caps: j.beside.caps, KV: directives,
			Meta: meta, Class: meta[policyClass],
			Trace: j.trace, Arrived: j.x.arrived, Debug: j.beside.debug, Notes: &notes[i],
		}
	}
	if j.x.span.Valid() {
		j.record.images, j.record.session = images(j.call.requests), id.Chain
	}
	j.record.traced.begin(requests)
	return requests
}

// stream sends events as they come. It returns what ended the answer early. The
// notes of the first request are complete with the first event, and those of all
// tell then what their streams begin with.
func (j *job) stream(w http.ResponseWriter, encode encoder, events iter.Seq2[chat.Event, error], notes []pipeline.Notes) error {
	j.x.answered = true
	out := sse.NewWriter(w, encode, j.x.arrived, *j.Timing, j.cancel)
	// A panic below must not leave a timer that writes to a dead answer.
	defer out.Fail(errPanicked)
	begun := false
	for e, err := range events {
		if err != nil {
			if context.Cause(j.ctx) == engine.ErrClientGone {
				err = engine.ErrClientGone
				if out.Opened() {
					out.Abandon()
					return err
				}
			}
			// A client that has only closed its half is told that this counts as
			// leaving.
			out.Fail(err)
			return err
		}
		if !begun {
			begun = true
			j.tell(out.SetHeader, &notes[0])
			if err := annotate(out, encode, notes); err != nil {
				return err
			}
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

// annotate sends what a stream begins with.
func annotate(out *sse.Writer, encode encoder, notes []pipeline.Notes) error {
	a, ok := encode.(annotator)
	if !ok {
		return nil
	}
	if frames := a.annotate(nil, notes); len(frames) > 0 {
		return out.Event(frames)
	}
	return nil
}

// unary sends the folded events.
func (j *job) unary(w http.ResponseWriter, encode encoder, events iter.Seq2[chat.Event, error], notes *pipeline.Notes) error {
	answers, err := fold(encode, events)
	if context.Cause(j.ctx) == engine.ErrClientGone {
		err = engine.ErrClientGone
	}
	if err != nil {
		j.x.answered = true
		encode.Refuse(w, err)
		return err
	}
	buf := buffers.Get().(*[]byte)
	defer release(buf)
	*buf = encode.appendAnswer((*buf)[:0], answers)
	j.record.payload.answered(*buf)
	j.x.answered = true
	j.tell(w.Header().Set, notes)
	if j.respond(w, http.StatusOK, *buf) != nil {
		return engine.ErrClientGone
	}
	return nil
}
