// Package scrape is the page that Prometheus reads: what is on the page of every
// command, and the two forms in which it is written.
//
// Some counters keep the names that boards know them by, and those do not end in
// _total. OpenMetrics wants that ending, and a scraper that asks for it would store
// them under other names than one that does not. There they are of an unknown type
// instead, so that a name is the same in both forms.
package scrape

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// Registry returns a registry of collectors, and of what the runtime and the system
// tell of the process.
func Registry(all ...prometheus.Collector) (*prometheus.Registry, error) {
	began := time.Now()
	registry := prometheus.NewRegistry()
	for _, c := range append([]prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "dynamo_component_uptime_seconds", Help: "Time since the process began to serve.",
		}, func() float64 { return time.Since(began).Seconds() }),
	}, all...) {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return registry, nil
}

// Page serves what is gathered, as text or, to who asks for it, as OpenMetrics. A few
// scrapes may run at once; further ones are refused.
func Page(from prometheus.Gatherer) http.Handler {
	options := promhttp.HandlerOpts{MaxRequestsInFlight: 4}
	text := promhttp.HandlerFor(from, options)
	options.EnableOpenMetrics = true
	open := promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := from.Gather()
		keepNames(families)
		return families, err
	}), options)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...).FormatType() == expfmt.TypeOpenMetrics {
			open.ServeHTTP(w, r)
			return
		}
		text.ServeHTTP(w, r)
	})
}

// keepNames makes counters that OpenMetrics would give another name ones of unknown
// type, and those whose name without its ending is that of something else. The families
// are those of one scrape, and nobody else's.
func keepNames(families []*dto.MetricFamily) {
	names := make(map[string]bool, len(families))
	for _, f := range families {
		names[f.GetName()] = true
	}
	for _, f := range families {
		base, counts := strings.CutSuffix(f.GetName(), "_total")
		if f.GetType() != dto.MetricType_COUNTER || counts && !names[base] {
			continue
		}
		f.Type = dto.MetricType_UNTYPED.Enum()
		for _, m := range f.Metric {
			m.Untyped, m.Counter = &dto.Untyped{Value: m.Counter.Value}, nil
		}
	}
}
