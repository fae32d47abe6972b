package pipeline

import (
	"cmp"
	"strconv"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/span"
)

// Spans are told here of decisions, which others have measured, and of dispatches. A
// request whose trace nobody wants passes by; nothing is made for it.

// within returns the span that a request is worked on in, if it is one to tell of.
func (p *Pipeline) within(r *Request) (span.Context, bool) {
	if p.Spans == nil || p.Spans.Tracer == nil {
		return span.Context{}, false
	}
	c, ok := span.Parse(r.Trace.Parent, r.Trace.State)
	return c, ok && p.Spans.Wants(c)
}

// byCache says whether the router looks at caches, and has the spans of those who do.
func (p *Pipeline) byCache() bool { return p.RouterMode == "" || p.RouterMode == string(router.KV) }

// selected tells of a decision that was just made.
func (j *job) selected(b *router.Booking) {
	within, ok := j.p.within(j.request)
	if !ok || !j.p.byCache() {
		return
	}
	told := router.DecisionSpans{Request: j.request.ID, Decision: b.Decision(), End: time.Now()}
	told.Tell(j.p.Spans.Tracer, within)
}

// advised tells of a decision that nothing follows from.
func (j *job) advised(d router.Decision) {
	within, ok := j.p.within(j.request)
	if !ok || !j.p.byCache() {
		return
	}
	told := router.DecisionSpans{Request: j.request.ID, Decision: d, End: time.Now(), Advice: true}
	told.Tell(j.p.Spans.Tracer, within)
}

// unselected tells of a decision that came to nothing.
func (j *job) unselected(start time.Time, err error) {
	within, ok := j.p.within(j.request)
	if !ok || !j.p.byCache() {
		return
	}
	s := &span.Span{
		Name: "kv_router.select_worker", Target: "router", Context: j.p.Spans.Begin(within), Parent: within,
		Start: start, End: time.Now(), Error: string(engine.KindOf(err)),
	}
	s.Add("request_id", j.request.ID)
	j.p.Spans.End(s)
}

// trace gives a request to a worker a span of its own, in which the worker's are, and
// chooses the id of that of the generation, so that the next attempt or leg can name it.
func (c *carry) trace(r *engine.Request) {
	within, ok := c.p.within(c.request)
	if !ok {
		return
	}
	sent := c.p.Spans.Begin(within)
	generation := c.p.Spans.Begin(sent)
	r.Trace.Parent, r.Trace.Span, r.Trace.From = sent.Parent(), generation.SpanID(), c.before
	c.before = generation.Parent()
}

// dispatch is a request that was sent to a worker.
type dispatch struct {
	span.Span
	spans *engine.Spans
}

// dispatched begins to measure one; nil, if nobody wants to know.
func (p *Pipeline) dispatched(j *job, r *engine.Request, b *router.Booking) *dispatch {
	within, ok := p.within(j.request)
	if !ok {
		return nil
	}
	d := &dispatch{spans: p.Spans}
	d.Name, d.Target, d.Kind, d.Parent, d.Start = "router.route_request", "router", span.Client, within, time.Now()
	d.Context, _ = span.Parse(r.Trace.Parent, r.Trace.State)
	decision := b.Decision()
	d.Add("request_id", r.ID)
	d.Add("worker_id", strconv.FormatUint(decision.Target.Worker, 10))
	if p.byCache() {
		d.Name = "kv_router.route_request"
		d.Add("dp_rank", int64(decision.Target.Rank))
		d.Add("overlap_blocks", decision.Overlap)
		d.Add("phase", cmp.Or(string(r.Disagg.Phase), "aggregated"))
	} else {
		d.Add("router_mode", p.RouterMode)
	}
	if from, ok := span.Parse(r.Trace.From, ""); ok {
		d.Links = []span.Context{from}
	}
	return d
}

// calls begins to measure an operation of a worker that a request waits for; nil, if
// nobody wants to know.
func (p *Pipeline) calls(j *job, operation, id string, worker *fleet.Worker) *dispatch {
	within, ok := p.within(j.request)
	if !ok {
		return nil
	}
	d := &dispatch{spans: p.Spans}
	d.Name, d.Target, d.Kind, d.Parent, d.Context, d.Start = "client_request", "router", span.Client, within, p.Spans.Begin(within), time.Now()
	d.Add("operation", operation)
	d.Add("request_id", id)
	d.Add("instance_id", strconv.FormatUint(worker.ID(), 10))
	d.Add("trace_id", d.TraceID())
	d.Add("parent_id", within.SpanID())
	return d
}

// end tells of it, with what has ended it early.
func (d *dispatch) end(err error) {
	if d == nil {
		return
	}
	d.Span.End = time.Now()
	if err != nil {
		d.Error = string(engine.KindOf(err))
	}
	d.spans.End(&d.Span)
}
