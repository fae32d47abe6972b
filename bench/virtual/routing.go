package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynago/dynago/sim/agenttrace"
	"github.com/dynago/dynago/sim/trace"
)

// workload is one that ways to route are compared on.
type workload struct {
	name string
	// at returns the requests at a rate, for so long where it does not say itself.
	at   func(rate float64, span time.Duration) ([]trace.Request, error)
	unit string
	// A fleet of eight workers sustains low and not high; the short form has half
	// of it, and known is what that sustains. Without low the rate is known itself.
	low, high, known float64
}

var workloads = []workload{
	{"conversation", faster("conversation"), "× speed", 4, 9, 3.4},
	{"synthetic", faster("synthetic"), "× speed", 3, 9, 2.9},
	{"agents", agentsAt, "leads/s", 0.04, 0.25, 0.075},
	// Where nothing is to be gained by where a request goes: one prefix that
	// everybody shares, and answers that are much longer than their prompts.
	{"one-prefix", made(trace.Synthetic{
		Input: trace.Length{Mean: 4200, Deviation: 200}, Output: trace.Length{Mean: 300, Deviation: 75},
		Prefix: trace.Prefix{Ratio: 0.97, Groups: 1}, BlockSize: 64,
	}), "requests/s", 0, 0, 40},
	{"long-answers", made(trace.Synthetic{
		Input: trace.Length{Mean: 200, Deviation: 10}, Output: trace.Length{Mean: 1500, Deviation: 375},
	}), "requests/s", 0, 0, 20},
}

func workloadNames() string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return strings.Join(names, ", ")
}

// faster returns a recorded trace at several times its speed.
func faster(name string) func(float64, time.Duration) ([]trace.Request, error) {
	return func(rate float64, _ time.Duration) ([]trace.Request, error) {
		w, err := recorded(name)
		trace.Speed(w, rate)
		return w, err
	}
}

// made returns independent requests that come at random for three minutes.
func made(s trace.Synthetic) func(float64, time.Duration) ([]trace.Request, error) {
	return func(rate float64, _ time.Duration) ([]trace.Request, error) {
		s.Arrival, s.Rate, s.Sessions, s.Seed = trace.Poisson, rate, int(rate*180), 42
		return collect(s.Requests())
	}
}

func agentsAt(rate float64, span time.Duration) ([]trace.Request, error) {
	c := agenttrace.Default()
	c.Rate, c.Leads = rate, max(1, int(rate*span.Seconds()))
	return collect(c.Requests())
}

// compared is what ways to route made of a workload.
type compared struct {
	Workload string
	Timing   string // of the engines
	Workers  int
	Unit     string
	Capacity float64 // the highest rate that is sustained
	Rate     float64 // that was replayed: 80% of it
	Requests int
	Runs     []outcome
}

// outcome is what one way to route made of it.
type outcome struct {
	Mode             string
	P50, P99, Mean   float64 // time to the first token, milliseconds
	E2E              float64 // mean time to the last token, milliseconds
	ITL              float64 // median time between tokens, milliseconds
	Hit              float64 // share of the prompts' tokens that were cached
	Imbalance        float64 // tokens computed by the busiest worker against the mean
	PredictionError  float64 // of the hits, as a share of the prompts' tokens
	SimulatedSeconds float64
}

// routing replays a workload, at 80% of what the fleet sustains or at its own
// rate, once for each way to route.
func routing(name, timing string, short bool) (any, error) {
	i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
	if i < 0 {
		return nil, fmt.Errorf("no workload %q: want %s", name, workloadNames())
	}
	kind := workloads[i]
	workers, span := 8, 30*time.Minute
	if short {
		workers, span = 4, 10*time.Minute
	}
	f := newFleet(workers, timing)
	c := compared{Workload: name, Timing: timing, Workers: workers, Unit: kind.unit, Rate: kind.known}
	switch {
	case kind.low == 0:
	case short:
		c.Capacity = kind.known
	default:
		var err error
		c.Capacity, err = f.capacity(func(rate float64) ([]trace.Request, error) { return kind.at(rate, span) }, kind.low, kind.high)
		if err != nil {
			return nil, err
		}
	}
	if c.Capacity > 0 {
		c.Rate = 0.8 * c.Capacity
	}
	w, err := kind.at(c.Rate, span)
	if err != nil {
		return nil, err
	}
	if short && name != "agents" {
		w = w[:min(1000, len(w))]
	}
	c.Requests = len(w)
	for _, m := range modes {
		report, _, err := f.replay(m, w)
		if err != nil {
			return nil, err
		}
		c.Runs = append(c.Runs, outcome{
			Mode: m.name, P50: report.TTFT.Median, P99: report.TTFT.P99, Mean: report.TTFT.Mean,
			E2E: report.E2E.Mean, ITL: report.ITL.Median, Hit: report.FirstReused,
			Imbalance: report.Imbalance.Uncached, PredictionError: report.PredictionError, SimulatedSeconds: report.Duration.Seconds(),
		})
	}
	return c, nil
}
