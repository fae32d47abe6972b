package sim

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// WriteTable writes the report for people to read.
func (r *Report) WriteTable(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "replay in virtual time\tavg\tmin\tmax\tp99\tp90\tp75\tp50\tstd\t")
	for _, row := range []struct {
		name string
		d    *Distribution
	}{
		{"Time to first token (ms)", &r.TTFT},
		{"Time to second token (ms)", &r.TTST},
		{"Request latency (ms)", &r.E2E},
		{"Inter-token latency (ms)", &r.ITL},
		{"Output tokens/s per user", &r.PerUser},
	} {
		d := row.d
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", row.name, d.Mean, d.Min, d.Max, d.P99, d.P90, d.P75, d.Median, d.Std)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	w = tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("Requests", "%d, of which %d completed", r.Requests, r.Completed)
	for _, kind := range r.kinds() {
		line("Failed", "%d with %s", r.Failed[kind], kind)
	}
	line("Throughput", "%.2f requests/s, %.1f output tokens/s", r.perSecond(r.Completed), r.perSecond(r.OutputTokens))
	if r.Goodput.any() {
		line("Good requests", "%d, %.1f output tokens/s", r.Good, r.perSecond(r.GoodOutput))
	}
	line("Cached input", "%.2f%% (%.2f%% at first admission; the router was wrong about %.2f%%)", 100*r.Reused, 100*r.FirstReused, 100*r.PredictionError)
	r.Caches.lines(r.InputTokens, line)
	line("Imbalance", "%.2f in tokens computed, %.2f in time, %.2f in requests (most against mean)", r.Imbalance.Uncached, r.Imbalance.Busy, r.Imbalance.Requests)
	if d := r.DecodeImbalance; d != (Imbalance{}) {
		line("… of decoding", "%.2f in time, %.2f in requests", d.Busy, d.Requests)
	}
	for _, c := range r.Classes {
		if c.Parked == 0 && len(r.Classes) == 1 {
			break
		}
		name := "Queue"
		if c.Class != "" {
			name += " of " + c.Class
		}
		line(name, "%d of %d requests parked; wait p50 %.0f, p99 %.0f, at most %.0f ms; TTFT p50 %.1f, p99 %.1f ms", c.Parked, c.Requests, c.Wait.Median, c.Wait.P99, c.Wait.Max, c.TTFT.Median, c.TTFT.P99)
	}
	line("Fleet", "%s, %.3f GPU hours", r.fleet(), r.GPUHours())
	line("Duration", "%.1f s in virtual time, %.2f s in real time", r.Duration.Seconds(), r.WallTime.Seconds())
	if err := w.Flush(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// lines tells of caches what is not usual: lower tiers, and what was asked of them.
func (c *CacheReport) lines(input int, line func(name, format string, args ...any)) {
	below := ""
	for i, t := range c.Tiers[1:] {
		if t.Blocks > 0 {
			below += fmt.Sprintf(", %s %.2f%%", kv.Tier(i+1), 100*share(t.HitTokens, input))
		}
	}
	if below != "" {
		line("… of the input", "device %.2f%%%s", 100*share(c.Tiers[kv.TierDevice].HitTokens, input), below)
		mean := 0.0
		if c.Parked > 0 {
			mean = milliseconds(c.LoadWait) / float64(c.Parked)
		}
		line("Loads", "%d requests parked for %.1f ms on average", c.Parked, mean)
	}
	for _, w := range c.Ways {
		if w.Blocks > 0 {
			line("… "+w.Edge.String(), "%d blocks", w.Blocks)
		}
	}
	if p := c.Pins; p.Granted+p.Partial+p.Denied > 0 {
		line("Pins", "%d granted, %d partial, %d denied", p.Granted, p.Partial, p.Denied)
	}
	if c.Prefetched > 0 {
		line("Prefetched", "%d blocks, %d of them for nothing", c.Prefetched, c.Wasted)
	}
}

// fleet says how many workers there have been.
func (r *Report) fleet() string {
	all, prefill := make(map[string]bool), 0
	for _, t := range r.Targets {
		if !all[t.Worker] && t.Role == engine.Prefill {
			prefill++
		}
		all[t.Worker] = true
	}
	switch {
	case prefill > 0:
		return fmt.Sprintf("%d prefill and %d decode workers", prefill, len(all)-prefill)
	case len(all) == 1:
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", len(all))
}
