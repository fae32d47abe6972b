package vllm

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/dynago/dynago/engine"
)

// series is one value of the server's metrics page.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

// readings are a metrics page; none if it could not be read.
type readings []series

// readMetrics reads a page in Prometheus' text format.
func readMetrics(page []byte) readings {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return nil
	}
	var out readings
	for name, family := range families {
		for _, m := range family.GetMetric() {
			s := series{name: name, labels: map[string]string{}}
			for _, l := range m.GetLabel() {
				s.labels[l.GetName()] = l.GetValue()
			}
			switch {
			case m.GetGauge() != nil:
				s.value = m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				s.value = m.GetCounter().GetValue()
			case m.GetUntyped() != nil:
				s.value = m.GetUntyped().GetValue()
			default:
				continue
			}
			out = append(out, s)
		}
	}
	return out
}

// ranks returns the data-parallel ranks that the page tells of, in order.
func (m readings) ranks() []uint32 {
	var out []uint32
	for _, s := range m {
		if !strings.HasPrefix(s.name, "vllm:") {
			continue
		}
		if n, err := strconv.ParseUint(s.labels["engine"], 10, 32); err == nil && !slices.Contains(out, uint32(n)) {
			out = append(out, uint32(n))
		}
	}
	slices.Sort(out)
	return out
}

// find returns the value of a rank under the first of the names that is there.
// Builds before data parallelism have no label for the rank.
func (m readings) find(rank uint32, names ...string) (float64, bool) {
	want := strconv.FormatUint(uint64(rank), 10)
	for _, name := range names {
		for _, s := range m {
			label, labelled := s.labels["engine"]
			if s.name == name && (label == want || !labelled) && !math.IsNaN(s.value) {
				return s.value, true
			}
		}
	}
	return 0, false
}

// count is find for whole numbers, [engine.Unknown] if there is none.
func (m readings) count(rank uint32, names ...string) int64 {
	v, ok := m.find(rank, names...)
	if !ok || v < 0 || v > math.MaxInt64/2 {
		return engine.Unknown
	}
	return int64(math.Round(v))
}

// sum returns the values of all ranks under the first of the names that is there.
func (m readings) sum(names ...string) (total float64) {
	for _, name := range names {
		if !m.has(name) {
			continue
		}
		for _, s := range m {
			if s.name == name && !math.IsNaN(s.value) {
				total += s.value
			}
		}
		break
	}
	return total
}

// config returns a label of the cache's configuration.
func (m readings) config(label string) (uint64, bool) {
	for _, s := range m {
		if s.name != "vllm:cache_config_info" {
			continue
		}
		if n, err := strconv.ParseUint(s.labels[label], 10, 32); err == nil && n > 0 {
			return n, true
		}
	}
	return 0, false
}

// started returns when the process began, in seconds, or 0.
func (m readings) started() float64 {
	for _, s := range m {
		if s.name == "process_start_time_seconds" {
			return s.value
		}
	}
	return 0
}

// asleep says whether the engine has given its memory away, if the page tells.
func (m readings) asleep() (asleep, told bool) {
	for _, s := range m {
		if s.name == "vllm:engine_sleep_state" && s.labels["sleep_state"] == "awake" {
			return s.value == 0, true
		}
	}
	return false, false
}

// fellBelow says whether something that only grows has become less than on a page
// before: then another process counts.
func (m readings) fellBelow(before readings) bool {
	grows := []string{"vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:prefix_cache_queries_total"}
	for _, s := range before {
		if !slices.Contains(grows, s.name) {
			continue
		}
		for _, now := range m {
			if now.name == s.name && now.labels["engine"] == s.labels["engine"] && now.labels["model_name"] == s.labels["model_name"] && now.value < s.value {
				return true
			}
		}
	}
	return false
}

// has says whether there is a series of this name.
func (m readings) has(name string) bool {
	return slices.ContainsFunc(m, func(s series) bool { return s.name == name })
}

// load returns the load of each rank of the card.
func (m readings) load(c *engine.Card) engine.Load {
	l := engine.Load{Ranks: make([]engine.RankLoad, c.Ranks())}
	for i := range l.Ranks {
		rank := c.DPStart + uint32(i)
		r := engine.RankLoad{
			Rank:          rank,
			Running:       m.count(rank, "vllm:num_requests_running"),
			Waiting:       m.count(rank, "vllm:num_requests_waiting"),
			WaitingTokens: engine.Unknown,
			UsedBlocks:    engine.Unknown,
			TotalBlocks:   engine.Unknown,
			PrefixHits:    m.count(rank, "vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits"),
			PrefixQueries: m.count(rank, "vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries"),
			Preemptions:   m.count(rank, "vllm:num_preemptions_total", "vllm:num_preemptions"),
		}
		if c.TotalBlocks > 0 && c.TotalBlocks <= math.MaxInt32 {
			r.TotalBlocks = int64(c.TotalBlocks)
			if used, ok := m.find(rank, "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"); ok && used >= 0 && used <= 1 {
				r.UsedBlocks = int64(math.Round(used * float64(c.TotalBlocks)))
			}
		}
		l.Ranks[i] = r
	}
	return l
}
