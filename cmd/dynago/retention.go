package main

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/pipeline"
)

// retentionSettings say what is granted of what clients want to stay cached.
type retentionSettings struct {
	CacheControl   bool          `name:"enable-cache-control" env:"DYN_ENABLE_CACHE_CONTROL" default:"true" negatable:"" help:"Heed what clients want to stay cached; without, cache_control is read and ignored."`
	MinTTL         time.Duration `name:"cache-control-min-ttl" env:"DYN_CACHE_CONTROL_MIN_TTL" default:"1s" unit:"s" placeholder:"TIME" help:"The least that is granted to who asks for anything."`
	MaxTTL         time.Duration `name:"cache-control-max-ttl" env:"DYN_CACHE_CONTROL_MAX_TTL" default:"24h" unit:"s" placeholder:"TIME" help:"The most that is granted."`
	StrictTTL      bool          `name:"cache-control-strict-ttl" env:"DYN_CACHE_CONTROL_STRICT_TTL" negatable:"" help:"Grant from five minutes to an hour instead."`
	HoldSessions   bool          `name:"hold-sessions" env:"DYN_HOLD_SESSIONS" negatable:"" help:"Pin, between their turns, what sessions have cached that clients have open, as far as the engine's budget for pins goes."`
	KeepWarm       string        `name:"keep-warm" env:"DYN_KEEP_WARM" default:"nvext" choice:"off,nvext,all" help:"Whose prefixes are asked for again on engines without pins, while these have nothing else to do: of requests with nvext.cache_control, or of all that ask for a pin."`
	KeepWarmBudget float64       `name:"keep-warm-budget" env:"DYN_KEEP_WARM_BUDGET" default:"0.05" range:"0..1" placeholder:"X" help:"Which part of a worker's KV blocks such prefixes may have."`
}

func (s *retentionSettings) check() error {
	switch {
	case s.MinTTL <= 0:
		return fmt.Errorf("--cache-control-min-ttl: got %v, want more than 0: asking for 0 lets go of what is pinned", s.MinTTL)
	case s.MaxTTL < s.MinTTL:
		return fmt.Errorf("--cache-control-max-ttl: got %v, want at least --cache-control-min-ttl, which is %v", s.MaxTTL, s.MinTTL)
	}
	return nil
}

// config returns what is granted; whether pins may be hard, and what subagents leave
// goes first, is said with the engines.
func (s *retentionSettings) config(hard, subagents *bool) pipeline.Retention {
	return pipeline.Retention{
		Off: !s.CacheControl, MinTTL: s.MinTTL, MaxTTL: s.MaxTTL, StrictTTL: s.StrictTTL, HardPins: value(hard),
		SubagentEphemeral: value(subagents), HoldSessions: s.HoldSessions,
		KeepWarm:       map[string]pipeline.KeepWarm{"off": pipeline.KeepWarmOff, "nvext": pipeline.KeepWarmAsked, "all": pipeline.KeepWarmAll}[s.KeepWarm],
		KeepWarmBudget: s.KeepWarmBudget,
	}
}

// retentionMetrics tells what became of wishes to stay cached, at the time the page is
// read.
type retentionMetrics struct {
	pipeline                    *pipeline.Pipeline
	asked, pins, dropped        *prometheus.Desc
	warmed, warmedBlocks, ended *prometheus.Desc
	leases, leasedBlocks        *prometheus.Desc
}

func newRetentionMetrics(p *pipeline.Pipeline) *retentionMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &retentionMetrics{
		pipeline:     p,
		asked:        desc("dynago_pin_requests_total", "Requests that ask that something stay cached: by nvext, by marks at blocks, by prompt_cache_retention.", "by"),
		pins:         desc("dynago_pins_total", "Requests of whose pins workers have told: full, partial or denied by how many of the blocks are pinned, or failed.", "outcome"),
		dropped:      desc("dynago_retention_ranges_dropped_total", "Ranges of retention that were about nothing of the prompt, as about messages that it had no room for."),
		warmed:       desc("dynago_keep_warm_total", "Prefixes that were asked for again on engines without pins."),
		warmedBlocks: desc("dynago_keep_warm_blocks_total", "Their blocks."),
		ended:        desc("dynago_keep_warm_ended_total", "Such requests that were not done: cancelled by real work, or failed.", "why"),
		leases:       desc("dynago_keep_warm_leases", "Prefixes that are kept warm now."),
		leasedBlocks: desc("dynago_keep_warm_leased_blocks", "Their blocks."),
	}
}

// Describe implements prometheus.Collector.
func (m *retentionMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *retentionMetrics) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	p, w := m.pipeline.Pins(), m.pipeline.Warm()
	count(m.asked, p.ByExtension, "nvext")
	count(m.asked, p.ByBlocks, "blocks")
	count(m.asked, p.ByRetention, "prompt_cache_retention")
	count(m.pins, p.Full, "full")
	count(m.pins, p.Partial, "partial")
	count(m.pins, p.Denied, "denied")
	count(m.pins, p.Failed, "failed")
	count(m.dropped, p.RangesLeft)
	count(m.warmed, w.Warmed)
	count(m.warmedBlocks, w.Blocks)
	count(m.ended, w.Cancelled, "cancelled")
	count(m.ended, w.Failed, "failed")
	ch <- prometheus.MustNewConstMetric(m.leases, prometheus.GaugeValue, float64(w.Leases))
	ch <- prometheus.MustNewConstMetric(m.leasedBlocks, prometheus.GaugeValue, float64(w.LeasedBlocks))
}
