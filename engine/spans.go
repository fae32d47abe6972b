package engine

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/span"
)

// Spans tells of generations as spans: handle_payload, which is all that a worker does
// about a request, and in it engine.generate. A worker in another process does so
// itself, with what came over the wire; see [Distant]. A nil one tells of nothing.
type Spans struct {
	*span.Tracer
	// InstanceID names the worker to people.
	InstanceID string
	// Served says that requests come from another process. It leaves them when it has
	// heard enough, and nobody can tell that from one whose client has gone, of which it
	// tells itself: to be left is no failure then.
	Served bool
}

// Distant is an engine in another process that tells of its own generations.
type Distant interface{ TellsSpans() bool }

// Generate runs a request on an engine, and tells of it if the trace of the request is
// one that somebody wants to be told of. The engine gets its trace as the span
// engine.generate in it.
func (s *Spans) Generate(ctx context.Context, e Engine, r *Request) iter.Seq2[Delta, error] {
	g := s.begin(e, r)
	if g == nil {
		return e.Generate(ctx, r)
	}
	return func(yield func(Delta, error) bool) {
		defer g.end(ctx)
		for d, err := range e.Generate(span.With(ctx, g.within()), g.request) {
			switch {
			case err != nil:
				g.failed(ctx, err)
			default:
				g.item(len(d.TokenIDs), time.Now())
				if d.Usage != nil {
					g.tokens = max(g.tokens, d.Usage.Output)
				}
				g.finish = d.Finish
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// Chat is Generate for an engine that takes conversations.
func (s *Spans) Chat(ctx context.Context, e ChatEngine, r *Request) iter.Seq2[chat.Event, error] {
	g := s.begin(e, r)
	if g == nil {
		return e.Chat(ctx, r)
	}
	return func(yield func(chat.Event, error) bool) {
		defer g.end(ctx)
		for event, err := range e.Chat(span.With(ctx, g.within()), g.request) {
			switch {
			case err != nil:
				g.failed(ctx, err)
			case event.Kind == chat.TextDelta || event.Kind == chat.ThinkingDelta || event.Kind == chat.ArgsDelta:
				g.item(1, time.Now())
			case event.Kind == chat.Finished:
				g.tokens, g.input = max(g.tokens, event.Usage.Output), max(g.input, event.Usage.Prompt)
				g.finish = Finish(event.Finish.Reason)
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

// generation is what is gathered of one, by the goroutine of its loop.
type generation struct {
	spans   *Spans
	request *Request     // that the engine gets
	came    span.Context // with the request
	ingress span.Context // handle_payload
	inner   span.Context // engine.generate

	start, first, last time.Time // of all, and of items
	input, tokens      int
	finish             Finish
	failure            ErrorKind
	ended              bool // its context, before it had an end
	gaps               gaps
}

// begin returns nil if nobody wants to know.
func (s *Spans) begin(e any, r *Request) *generation {
	if s == nil {
		return nil
	}
	came, ok := span.Parse(r.Trace.Parent, r.Trace.State)
	if !ok || !s.Wants(came) {
		return nil
	}
	if whole, ok := e.(Engine); ok {
		if d, ok := As[Distant](whole); ok && d.TellsSpans() {
			return nil
		}
	}
	g := &generation{spans: s, came: came, start: time.Now(), input: len(r.TokenIDs)}
	g.ingress = s.Begin(came)
	g.inner = s.Begin(g.ingress)
	if id, ok := span.ParseID(r.Trace.Span); ok {
		g.inner.ID = id
	}
	inside := *r
	inside.Trace.Parent, inside.Trace.Span = g.inner.Parent(), ""
	g.request = &inside
	return g
}

// within is what logs tell of where the work goes on.
func (g *generation) within() *span.Within {
	return &span.Within{Context: g.inner, Name: "engine.generate", Parent: g.ingress, Attrs: []span.Attr{{Key: "request_id", Value: g.request.ID}}}
}

// item notes that n tokens have come.
func (g *generation) item(n int, now time.Time) {
	if n == 0 {
		return
	}
	g.tokens += n
	if g.first.IsZero() {
		g.first = now
	} else {
		g.gaps.add(float32(now.Sub(g.last).Seconds() * 1000 / float64(n)))
	}
	g.last = now
}

func (g *generation) failed(ctx context.Context, err error) {
	g.ended, g.failure = ctx.Err() != nil, KindOf(CauseOf(ctx, err))
	if g.spans.Served && g.failure == Cancelled {
		g.failure = ""
	}
}

// end tells of both spans.
func (g *generation) end(ctx context.Context) {
	now, r := time.Now(), g.request
	s := &span.Span{Name: "engine.generate", Target: "worker", Context: g.inner, Parent: g.ingress, Start: g.start, End: now}
	s.Add("request_id", r.ID)
	s.Add("model", r.Model)
	s.Add("input_tokens", g.input)
	s.Add("output_tokens", g.tokens)
	s.Add("disagg_role", cmp.Or(string(r.Disagg.Phase), "aggregated"))
	s.Add("finish_reason", string(g.finish))
	cancelled := g.finish == Running && (g.ended || ctx.Err() != nil)
	s.Add("cancelled", cancelled)
	switch {
	case g.failure != "":
		s.Add("error_kind", string(g.failure))
		s.Error = string(g.failure)
	case cancelled && !g.spans.Served:
		s.Error = "stream dropped before terminal"
	}
	if !g.first.IsZero() {
		s.Add("ttft_ms", hundredths(g.first.Sub(g.start).Seconds()*1000))
	}
	g.gaps.tell(s)
	if from, ok := span.Parse(r.Trace.From, ""); ok {
		s.Add("migration_trace_id", from.TraceID())
		s.Add("migration_span_id", from.SpanID())
		s.Links = []span.Context{from}
	}
	g.spans.End(s)

	p := &span.Span{Name: "handle_payload", Target: "worker", Context: g.ingress, Parent: g.came, Kind: span.Server, Start: g.start, End: now, Error: s.Error}
	p.Add("trace_id", g.came.TraceID())
	p.Add("parent_id", g.came.SpanID())
	p.Add("trace_flags", g.came.Flags())
	p.Add("tracestate", g.came.State)
	p.Add("request_id", r.ID)
	p.Add("component", "backend")
	p.Add("endpoint", "generate")
	p.Add("namespace", "dynamo")
	p.Add("instance_id", g.spans.InstanceID)
	g.spans.End(p)
}

// mostGaps is how many gaps between items are kept for their percentiles; of longer
// answers every second one is, every fourth, and so on.
const mostGaps = 2048

// gaps are the times between items, in milliseconds.
type gaps struct {
	kept []float32
	each int // of how many one is kept; 0: all
	seen int
	most float32
	sum  float64
}

func (g *gaps) add(gap float32) {
	g.most, g.sum = max(g.most, gap), g.sum+float64(gap)
	if len(g.kept) == mostGaps {
		for i := range mostGaps / 2 {
			g.kept[i] = g.kept[2*i]
		}
		g.kept, g.each = g.kept[:mostGaps/2], 2*max(1, g.each)
	}
	if g.each == 0 || g.seen%g.each == 0 {
		g.kept = append(g.kept, gap)
	}
	g.seen++
}

// tell adds what there is to say of the gaps.
func (g *gaps) tell(s *span.Span) {
	if g.seen == 0 {
		return
	}
	slices.Sort(g.kept)
	s.Add("avg_itl_ms", hundredths(g.sum/float64(g.seen)))
	s.Add("itl_p50_ms", hundredths(float64(nearest(g.kept, 50))))
	s.Add("itl_p99_ms", hundredths(float64(nearest(g.kept, 99))))
	s.Add("itl_max_ms", hundredths(float64(g.most)))
}

// nearest returns a percentile of sorted values by the nearest rank.
func nearest(sorted []float32, percent int) float32 {
	return sorted[(len(sorted)*percent+99)/100-1]
}

// hundredths writes a number as spans have times.
func hundredths(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
