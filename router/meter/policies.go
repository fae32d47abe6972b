package meter

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router/remote"
	"github.com/dynago/dynago/router/thompson"
)

// A snapshot is what a page shows of one policy.
type snapshot struct {
	all     []*prometheus.Desc
	collect func(ch chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (s *snapshot) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *snapshot) Collect(ch chan<- prometheus.Metric) { s.collect(ch) }

func (s *snapshot) desc(role, name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, prometheus.Labels{"worker_type": role})
	s.all = append(s.all, d)
	return d
}

// Thompson returns a collector of what a learning policy for workers of a type
// has done and believes. The policy remembers those that have left as well; what
// is shown are those that are there.
func Thompson(workerType string, stats func() thompson.Stats, workers func() []*fleet.Worker) prometheus.Collector {
	s := &snapshot{}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return s.desc(workerType, "thompson_router_"+name, help, labels...)
	}
	var (
		decisions = desc("decisions_total", "Requests that went to a rank.", "worker_id", "dp_rank")
		alpha     = desc("beta_alpha", "First parameter of the belief in a rank.", "worker_id", "dp_rank")
		beta      = desc("beta_beta", "Second parameter of it.", "worker_id", "dp_rank")
		pending   = desc("pending_decisions", "Decisions without an outcome.")
		prefixes  = desc("prefix_state_size", "Sessions that may go on.")
		timeouts  = desc("timeout_penalties_total", "Decisions whose outcome did not come in time.")
		sticky    = desc("sticky_decisions_total", "Requests that stayed where their session was.")
		switches  = desc("switch_decisions_total", "Requests that left it.")
		overlap   = desc("kv_overlap", "Cached part of the prompt where it went.")
		latency   = desc("feedback_latency_seconds", "From a decision to its outcome.")
		reward    = desc("reward", "What an outcome was worth, 0 to 1.")
		reuse     = desc("reuse_budget", "Requests still expected of a session.")
		tokens    = desc("tokens_per_request", "Tokens of prompt and answer.")
	)
	s.collect = func(ch chan<- prometheus.Metric) {
		now := stats()
		tell := func(kind prometheus.ValueType, d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
		}
		ids := make(map[string]string) // by name
		for _, w := range workers() {
			ids[w.Name()] = strconv.FormatUint(w.ID(), 10)
		}
		for _, a := range now.Arms {
			id, there := ids[a.Worker]
			if !there {
				continue
			}
			rank := strconv.FormatUint(uint64(a.Rank), 10)
			tell(prometheus.CounterValue, decisions, float64(a.Decisions), id, rank)
			tell(prometheus.GaugeValue, alpha, a.Alpha, id, rank)
			tell(prometheus.GaugeValue, beta, a.Beta, id, rank)
		}
		tell(prometheus.GaugeValue, pending, float64(now.Pending))
		tell(prometheus.GaugeValue, prefixes, float64(now.Sessions))
		tell(prometheus.CounterValue, timeouts, float64(now.Timeouts))
		tell(prometheus.CounterValue, sticky, float64(now.Sticky))
		tell(prometheus.CounterValue, switches, float64(now.Switches))
		for d, h := range map[*prometheus.Desc]*thompson.Histogram{
			overlap: &now.Overlap, latency: &now.Latency, reward: &now.Reward, reuse: &now.Reuse, tokens: &now.Tokens,
		} {
			buckets, sum := make(map[float64]uint64, len(h.Bounds)), uint64(0)
			for i, bound := range h.Bounds {
				sum += h.Counts[i]
				buckets[bound] = sum
			}
			ch <- prometheus.MustNewConstHistogram(d, h.Count(), h.Sum, buckets)
		}
	}
	return s
}

// Remote returns a collector of how a policy at an address for workers of a type
// has answered.
func Remote(workerType string, stats func() remote.Stats) prometheus.Collector {
	s := &snapshot{}
	answers := s.desc(workerType, "dynago_remote_policy_requests_total", "Decisions, by who made them and why: the server, or what stands in for it.", "result")
	open := s.desc(workerType, "dynago_remote_policy_skipped", "1 while the server is not asked because it kept failing.")
	outcomes := s.desc(workerType, "dynago_remote_policy_outcomes_total", "Outcomes, by whether the server has taken them.", "result")
	s.collect = func(ch chan<- prometheus.Metric) {
		now := stats()
		for result, n := range map[string]uint64{
			"answered": now.Answers, "declined": now.Declined, "timeout": now.Timeouts, "unreachable": now.Unreachable,
			"status": now.Statuses, "malformed": now.Malformed, "wrong_row": now.WrongRows, "skipped": now.Skipped,
		} {
			ch <- prometheus.MustNewConstMetric(answers, prometheus.CounterValue, float64(n), result)
		}
		for result, n := range map[string]uint64{"taken": now.Told, "lost": now.Lost} {
			ch <- prometheus.MustNewConstMetric(outcomes, prometheus.CounterValue, float64(n), result)
		}
		skipped := 0.0
		if now.Open {
			skipped = 1
		}
		ch <- prometheus.MustNewConstMetric(open, prometheus.GaugeValue, skipped)
	}
	return s
}
