package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/scrape"
)

// systemSettings are those of the pages that workers have for whoever runs them.
type systemSettings struct {
	Host string `name:"system-host" env:"DYN_SYSTEM_HOST" default:"127.0.0.1" placeholder:"ADDRESS" help:"Answer on this address: /metrics, /live and /health; 0.0.0.0 is all."`
	Port int    `name:"system-port" env:"DYN_SYSTEM_PORT" default:"-1" range:"-1..65535" placeholder:"PORT" help:"And on this port; 0 takes a free one, and -1 does not listen."`
}

// systemPages are the pages of a worker. Nil has none.
type systemPages struct {
	listener net.Listener
	server   *http.Server
	failed   chan error
}

// open serves the pages.
func (s *systemSettings) open(all []prometheus.Collector, ready func() bool, log *slog.Logger) (*systemPages, error) {
	if s.Port < 0 {
		return nil, nil
	}
	registry, err := scrape.Registry(all...)
	if err != nil {
		return nil, err
	}
	l, err := listen(s.Host, s.Port, "--system-port")
	if err != nil {
		return nil, err
	}
	say := func(w http.ResponseWriter, status int, what string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, "{\"status\":%q}\n", what)
	}
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", scrape.Page(registry))
	pages.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "live") })
	pages.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if ready() {
			say(w, http.StatusOK, "ready")
			return
		}
		say(w, http.StatusServiceUnavailable, "notready")
	})
	p := &systemPages{l, &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}, make(chan error, 1)}
	go func() { p.failed <- p.server.Serve(l) }()
	return p, nil
}

// failure tells when the pages end that should not.
func (p *systemPages) failure() <-chan error {
	if p == nil {
		return nil
	}
	return p.failed
}

func (p *systemPages) close() error {
	if p == nil {
		return nil
	}
	if err := p.server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// workerMetrics tell what frontends ask of the workers of a process.
type workerMetrics struct {
	workers                          *workers
	running, waiting, begun, refused *prometheus.Desc
}

func newWorkerMetrics(w *workers) *workerMetrics {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &workerMetrics{
		workers: w,
		running: desc("dynamo_engine_request", "Requests that run."),
		waiting: desc("dynamo_request_queue", "Requests that wait for one of those to end."),
		refused: desc("dynamo_rejection_request_total", "Requests that were refused because too many wait."),
		begun:   desc("dynago_worker_requests_begun_total", "Requests that have begun to run."),
	}
}

// Describe implements prometheus.Collector.
func (m *workerMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.running, m.waiting, m.begun, m.refused} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *workerMetrics) Collect(ch chan<- prometheus.Metric) {
	var running, waiting, begun, refused float64
	for _, s := range m.workers.servers {
		c := s.Counts()
		running, waiting = running+float64(c.Running), waiting+float64(c.Waiting)
		begun, refused = begun+float64(c.Begun), refused+float64(c.Refused)
	}
	ch <- prometheus.MustNewConstMetric(m.running, prometheus.GaugeValue, running)
	ch <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, waiting)
	ch <- prometheus.MustNewConstMetric(m.begun, prometheus.CounterValue, begun)
	ch <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, refused)
}

// collectors are what a worker's page shows: of its requests, of the tiers of mock
// engines, and others.
func (w *workers) collectors(more ...prometheus.Collector) []prometheus.Collector {
	all := func(yield func(uint64, engine.Engine) bool) {
		for _, s := range w.engines {
			if !yield(s.id, s.engine) {
				return
			}
		}
	}
	return append([]prometheus.Collector{newWorkerMetrics(w), newCacheMetrics(all), newKVBMMetrics(all)}, more...)
}

// ready says whether frontends may send requests to all workers.
func (w *workers) ready() bool {
	for _, s := range w.servers {
		if !s.Ready() {
			return false
		}
	}
	return true
}
