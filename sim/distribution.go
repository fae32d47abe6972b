package sim

import (
	"math"
	"slices"
	"time"
)

// Distribution sums up a set of values. All of it is 0 for an empty one.
type Distribution struct {
	Mean, Min, Max, Median, P75, P90, P95, P99 float64
	Std                                        float64 // of the population
}

// percentile returns the index of a percentile among n sorted values.
func percentile(p float64, n int) int { return int(math.Round(float64(n-1) * p / 100)) }

// distribute sums up the values f(x) of sorted xs, where f never falls.
func distribute[T any](sorted []T, f func(T) float64) Distribution {
	n := len(sorted)
	if n == 0 {
		return Distribution{}
	}
	sum := 0.0
	for _, x := range sorted {
		sum += f(x)
	}
	mean := sum / float64(n)
	squares := 0.0
	for _, x := range sorted {
		d := f(x) - mean
		squares += float64(d * d) // not fused: the same on all machines
	}
	at := func(p float64) float64 { return f(sorted[percentile(p, n)]) }
	return Distribution{
		Mean: mean, Min: f(sorted[0]), Max: f(sorted[n-1]),
		Median: at(50), P75: at(75), P90: at(90), P95: at(95), P99: at(99),
		Std: math.Sqrt(squares / float64(n)),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// inMilliseconds sums up durations, which it sorts.
func inMilliseconds(values []time.Duration) Distribution {
	slices.Sort(values)
	return distribute(values, milliseconds)
}

// perSecond sums up how often a second intervals come, those of no length left
// out. The intervals must be sorted.
func perSecond(sorted []time.Duration) Distribution {
	first, _ := slices.BinarySearch(sorted, 1)
	falling := slices.Clone(sorted[first:])
	slices.Reverse(falling)
	return distribute(falling, func(d time.Duration) float64 { return 1 / d.Seconds() })
}
