package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/pipeline"
)

// addAll lets the engines of this process join: those that answer, and those that
// compute prompts for them.
func (sys *system) addAll(s *workerSettings, newEngine maker) error {
	args := sys.args
	switch {
	case s.Prefills > 0 && args.WorkerType != "aggregated":
		return fmt.Errorf("--num-prefill-workers wants no worker_type in --extra-engine-args, got %q: some workers are of one, and some of the other", args.WorkerType)
	case s.Prefills > 0:
		args.WorkerType, args.BootstrapPort = "decode", 0
	case args.WorkerType == "prefill":
		return errors.New(`--extra-engine-args: worker_type is prefill, and then nobody answers: want --num-prefill-workers`)
	}
	sys.newEngine = func(name string) (engine.Engine, error) { return newEngine(name, args) }
	for i := range sys.count() {
		if err := sys.add(fmt.Sprintf("%s-%d", sys.settings.Model.Demo, i)); err != nil {
			return err
		}
	}
	for i := range s.Prefills {
		args := sys.args
		args.WorkerType = "prefill"
		if args.BootstrapPort != 0 {
			args.BootstrapPort += i
		}
		name := fmt.Sprintf("%s-prefill-%d", sys.settings.Model.Demo, i)
		e, err := newEngine(name, args)
		if err != nil {
			return err
		}
		if _, err := sys.fleet.Add(fleet.Entry{Name: name, Engine: e}); err != nil {
			return err
		}
	}
	return nil
}

// oneLegged says which settings mean nothing for engines of this process without prefill workers
// among them.
func (s *settings) oneLegged(log *slog.Logger) {
	if s.Workers.Prefills > 0 {
		return
	}
	if s.Router.Conditional.On {
		log.Warn("setting has no effect: without --num-prefill-workers each worker computes its prompts itself", "setting", "--router-conditional-disagg")
	}
	if s.Router.Policy.Prefill != "" {
		log.Warn("setting has no effect without --num-prefill-workers", "setting", "--router-prefill-policy")
	}
}

// handoffMetrics tells what became of hand-offs, at the time the page is read.
type handoffMetrics struct {
	pipeline *pipeline.Pipeline
	total    *prometheus.Desc
	whole    *prometheus.Desc
}

func newHandoffMetrics(p *pipeline.Pipeline) *handoffMetrics {
	return &handoffMetrics{
		pipeline: p,
		total: prometheus.NewDesc("dynago_handoffs_total",
			"Prompts that one worker computed for another: done, answered by the first of them, prefill_failed, decode_failed, abandoned by the client, resent to another decode worker.", []string{"outcome"}, nil),
		whole: prometheus.NewDesc("dynago_handoff_fallbacks_total",
			"Requests that one worker did alone, because no prefill worker could take them.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *handoffMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.total; ch <- m.whole }

// Collect implements prometheus.Collector.
func (m *handoffMetrics) Collect(ch chan<- prometheus.Metric) {
	c := m.pipeline.Handoffs()
	for outcome, n := range map[string]int64{
		"done": c.Done, "answered": c.Answered, "prefill_failed": c.PrefillFailed,
		"decode_failed": c.DecodeFailed, "abandoned": c.Abandoned, "resent": c.Resent,
	} {
		ch <- prometheus.MustNewConstMetric(m.total, prometheus.CounterValue, float64(n), outcome)
	}
	ch <- prometheus.MustNewConstMetric(m.whole, prometheus.CounterValue, float64(c.Whole))
}
