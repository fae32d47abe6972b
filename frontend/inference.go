package frontend

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kserve"
	"github.com/dynago/dynago/pipeline"
)

// A call of KServe comes by two wires, gRPC and REST, and is one thing behind them:
// a permit, a record, what its headers say, and responses. How it is read and how its
// responses are written is the wire's.

// Endpoints of KServe in metrics. The counter of cancellations alone has another name
// for the first.
const (
	textEndpoint   = "completions"
	textCancelled  = "grpc_completions"
	tensorEndpoint = "tensor"
)

// Arrival is a call of KServe as a wire has brought it.
type Arrival struct {
	// Header is what came beside the call: headers, or the metadata that stands for
	// them.
	Header http.Header
	Tenant string // who owns the client's key
	Model  string // that is asked for
	Method string // full name of the procedure, over gRPC
	// Several says that the wire can carry more than one response.
	Several bool
	// Overload is the status of "all busy" in errors; default [Config.OverloadStatus].
	Overload int
	// Text reads the call if its model is one of text, and Tensors if it is one of
	// tensors. Their errors say what is wrong with it.
	Text    func() (*kserve.Completion, error)
	Tensors func() (*kserve.Request, error)

	exchange *exchange // of a call over HTTP, which knows its tenant
}

// Inference is a call of KServe that was understood. It holds a permit until its
// responses are read: [Inference.Responses] must be ranged over, once.
type Inference struct {
	job      job
	several  bool
	overload int
	text     *kserve.Completion // nil: tensors
	call     *kserve.Request    // nil: text
	tensor   *engine.TensorRequest
	notes    [1]pipeline.Notes
	spoilt   error // the last response cannot be written
	// deaf ends the attention to the client.
	deaf func() bool
}

// Open takes a permit and understands a call. What it refuses is counted and logged;
// its error, as those of responses, is a *[wire.Error]. The work ends with ctx.
func (s *Server) Open(ctx context.Context, a *Arrival) (*Inference, error) {
	x := a.exchange
	if x == nil {
		x = &exchange{id: uuid.NewString(), tenant: a.Tenant, arrived: time.Now()}
		x.correlation = cmp.Or(printable(a.Header.Get("X-Request-Id")), x.id)
	}
	i := &Inference{several: a.Several, overload: cmp.Or(a.Overload, s.OverloadStatus)}
	x.rpc = cmp.Or(x.rpc, a.Method)
	i.job = job{Server: s, x: x, trace: s.trace(x, a.Header), record: s.metrics.begin(s, x, textEndpoint)}
	i.job.record.kserve = true
	opened, entered := false, false
	defer func() {
		if opened {
			return
		}
		i.job.record.end()
		if entered {
			s.stage.leave()
		}
	}()
	if entered = s.stage.enter(); !entered {
		return nil, i.failed(engine.ErrShutdown)
	}
	if err := i.understand(a); err != nil {
		return nil, i.failed(err)
	}
	i.job.ctx, i.job.cancel = context.WithCancelCause(x.spanned(context.WithValue(s.base, exchangeKey{}, x)))
	i.deaf = context.AfterFunc(ctx, func() { i.job.cancel(engine.ErrClientGone) })
	opened = true
	return i, nil
}

// understand finds the model, reads the call, and joins what came beside it. The
// order is that of KServe's servers: no model hides behind a call that is broken.
func (i *Inference) understand(a *Arrival) error {
	s := i.job.Server
	asked := cmp.Or(a.Model, s.OpenAI.DefaultModel)
	model := s.names.primary(s.resolve(asked))
	kind := kserve.KindOf(s.Backend.Card(model))
	if kind == kserve.Hidden {
		return kserve.NotFound(asked)
	}
	i.job.call.model, i.job.record.model = model, model
	read := i.tensorCall
	if kind == kserve.Text {
		read = i.textCall
	}
	if err := read(a); err != nil {
		return err
	}
	return i.job.heed(a.Header)
}

// textCall reads the call as a conversation.
func (i *Inference) textCall(a *Arrival) error {
	t, err := a.Text()
	if err != nil {
		return err
	}
	i.name(t.ID)
	if t.Stream && !i.several {
		return errStreaming
	}
	s, c := i.job.Server, &i.job.call
	i.text, t.Model = t, c.model
	c.requests, c.stream = []*chat.Request{s.resolved(t.Chat)}, t.Stream
	c.ext, c.extDropped = t.Ext, t.ExtDropped
	c.promptCacheKey, c.sequenceID, c.sequenceEnd = t.PromptCacheKey, t.SequenceID, t.SequenceEnd
	if passed := s.strangers.sift(t.Unknown); len(passed) > 0 {
		s.Logger.Debug("passed over", "request_id", i.job.x.id, "endpoint", textEndpoint, "members", passed)
	}
	return nil
}

// name gives the call the id of its client, if that can be one here as well.
func (i *Inference) name(id string) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return
	}
	x := i.job.x
	if x.correlation == x.id {
		x.correlation = parsed.String()
	}
	x.id = parsed.String()
}

// Streams says whether the client expects any number of responses, in their own time,
// and not one.
func (i *Inference) Streams() bool { return i.several && (i.text == nil || i.text.Stream) }

// Responses yields the responses as they come, or the one that they are folded into
// where the client wants that, and at last the error that has ended them early, if
// any. It is for one loop, which may be left.
func (i *Inference) Responses() iter.Seq2[*kserve.Response, error] {
	return func(yield func(*kserve.Response, error) bool) {
		defer i.end()
		for r, err := range i.responses() {
			if err != nil {
				yield(nil, i.failed(err))
				return
			}
			if !yield(r, nil) {
				i.job.record.finish(cmp.Or(i.spoilt, engine.ErrClientGone))
				return
			}
		}
		i.job.record.finish(i.spoilt)
	}
}

// Spoilt says that the last response cannot be written, for which its worker is to
// blame, and returns what the client is told. The loop over responses must be left
// then.
func (i *Inference) Spoilt(err error) error {
	i.spoilt = err
	return i.toldOf("Failed to parse response", err)
}

// Tell sets the headers that tell of the way to the answer, as soon as the first
// response has come.
func (i *Inference) Tell(set func(name, value string)) { i.job.tell(set, &i.notes[0]) }

// responses runs the call.
func (i *Inference) responses() iter.Seq2[*kserve.Response, error] {
	switch {
	case i.text == nil && i.several:
		return i.tensors()
	case i.text == nil:
		return one(func() (*kserve.Response, error) { return single(i.tensors()) })
	case i.text.Stream:
		return i.text.Deltas(i.events())
	}
	return one(func() (*kserve.Response, error) { return i.text.Fold(i.events()) })
}

// one is the sequence of one response.
func one(response func() (*kserve.Response, error)) iter.Seq2[*kserve.Response, error] {
	return func(yield func(*kserve.Response, error) bool) { yield(response()) }
}

// end gives back what the call holds.
func (i *Inference) end() {
	i.deaf()
	i.job.cancel(nil)
	i.job.record.end()
	i.job.stage.leave()
}

// failed notes what has ended the call, and returns what its client is told.
func (i *Inference) failed(err error) error {
	if ctx := i.job.ctx; ctx != nil && context.Cause(ctx) == engine.ErrClientGone {
		err = engine.ErrClientGone
	}
	i.job.record.finish(err)
	return i.told(err)
}

// events runs the conversation.
func (i *Inference) events() iter.Seq2[chat.Event, error] {
	j := &i.job
	j.record.accept(j.call.model, j.call.stream)
	requests := j.requests(i.notes[:])
	if t := i.text.Timeout; t > 0 {
		requests[0].Deadline = j.x.arrived.Add(t)
	}
	return j.record.watch(j.Backend.Run(j.ctx, requests...), i.notes[:])
}
