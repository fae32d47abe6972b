package llamacpp

import (
	"context"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
)

// The metrics that are read. They have no labels.
const (
	metricRunning   = "llamacpp:requests_processing"
	metricWaiting   = "llamacpp:requests_deferred"
	metricPrompt    = "llamacpp:prompt_tokens_total"
	metricPredicted = "llamacpp:tokens_predicted_total"
	metricUsed      = "llamacpp:kv_cache_usage_ratio" // of builds up to 2025
)

// Load yields what the server has to do, at each interval. What it does not tell
// is unknown: without --metrics it tells of its slots alone.
func (e *Engine) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return engine.Poll(ctx, e.cfg.Interval, 0.1, e.reading)
}

func (e *Engine) reading(ctx context.Context) (engine.Load, error) {
	l := engine.UnknownLoad(0)
	if e.life.sleeps() {
		l.Running, l.Waiting = 0, 0 // to ask would wake it
		return engine.Load{Ranks: []engine.RankLoad{l}}, nil
	}
	text, err := e.client.Get(ctx, "/metrics")
	switch {
	case err == nil:
		e.life.counted(counter(text), time.Now())
		m := metrics(text)
		l.Running, l.Waiting = count(m, metricRunning), count(m, metricWaiting)
		if used, ok := m[metricUsed]; ok && used >= 0 && used <= 1 {
			if total := e.life.blocks(); total > 0 {
				l.TotalBlocks, l.UsedBlocks = total, int64(used*float64(total))
			}
		}
	case !optional(err):
		return engine.Load{}, err
	}
	if l.Running == engine.Unknown {
		if l.Running, err = e.busy(ctx); err != nil {
			return engine.Load{}, err
		}
	}
	return engine.Load{Ranks: []engine.RankLoad{l}}, nil
}

// busy counts the slots that have work; unknown where the server hides them.
func (e *Engine) busy(ctx context.Context) (int64, error) {
	var slots []struct {
		Busy bool `json:"is_processing"`
	}
	if err := e.get(ctx, "/slots", &slots); err != nil {
		if optional(err) {
			return engine.Unknown, nil
		}
		return engine.Unknown, err
	}
	n := int64(0)
	for _, s := range slots {
		if s.Busy {
			n++
		}
	}
	return n, nil
}

// counter returns how many tokens a server has worked on since it began.
func counter(text []byte) float64 {
	m := metrics(text)
	return m[metricPrompt] + m[metricPredicted]
}

// metrics reads the lines of a Prometheus text that have no labels.
func metrics(text []byte) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0][0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(fields[1], 64); err == nil {
			out[fields[0]] = v
		}
	}
	return out
}

// count is a gauge that stands for a number of things; unknown if it is absent,
// or none.
func count(m map[string]float64, name string) int64 {
	v, ok := m[name]
	if !ok || !(v >= 0 && v < 1<<53) {
		return engine.Unknown
	}
	return int64(v)
}
