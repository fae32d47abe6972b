package remote

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// Generate runs one request on the worker.
func (c *Client) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	return once("request "+r.ID, func(yield func(engine.Delta, error) bool) {
		j := judge{r: r}
		answer(c, ctx, r, workerpb.WorkerClient.Generate, func(m *workerpb.Delta) (end bool, err error) {
			d := deltaOf(m)
			if err := j.next(&d); err != nil {
				return true, err
			}
			return !yield(d, nil) || d.Finish != engine.Running, nil
		}, func(err error) { yield(engine.Delta{}, err) })
	})
}

// Chat runs one request on a worker that takes conversations.
func (c *Client) Chat(ctx context.Context, r *engine.Request) iter.Seq2[chat.Event, error] {
	return once("request "+r.ID, func(yield func(chat.Event, error) bool) {
		var read reading
		answer(c, ctx, r, workerpb.WorkerClient.Chat, func(m *workerpb.ChatEvent) (end bool, err error) {
			events, err := read.take(m)
			for _, e := range events {
				if !yield(e, nil) {
					return true, nil
				}
			}
			return read.finished, err
		}, func(err error) { yield(chat.Event{}, err) })
	})
}

// TellsSpans implements [engine.Distant]: the worker's process tells of its work.
func (c *Client) TellsSpans() bool { return true }

// answer sends a request and hands on each message of its answer until the end.
// Whatever ends it otherwise is the one error that fail gets.
func answer[M any](
	c *Client, ctx context.Context, r *engine.Request,
	call func(workerpb.WorkerClient, context.Context, *workerpb.GenerateRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[M], error),
	take func(*M) (end bool, err error), fail func(error),
) {
	ctx, done := c.begin(ctx)
	defer done()
	m, err := requestMessage(r)
	if err == nil {
		err = cmp.Or(c.able(r), fits(m))
	}
	if err := cmp.Or(c.over(ctx), err); err != nil {
		fail(err)
		return
	}
	stub, idle := c.line()
	defer idle()
	stream, err := call(stub, traced(ctx, r.Trace), m)
	if err != nil {
		fail(operation(c.refused(ctx, err, nil), "generate"))
		return
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			fail(operation(c.endOf(ctx, stream, err), "generate"))
			return
		}
		if err := c.over(ctx); err != nil { // what had come before is nobody's any more
			fail(err)
			return
		}
		end, err := take(m)
		if err != nil {
			done() // the worker is told before anybody else hears of it
			fail(operation(err, "generate"))
			return
		}
		if end {
			return
		}
	}
}

// refused returns the error of a call that nobody took, or that was answered with
// nothing else.
func (c *Client) refused(ctx context.Context, err error, trailer metadata.MD) error {
	if err := c.over(ctx); err != nil {
		return err
	}
	return connectError(errorOf(err, trailer, false))
}

// endOf returns the error of a stream that has ended too early.
func (c *Client) endOf(ctx context.Context, stream grpc.ClientStream, err error) error {
	if err := c.over(ctx); err != nil {
		return err
	}
	if header, _ := stream.Header(); header == nil && !errors.Is(err, io.EOF) {
		return connectError(errorOf(err, stream.Trailer(), false))
	}
	return errorOf(err, stream.Trailer(), true)
}

// over returns why a call has ended on this side, or nil.
func (c *Client) over(ctx context.Context) error {
	for _, ctx := range []context.Context{ctx, c.life} {
		if ctx.Err() != nil {
			return engine.CauseOf(ctx, ctx.Err())
		}
	}
	return nil
}

// traced adds the trace context to a call.
func traced(ctx context.Context, t engine.Trace) context.Context {
	if t.Parent != "" && printable(t.Parent) {
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", t.Parent)
	}
	if t.State != "" && printable(t.State) {
		ctx = metadata.AppendToOutgoingContext(ctx, "tracestate", t.State)
	}
	if t.Span != "" && printable(t.Span) {
		ctx = metadata.AppendToOutgoingContext(ctx, generation, t.Span)
	}
	if t.From != "" && printable(t.From) {
		ctx = metadata.AppendToOutgoingContext(ctx, predecessor, t.From)
	}
	return ctx
}

// able refuses what the worker's card does not promise: small workers look at no more
// of a request than they know.
func (c *Client) able(r *engine.Request) error {
	card := c.watch.board.status().Card
	if card == nil {
		return nil
	}
	for _, f := range []struct {
		asked   bool
		feature engine.Feature
		what    string
	}{
		{r.Format != nil && r.Format.Kind != chat.FormatText, guidedBy(r.Format), "guided output of this form is"},
		{r.KV.Namespace.LoRA != "", engine.FeatureLoRA, "adapters are"},
		{r.KV.Namespace.Salt != "", engine.FeatureCacheSalt, "cache salts are"},
		{len(r.Stop.Strings) > 0, engine.FeatureStopStrings, "stop strings are"},
		{r.Logprobs != nil, engine.FeatureLogprobs, "log probabilities are"},
		{r.PromptLogprobs != nil, engine.FeaturePromptLogprobs, "log probabilities of the prompt are"},
	} {
		if f.asked && !card.Features.Has(f.feature) {
			return engine.Errorf(engine.Unsupported, "%s not available on this worker (%s)", f.what, card.Engine)
		}
	}
	return nil
}

// guidedBy returns the feature that a form of answers needs.
func guidedBy(f *chat.OutputFormat) engine.Feature {
	if f == nil {
		return ""
	}
	return map[chat.FormatKind]engine.Feature{
		chat.FormatJSONObject: engine.FeatureGuidedObject, chat.FormatJSONSchema: engine.FeatureGuidedJSON,
		chat.FormatRegex: engine.FeatureGuidedRegex, chat.FormatGrammar: engine.FeatureGuidedGrammar,
		chat.FormatChoice: engine.FeatureGuidedChoice, chat.FormatStructuralTag: engine.FeatureStructuralTag,
	}[f.Kind]
}

// fits refuses what no worker would read.
func fits(m proto.Message) error {
	if n := proto.Size(m); n > maxMessage {
		return engine.Errorf(engine.InvalidArgument, "the request has %d bytes, want at most %d", n, maxMessage)
	}
	return nil
}
