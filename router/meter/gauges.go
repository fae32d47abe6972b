package meter

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/router"
)

// gauges are read from a router when the page is.
type gauges struct {
	all []*prometheus.Desc
	// Of the router.
	started, refused, expired, parked, timeouts *prometheus.Desc
	// Of its queues.
	pending, pendingTokens, pendingCached, backpressure *prometheus.Desc
	// Of workers and sessions.
	registered, untold, bindings, kept, closing, sessions *prometheus.Desc
}

func newGauges(labels prometheus.Labels) gauges {
	var g gauges
	desc := func(name, help string, constant prometheus.Labels, variable ...string) *prometheus.Desc {
		d := prometheus.NewDesc(name, help, variable, constant)
		g.all = append(g.all, d)
		return d
	}
	queue := func(name, help string, more ...string) *prometheus.Desc {
		return desc("dynamo_frontend_router_queue_"+name, help, nil, append([]string{"model", "worker_type", "policy_class"}, more...)...)
	}
	g.started = desc("dynamo_component_router_requests_started_total", "Requests that came.", labels)
	g.registered = desc("dynamo_component_router_worker_registered", "1 for every rank that is known.", labels, "router_worker_id", "dp_rank", "worker_type")
	g.untold = desc("dynamo_component_router_kv_event_source_mismatch_workers", "Workers that are ready and tell nothing of their caches, while the router listens.", labels)

	g.pending = queue("pending_requests", "Requests that wait for a worker.")
	g.pendingTokens = queue("pending_isl_tokens", "Tokens of their prompts.")
	g.pendingCached = queue("pending_cached_tokens", "Tokens of them that were cached somewhere when they came.")
	g.backpressure = queue("backpressure_total", "Requests that were refused because too much waits.", "reason")

	g.refused = desc("dynago_router_refused_total", "Requests for which there was no worker.", nil)
	g.expired = desc("dynago_router_expired_total", "Bookings of which nothing was heard for too long.", nil)
	g.parked = desc("dynago_router_parked_total", "Requests that had to wait.", nil)
	g.timeouts = desc("dynago_router_queue_timeouts_total", "Requests that waited in vain.", nil)
	g.bindings = desc("dynago_router_session_bindings", "Sessions that are bound to a worker.", nil)
	g.kept = desc("dynago_router_session_kept", "Sessions that an engine keeps as well.", nil)
	g.closing = desc("dynago_router_session_closing", "Sessions whose engine is still to hear that they have ended.", nil)
	g.sessions = desc("dynago_router_session_events_total", "What has become of sessions and their requests.", nil, "event")
	return g
}

func (g *gauges) describe(ch chan<- *prometheus.Desc) {
	for _, d := range g.all {
		ch <- d
	}
}

func (g *gauges) collect(ch chan<- prometheus.Metric, r *router.Router) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	c := r.Counters()
	counter(g.started, c.Asked)
	counter(g.refused, c.Refused)
	counter(g.expired, c.Expired)
	counter(g.parked, c.Parked)
	counter(g.timeouts, c.QueueTimeouts)
	for _, q := range r.Queues() {
		for _, class := range q.Classes {
			labels := []string{q.Model, workerType(q.Role), class.Class}
			gauge(g.pending, class.Requests, labels...)
			gauge(g.pendingTokens, class.Tokens, labels...)
			gauge(g.pendingCached, class.CachedTokens, labels...)
			for kind, reason := range reasons {
				counter(g.backpressure, class.Rejected[kind], append(labels, reason)...)
			}
		}
	}
	for _, l := range r.Loads() {
		gauge(g.registered, 1, strconv.FormatUint(l.Target.Worker, 10), strconv.FormatUint(uint64(l.Target.Rank), 10), workerType(l.Role))
	}
	gauge(g.untold, r.Untold())
	s := r.Sessions()
	gauge(g.bindings, s.Bindings)
	gauge(g.kept, s.Kept)
	gauge(g.closing, s.Closing)
	for event, n := range map[string]uint64{
		"bound": s.Made, "followed": s.Followed, "waited": s.Waited, "moved": s.Moved, "lost": s.Lost,
		"expired": s.Expired, "evicted": s.Evicted, "unbound": s.Unbound, "unknown": s.Unknown,
		"closed": s.Closed, "opened": s.Opened, "degraded": s.Degraded, "refused": s.Refused, "adopted": s.Adopted,
	} {
		counter(g.sessions, n, event)
	}
}

// reasons are the names of limits as boards know them.
var reasons = map[router.LimitKind]string{
	router.RequestLimit:     "request_limit",
	router.TokenLimit:       "raw_isl_token_limit",
	router.CachedTokenLimit: "cached_token_limit",
}
