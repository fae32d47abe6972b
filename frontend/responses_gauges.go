package frontend

import "github.com/prometheus/client_golang/prometheus"

// responsesGauges tells what is kept of responses, at the time the page is read.
type responsesGauges struct {
	server *Server

	entries, bytes, hits, misses, dropped, torn, failed *prometheus.Desc
	making, background, sockets                         *prometheus.Desc
}

func newResponsesGauges(s *Server) *responsesGauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("dynago_responses_"+name, help, labels, nil)
	}
	return &responsesGauges{
		server:  s,
		entries: desc("store_entries", "Responses that can be asked for."),
		bytes:   desc("store_bytes", "Bytes that are kept of responses, and of what they continue."),
		hits:    desc("store_hits_total", "Responses and items that were asked for and found."),
		misses:  desc("store_misses_total", "Responses and items that were asked for and not found."),
		dropped: desc("store_evictions_total", "Responses that were dropped: to make room, since they were kept long enough, or since they were larger than the store.", "reason"),
		torn:    desc("store_torn_files_total", "Files of the store that are no whole responses."),
		failed:  desc("store_failed_writes_total", "Responses that could not be written into the store."),

		making:     desc("in_flight", "Responses being made."),
		background: desc("background", "Those of them for which no client waits."),
		sockets:    desc("sockets", "Open WebSockets."),
	}
}

// Describe implements prometheus.Collector.
func (g *responsesGauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		g.entries, g.bytes, g.hits, g.misses, g.dropped, g.torn, g.failed, g.making, g.background, g.sockets,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *responsesGauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	k := &g.server.keeper
	k.mu.Lock()
	making, background, sockets := len(k.making), k.background, len(k.sockets)
	k.mu.Unlock()
	gauge(g.sockets, sockets)
	gauge(g.making, making)
	gauge(g.background, background)
	if k.store == nil {
		return
	}
	stats := k.store.Stats()
	gauge(g.entries, int(stats.Entries))
	gauge(g.bytes, int(stats.Bytes))
	counter(g.hits, stats.Hits)
	counter(g.misses, stats.Misses)
	counter(g.dropped, stats.Evicted, "room")
	counter(g.dropped, stats.Expired, "age")
	counter(g.dropped, stats.Refused, "size")
	counter(g.torn, stats.Torn)
	counter(g.failed, stats.Failed)
}
