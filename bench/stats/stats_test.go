package stats_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/bench/stats"
)

func TestQuantile(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		q      float64
		want   float64
	}{
		{"odd median", []float64{9, 1, 5}, 0.5, 5},
		{"even median is the mean of the middle", []float64{4, 1, 3, 2}, 0.5, 2.5},
		{"one value is every quantile", []float64{7}, 0.99, 7},
		{"least", []float64{3, 1, 2}, 0, 1},
		{"greatest", []float64{3, 1, 2}, 1, 3},
		{"between neighbours", []float64{0, 10}, 0.9, 9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.values)
			if got := stats.Quantile(tt.values, tt.q); math.Abs(got-tt.want) > 1e-12 {
				t.Errorf("Quantile(%v, %v) = %v, want %v", tt.values, tt.q, got, tt.want)
			}
			if !slices.Equal(before, tt.values) {
				t.Errorf("Quantile reordered its argument to %v", tt.values)
			}
		})
	}
	if got := stats.Median(nil); !math.IsNaN(got) {
		t.Errorf("Median of nothing = %v, want NaN", got)
	}
}

func TestQuantileIsOrderedAndWithinSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 50).Draw(t, "values")
		a := rapid.Float64Range(0, 1).Draw(t, "a")
		b := rapid.Float64Range(a, 1).Draw(t, "b")
		spread := stats.SpreadOf(values)
		low, high := stats.Quantile(values, a), stats.Quantile(values, b)
		if low > high+1e-6 || low < spread.Min-1e-6 || high > spread.Max+1e-6 {
			t.Fatalf("quantiles %v ≤ %v outside order or spread %+v", low, high, spread)
		}
	})
}

func TestLatencyOf(t *testing.T) {
	var samples []time.Duration
	for i := 100; i >= 0; i-- {
		samples = append(samples, time.Duration(i)*time.Millisecond)
	}
	got := stats.LatencyOf(samples)
	want := stats.Latency{Count: 101, P50: 50_000, P90: 90_000, P99: 99_000, Max: 100_000}
	if got != want {
		t.Errorf("LatencyOf = %+v, want %+v", got, want)
	}
	if got := stats.LatencyOf(nil); got != (stats.Latency{}) {
		t.Errorf("LatencyOf(nil) = %+v, want zero", got)
	}
}

func TestSlopePerMinute(t *testing.T) {
	line := func(base, perMinute float64) []stats.Point {
		var points []stats.Point
		for i := range 13 {
			at := time.Duration(i) * 5 * time.Second
			points = append(points, stats.Point{At: at, Value: base + perMinute*at.Minutes()})
		}
		return points
	}
	tests := []struct {
		name   string
		points []stats.Point
		want   float64
	}{
		{"flat", line(100, 0), 0},
		{"rising", line(99.5, 1), 0.01},
		{"falling", line(101, -2), -0.02},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := stats.SlopePerMinute(tt.points); math.Abs(got-tt.want) > 1e-12 {
				t.Errorf("slope = %v, want %v", got, tt.want)
			}
		})
	}
	for _, points := range [][]stats.Point{nil, {{At: time.Second, Value: 1}}, {{Value: 1}, {Value: 2}}} {
		if got := stats.SlopePerMinute(points); !math.IsNaN(got) {
			t.Errorf("slope of %v = %v, want NaN", points, got)
		}
	}
}

func ExampleSlopePerMinute() {
	heap := []stats.Point{
		{At: 0, Value: 100},
		{At: 30 * time.Second, Value: 100},
		{At: 60 * time.Second, Value: 103},
	}
	fmt.Printf("%+.1f%% per minute\n", 100*stats.SlopePerMinute(heap))
	// Output: +3.0% per minute
}
