package selection

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/internal/scrape"
)

// metrics is the page and what fills it.
type metrics struct {
	service  *Service
	registry *prometheus.Registry

	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec

	// Read when the page is.
	workers, pending, pendingBytes, decisions *prometheus.Desc
	decode, prefill, active, cached           *prometheus.Desc
	indexed, streams                          *prometheus.Desc
}

func newMetrics(s *Service) (*metrics, error) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	rank := []string{"worker_id", "dp_rank", "worker_type"}
	m := &metrics{
		service:  s,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dynago_selection_requests_total", Help: "Requests, by route and status."}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dynago_selection_request_duration_seconds", Help: "Time to answer, with the wait for room.",
			Buckets: prometheus.ExponentialBuckets(.0001, 2, 20),
		}, []string{"route"}),
		workers:      desc("dynago_selection_workers", "Workers, by what becomes of requests for them.", "lifecycle"),
		pending:      desc("dynago_selection_pending_selections", "Selections that can still be booked by their id."),
		pendingBytes: desc("dynago_selection_pending_selection_bytes", "Memory that those hold."),
		decisions:    desc("dynago_router_decisions_total", "Requests that were booked."),
		decode:       desc("dynamo_frontend_worker_active_decode_blocks", "KV blocks in use by what was booked.", rank...),
		prefill:      desc("dynamo_frontend_worker_active_prefill_tokens", "Tokens of prompts that are not yet computed.", rank...),
		active:       desc("dynago_worker_requests", "Requests booked.", rank[:2]...),
		cached:       desc("dynago_worker_cached_blocks", "KV blocks known to be cached.", rank...),
		indexed:      desc("dynago_index_blocks", "Blocks in the index, over all ranks."),
		streams:      desc("dynago_selection_kv_event_streams", "Connections to workers' KV events, by whether they stand.", "connected"),
	}
	registry, err := scrape.Registry(append([]prometheus.Collector{m, m.requests, m.duration}, s.Collectors...)...)
	if err != nil {
		return nil, fmt.Errorf("selection: metrics: %w", err)
	}
	m.registry = registry
	return m, nil
}

// Metrics returns what the page shows, for programs that gather it themselves.
func (s *Service) Metrics() *prometheus.Registry { return s.metrics.registry }

// page serves all of it.
func (m *metrics) page() http.Handler { return scrape.Page(m.registry) }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.workers, m.pending, m.pendingBytes, m.decisions,
		m.decode, m.prefill, m.active, m.cached, m.indexed, m.streams,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	s := m.service
	states := map[lifecycle]int{incomplete: 0, schedulable: 0, draining: 0, unschedulable: 0}
	connected := map[bool]int{true: 0, false: 0}
	for _, r := range s.catalog.list("", "") {
		states[r.Lifecycle]++
		for _, stream := range r.Streams {
			connected[stream.Connected]++
		}
	}
	for state, n := range states {
		gauge(m.workers, n, string(state))
	}
	s.mu.Lock()
	s.pending.expire(s.Now())
	selections, held := len(s.pending.entries), s.pending.bytes
	s.mu.Unlock()
	gauge(m.pending, selections)
	gauge(m.pendingBytes, held)
	ch <- prometheus.MustNewConstMetric(m.decisions, prometheus.CounterValue, float64(s.Router.Counters().Decisions))
	for _, l := range s.Router.Loads() {
		id, rank := strconv.FormatUint(uint64(outer(l.Target.Worker)), 10), strconv.FormatUint(uint64(l.Target.Rank), 10)
		gauge(m.decode, l.ActiveBlocks, id, rank, "decode")
		gauge(m.prefill, l.PrefillTokens, id, rank, "decode")
		gauge(m.active, l.Requests, id, rank)
		gauge(m.cached, l.CachedBlocks, id, rank, "decode")
	}
	gauge(m.indexed, s.Router.IndexStats().Blocks)
	for stands, n := range connected {
		gauge(m.streams, n, strconv.FormatBool(stands))
	}
}

// measured counts what becomes of an operation's requests.
func (s *Service) measured(o Operation) http.HandlerFunc {
	serve, duration := s.spanned(o), s.metrics.duration.WithLabelValues(o.Path)
	return func(w http.ResponseWriter, r *http.Request) {
		start, answer := time.Now(), &statusWriter{ResponseWriter: w, status: http.StatusOK}
		serve(answer, r)
		duration.Observe(time.Since(start).Seconds())
		s.metrics.requests.WithLabelValues(o.Method, o.Path, strconv.Itoa(answer.status)).Inc()
	}
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
