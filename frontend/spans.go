package frontend

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/span"
)

// trace begins the span of a call, and returns the trace that its workers are told of:
// that of its client, as it came, where nobody makes spans.
func (s *Server) trace(x *exchange, h http.Header) engine.Trace {
	var came span.Context
	parent := h.Get("Traceparent")
	if parent != "" {
		came, _ = span.Parse(parent, strings.Join(h.Values("Tracestate"), ","))
	}
	if s.Spans == nil {
		if !came.Valid() {
			return engine.Trace{}
		}
		return engine.Trace{Parent: parent, State: came.State}
	}
	x.within, x.span = came, s.Spans.Begin(came)
	return engine.Trace{Parent: x.span.Parent(), State: x.span.State}
}

// spanName is that of the span of a whole call.
func (x *exchange) spanName() string {
	if x.rpc != "" {
		return "grpc-request"
	}
	return "http-request"
}

// spanned returns a context of work on a call, by which logs know its span.
func (x *exchange) spanned(ctx context.Context) context.Context {
	if !x.span.Valid() {
		return ctx
	}
	w := &span.Within{Context: x.span, Name: x.spanName(), Parent: x.within, Attrs: []span.Attr{{Key: "request_id", Value: x.id}}}
	if x.correlation != x.id {
		w.Attrs = append(w.Attrs, span.Attr{Key: "x_request_id", Value: x.correlation})
	}
	return span.With(ctx, w)
}

// ended begins to tell of a call that has ended.
func (x *exchange) ended(now time.Time) *span.Span {
	s := &span.Span{Name: x.spanName(), Target: "frontend", Context: x.span, Parent: x.within, Kind: span.Server, Start: x.arrived, End: now}
	method, uri, _ := strings.Cut(x.route, " ")
	if x.rpc != "" {
		method, uri = x.rpc, ""
	}
	s.Add("method", method)
	s.Add("uri", uri)
	s.Add("version", x.version)
	s.Add("trace_id", x.span.TraceID())
	if x.within.Valid() {
		s.Add("parent_id", x.within.SpanID())
	}
	s.Add("trace_flags", x.span.Flags())
	s.Add("x_request_id", x.correlation)
	s.Add("request_id", x.id)
	return s
}

// span tells of a call as a span, when all of its answer is sent.
func (r *record) span(elapsed time.Duration, kind errorType) {
	x := r.x
	if !r.server.Spans.Wants(x.span) {
		return
	}
	s := x.ended(x.arrived.Add(elapsed))
	s.Add("model", r.model)
	s.Add("session_id", r.session)
	if r.fault != nil {
		s.Error = kind.String()
		s.Add("status", int64(r.fault.Status))
	} else {
		s.Add("status", int64(http.StatusOK))
	}
	var input int
	for i := range r.notes {
		input += r.notes[i].PromptTokens
	}
	if input = max(input, r.usage.Prompt); input > 0 {
		s.Add("input_tokens", input)
	}
	output := max(r.tokens, r.usage.Output)
	if output > 0 {
		s.Add("output_tokens", output)
	}
	if r.images > 0 {
		s.Add("image_count", r.images)
	}
	if !r.first.IsZero() {
		s.Add("ttft_ms", hundredths(r.first.Sub(x.arrived)))
		if r.tokens > 1 {
			s.Add("avg_itl_ms", hundredths(r.last.Sub(r.first)/time.Duration(r.tokens-1)))
		}
	}
	if len(r.notes) > 0 && r.notes[0].Attempts > 0 {
		workers(s, &r.notes[0])
	}
	r.server.Spans.End(s)
}

// workers adds who has served.
func workers(s *span.Span, n *pipeline.Notes) {
	prefill := n.Target
	if n.Prefill != nil {
		prefill = *n.Prefill
	}
	s.Add("prefill_worker_id", strconv.FormatUint(prefill.Worker, 10))
	s.Add("decode_worker_id", strconv.FormatUint(n.Target.Worker, 10))
}

// probed tells of a request that is no call of a model, such as one for health, where
// operators want to see these as well.
func (s *Server) probed(x *exchange, h http.Header) {
	if !s.ProbeSpans || s.Spans == nil || x.span.Valid() {
		return
	}
	s.trace(x, h)
	if s.Spans.Wants(x.span) {
		ended := x.ended(time.Now())
		ended.Debug = true
		s.Spans.End(ended)
	}
}

// images counts the pictures of a call.
func images(requests []*chat.Request) (n int) {
	for _, r := range requests {
		for i := range r.Turns {
			for k := range r.Turns[i].Blocks {
				if r.Turns[i].Blocks[k].Kind == chat.Image {
					n++
				}
			}
		}
	}
	return n
}

// hundredths writes a time in milliseconds, as spans have it.
func hundredths(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds()*1000, 'f', 2, 64)
}
