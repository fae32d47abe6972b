package selection

import (
	"net/http"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/span"
)

// spanned tells of the calls of an operation as spans, in the trace that their
// dispatcher names.
func (s *Service) spanned(o Operation) http.HandlerFunc {
	if ofRequests := strings.HasPrefix(o.Path, "/select") || strings.HasPrefix(o.Path, "/reservations"); s.Spans == nil || !ofRequests {
		return o.Serve
	}
	return func(w http.ResponseWriter, r *http.Request) {
		came, _ := span.Parse(r.Header.Get("Traceparent"), strings.Join(r.Header.Values("Tracestate"), ","))
		start, own := time.Now(), s.Spans.Begin(came)
		answer := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		o.Serve(answer, r.WithContext(span.With(r.Context(), &span.Within{Context: own, Name: "http-request", Parent: came})))
		if !s.Spans.Wants(own) {
			return
		}
		told := &span.Span{Name: "http-request", Target: "selection", Context: own, Parent: came, Kind: span.Server, Start: start, End: time.Now()}
		told.Add("method", o.Method)
		told.Add("uri", o.Path)
		told.Add("version", r.Proto)
		told.Add("trace_id", own.TraceID())
		if came.Valid() {
			told.Add("parent_id", came.SpanID())
		}
		told.Add("trace_flags", own.Flags())
		told.Add("x_request_id", r.Header.Get("X-Request-Id"))
		told.Add("status", answer.status)
		if answer.status >= http.StatusBadRequest {
			told.Error = http.StatusText(answer.status)
		}
		s.Spans.End(told)
	}
}

// selected tells of a decision that was made for a call, and of one that came to
// nothing by its error. A router that does not look at caches has no spans for that.
func (s *Service) selected(r *http.Request, told router.DecisionSpans, err error) {
	within := span.From(r.Context())
	if within == nil || !s.Spans.Wants(within.Context) || s.RouterMode != "" && s.RouterMode != string(router.KV) {
		return
	}
	told.End = time.Now()
	if err == nil {
		told.Tell(s.Spans, within.Context)
		return
	}
	failed := &span.Span{
		Name: "kv_router.select_worker", Target: "router", Context: s.Spans.Begin(within.Context), Parent: within.Context,
		Start: told.End, End: told.End, Error: string(engine.KindOf(err)),
	}
	failed.Add("request_id", told.Request)
	s.Spans.End(failed)
}
