// Package stats holds the few statistics that the benchmarks report: medians,
// quantiles, spreads and the slope of a line through samples.
//
// Machines are shared and noisy, so a figure is the median of repetitions and
// is always told together with its spread. Functions here never sort or change
// what they are given.
package stats

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Median returns the middle of values, or the mean of the two in the middle;
// NaN for none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile returns the q-quantile of values for q in [0, 1], with linear
// interpolation between neighbours; NaN for none.
func Quantile(values []float64, q float64) float64 {
	return quantileSorted(slices.Sorted(slices.Values(values)), q)
}

func quantileSorted(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

// Spread is the range of repeated measurements of one thing.
type Spread struct {
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

// SpreadOf returns the least and the greatest of values, which must not be
// empty.
func SpreadOf(values []float64) Spread {
	return Spread{slices.Min(values), slices.Max(values)}
}

// Latency sums up durations, in microseconds.
type Latency struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_us"`
	P90   float64 `json:"p90_us"`
	P99   float64 `json:"p99_us"`
	Max   float64 `json:"max_us"`
}

// LatencyOf sums up samples. It is the zero Latency for none.
func LatencyOf(samples []time.Duration) Latency {
	if len(samples) == 0 {
		return Latency{}
	}
	us := make([]float64, len(samples))
	for i, d := range samples {
		us[i] = float64(d) / float64(time.Microsecond)
	}
	slices.SortFunc(us, cmp.Compare)
	return Latency{
		Count: len(us),
		P50:   quantileSorted(us, 0.50),
		P90:   quantileSorted(us, 0.90),
		P99:   quantileSorted(us, 0.99),
		Max:   us[len(us)-1],
	}
}

// Point is one sample of a quantity over time.
type Point struct {
	At    time.Duration `json:"at_ns"` // since the start of the run
	Value float64       `json:"value"`
}

// SlopePerMinute fits a line through points by least squares and returns its
// rise per minute as a share of the points' mean: 0.01 is one percent a minute.
// It is NaN for fewer than two distinct times or a mean of zero.
func SlopePerMinute(points []Point) float64 {
	var meanX, meanY float64
	for _, p := range points {
		meanX += p.At.Minutes()
		meanY += p.Value
	}
	n := float64(len(points))
	meanX, meanY = meanX/n, meanY/n

	var xy, xx float64
	for _, p := range points {
		dx := p.At.Minutes() - meanX
		xy += dx * (p.Value - meanY)
		xx += dx * dx
	}
	if len(points) < 2 || xx == 0 || meanY == 0 {
		return math.NaN()
	}
	return xy / xx / meanY
}
