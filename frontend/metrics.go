package frontend

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/internal/scrape"
)

// unknownModel is the label of requests whose model does not exist, so that
// clients cannot invent label values.
const unknownModel = "unknown_model"

// reference is the prefix of families whose names do not follow the setting.
const reference = "dynamo_frontend_"

// metrics is the page and what fills it. Children are resolved once for each
// model and route, and are found again without a hash of label values.
type metrics struct {
	registry *prometheus.Registry
	// itl sums up the gaps between tokens, too many to observe one by one.
	itl *batchedHistogram

	requests, started, outputTokens, cancelled, rejected, migrated *prometheus.CounterVec

	active, inflight, queued              *prometheus.GaugeVec
	duration, ttft, input, output, cached *prometheus.HistogramVec
	disconnected                          prometheus.Gauge
	invalidInputs                         prometheus.Counter
	tokenizer                             *prometheus.HistogramVec
	stages                                *prometheus.HistogramVec
	template, tokenize                    prometheus.Histogram
	reuse                                 *prometheus.HistogramVec
	notShown, forms, budgets, capped      *prometheus.CounterVec

	mu         sync.RWMutex
	series     map[seriesKey]*series
	statistics map[string]*statistics // by model
}

// seriesKey names the children of one kind of request.
type seriesKey struct {
	model, endpoint string
	stream          bool
	kserve          bool
}

// series are the children of one kind of request.
type series struct {
	statistics                                 *statistics
	started, outputTokens, cancelled, rejected prometheus.Counter
	active, inflight, queued                   prometheus.Gauge
	duration, ttft, input, output, cached      prometheus.Observer
	migratedNew, migratedOngoing               prometheus.Counter
	itl                                        *batchedSeries
	ended                                      [errorTypes]prometheus.Counter
}

// errorType is the reason for which a request was not answered.
type errorType uint8

const (
	noError errorType = iota
	errorValidation
	errorNotFound
	errorOverload
	errorUnavailable
	errorCancelled
	errorTimeout
	errorInternal
	errorNotImplemented
	errorTypes
)

func (t errorType) String() string {
	return [...]string{"", "validation", "not_found", "overload", "unavailable", "cancelled", "response_timeout", "internal", "not_implemented"}[t]
}

func newMetrics(s *Server) (*metrics, error) {
	prefix := MetricPrefix(s.MetricsPrefix) + "_"
	bounds := map[string][]float64{}
	for name, b := range BucketNames() {
		if set, ok := s.Buckets[name]; ok {
			b = set
		}
		if err := b.Validate(); err != nil {
			return nil, err
		}
		bounds[name] = b.Bounds()
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help}, labels)
	}
	histogram := func(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds}, labels)
	}
	seconds := []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1}
	m := &metrics{
		series: map[seriesKey]*series{},

		statistics: map[string]*statistics{},

		requests:     counter("requests_total", "Requests that have ended.", "model", "endpoint", "request_type", "status", "error_type"),
		started:      counter("requests_started_total", "Requests that were accepted for processing.", "model", "endpoint", "request_type"),
		outputTokens: counter("output_tokens_total", "Tokens generated, as they arrive.", "model"),
		cancelled:    counter("model_cancellation_total", "Requests that were cancelled.", "model", "endpoint", "request_type"),
		rejected:     counter("model_rejection_total", "Requests that were refused because all workers are busy.", "model", "endpoint"),
		migrated:     counter("model_migration_total", "Moves of requests to another worker.", "model", "migration_type"),

		active:       gauge("active_requests", "Requests between the handler's entry and the end of their answer.", "model"),
		inflight:     gauge("inflight_requests", "The same as active_requests, under its older name.", "model"),
		queued:       gauge("queued_requests", "Requests that wait for their first token.", "model"),
		disconnected: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "disconnected_clients", Help: "Clients that left before their answer was complete."}),

		duration: histogram(prefix+"request_duration_seconds", "Time from arrival to the end of the answer.", bounds[BucketDuration], "model"),
		ttft:     histogram(prefix+"time_to_first_token_seconds", "Time from arrival to the first token.", bounds[BucketTTFT], "model"),
		input:    histogram(prefix+"input_sequence_tokens", "Tokens of the prompt.", bounds[BucketInput], "model"),
		output:   histogram(prefix+"output_sequence_tokens", "Tokens of the answer.", bounds[BucketOutput], "model"),
		cached:   histogram(prefix+"cached_tokens", "Tokens of the prompt that the engine had cached.", bounds[BucketInput], "model"),
		itl: newBatchedHistogram(prefix+"inter_token_latency_seconds",
			"Time between two tokens.", bounds[BucketITL], "model"),
		tokenizer: histogram(prefix+"tokenizer_latency_ms", "Time in the tokenizer, in milliseconds.",
			[]float64{.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512}, "operation"),

		stages: histogram(reference+"stage_duration_seconds", "Time in one stage of the pipeline.",
			[]float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 2.5, 5}, "stage"),
		reuse: histogram("dynago_agent_prefix_reuse_ratio", "Share of a session's last prompt and its answer that the next prompt begins with, token for token.",
			[]float64{.1, .25, .5, .75, .9, .95, .98, .99, .995, .999, 1}, "model", "endpoint"),
		notShown: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dynago_agent_unsupported_total", Help: "Blocks and tools of conversations that models were not shown, each time that a prompt was made without them.",
		}, []string{"api", "kind"}),
		invalidInputs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dynago_agent_invalid_inputs_total", Help: "Calls in whole answers of Messages whose arguments were no JSON object, and were shown as __invalid_json.",
		}),
		forms: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dynago_structured_output_total", Help: "Answers that were to have a form, by who saw to it and whether it was kept.",
		}, []string{"model", "by", "result"}),
		budgets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dynago_thinking_budget_total", Help: "Requests with a thinking budget, by who saw to it.",
		}, []string{"model", "by"}),
		capped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dynago_tenant_capped_total", Help: "Wishes of tenants that were lowered to a cap of theirs.",
		}, []string{"tenant", "cap"}),
		tokenize: prometheus.NewHistogram(prometheus.HistogramOpts{Name: reference + "tokenize_seconds", Help: "Time to tokenize a prompt.", Buckets: seconds}),
		template: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: reference + "template_seconds", Help: "Time to render a chat template.",
			Buckets: []float64{.00001, .00005, .0001, .0005, .001, .005, .01, .05},
		}),
	}
	registry, err := scrape.Registry(append([]prometheus.Collector{
		m.requests, m.started, m.outputTokens, m.cancelled, m.rejected, m.migrated,
		m.active, m.inflight, m.queued, m.disconnected, m.invalidInputs,
		m.duration, m.ttft, m.input, m.output, m.cached, m.itl, m.tokenizer,
		m.stages, m.tokenize, m.template, m.reuse, m.notShown, m.forms, m.budgets, m.capped,
		newFleetGauges(s, prefix),
		newCacheGauges(s),
		newResponsesGauges(s),
		newFlowMetrics(s.Backend, m.stages, m.tokenizer),
		newPromptMetrics(s.Backend),
		newDropMetrics(s.Backend),
	}, s.Collectors...)...)
	if err != nil {
		return nil, err
	}
	m.registry = registry
	return m, nil
}

// Metrics returns what the page shows, for programs that gather it themselves.
func (s *Server) Metrics() *prometheus.Registry { return s.metrics.registry }

// page serves all of it.
func (m *metrics) page() http.Handler { return scrape.Page(m.registry) }

// MetricPrefix makes a setting a legal start of a name.
func MetricPrefix(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == ':':
			return r
		}
		return '_'
	}, s)
	if s != "" && s[0] >= '0' && s[0] <= '9' {
		s = "_" + s
	}
	return strings.TrimRight(s, "_")
}

// of returns the children of one kind of request.
func (m *metrics) of(key seriesKey) *series {
	m.mu.RLock()
	found := m.series[key]
	m.mu.RUnlock()
	if found != nil {
		return found
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if found = m.series[key]; found != nil {
		return found
	}
	kind := "unary"
	if key.stream {
		kind = "stream"
	}
	model, endpoint := key.model, key.endpoint
	cancelled := endpoint
	if key.kserve && endpoint == textEndpoint {
		cancelled = textCancelled
	}
	found = &series{
		statistics:      m.statisticsOf(model),
		started:         m.started.WithLabelValues(model, endpoint, kind),
		outputTokens:    m.outputTokens.WithLabelValues(model),
		cancelled:       m.cancelled.WithLabelValues(model, cancelled, kind),
		rejected:        m.rejected.WithLabelValues(model, endpoint),
		migratedNew:     m.migrated.WithLabelValues(model, "new_request"),
		migratedOngoing: m.migrated.WithLabelValues(model, "ongoing_request"),
		active:          m.active.WithLabelValues(model),
		inflight:        m.inflight.WithLabelValues(model),
		queued:          m.queued.WithLabelValues(model),
		duration:        m.duration.WithLabelValues(model),
		ttft:            m.ttft.WithLabelValues(model),
		input:           m.input.WithLabelValues(model),
		output:          m.output.WithLabelValues(model),
		cached:          m.cached.WithLabelValues(model),
		itl:             m.itl.with(model),
	}
	for t := range errorTypes {
		status := "error"
		if t == noError {
			status = "success"
		}
		found.ended[t] = m.requests.WithLabelValues(model, endpoint, kind, status, t.String())
	}
	m.series[key] = found
	return found
}

// modelNames knows the primary name of each model that is served.
type modelNames struct {
	backend Backend
	known   atomic.Pointer[map[string]string]
}

// primary returns the primary name of a model, or "" for one that does not
// exist. What was known once stays known, so that a model that leaves for a
// moment keeps its metrics.
func (n *modelNames) primary(name string) string {
	known := n.known.Load()
	if known != nil {
		if p, ok := (*known)[name]; ok {
			return p
		}
	}
	next := map[string]string{}
	if known != nil {
		for k, v := range *known {
			next[k] = v
		}
	}
	// Further names come before those of adapters, and a model's own before both.
	models := n.backend.Models()
	for _, m := range models {
		for _, name := range m.Adapters {
			next[name] = m.ID
		}
	}
	for _, m := range models {
		for _, name := range m.Aliases {
			next[name] = m.ID
		}
	}
	for _, m := range models {
		next[m.ID] = m.ID
	}
	n.known.Store(&next)
	return next[name]
}
