package frontend_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/frontend"
)

func TestBucketBounds(t *testing.T) {
	want := map[string][]float64{
		frontend.BucketDuration: {0, 2, 4, 8, 16, 32, 64, 130, 260, 510},
		frontend.BucketInput:    {0, 100, 210, 430, 870, 1800, 3600, 7400, 15000, 31000, 63000, 130000},
		frontend.BucketOutput:   {0, 100, 210, 430, 880, 1800, 3700, 7600, 16000, 32000},
		frontend.BucketTTFT:     {0, .0022, .0047, .01, .022, .047, .1, .22, .47, 1, 2.2, 4.7, 10, 22, 48, 100, 220, 480},
		frontend.BucketITL:      {0, .0019, .0035, .0067, .013, .024, .045, .084, .16, .3, .56, 1.1, 2},
	}
	for name, b := range frontend.BucketNames() {
		if got := b.Bounds(); !slices.Equal(got, want[name]) {
			t.Errorf("%s: got %v, want %v", name, got, want[name])
		}
	}
}

func TestBucketBoundsAreSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := frontend.Buckets{
			Min:   rapid.Float64Range(1e-6, 1).Draw(t, "min"),
			Max:   rapid.Float64Range(2, 1e9).Draw(t, "max"),
			Count: rapid.IntRange(1, 512).Draw(t, "count"),
		}
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
		bounds := b.Bounds()
		if bounds[0] != 0 || !slices.IsSorted(bounds) || len(slices.Compact(slices.Clone(bounds))) != len(bounds) {
			t.Fatalf("%v: %v", b, bounds)
		}
	})
}

func TestBucketsValidate(t *testing.T) {
	for _, b := range []frontend.Buckets{
		{0, 1, 5}, {-1, 1, 5}, {2, 1, 5}, {1, 1, 5}, {1, math.Inf(1), 5}, {math.NaN(), 1, 5}, {1, 2, 0}, {1, 2, 513},
	} {
		if b.Validate() == nil {
			t.Errorf("%v is accepted", b)
		}
	}
}
