package frontend

import (
	"fmt"
	"math"
	"strconv"
)

// Buckets says how the bounds of a histogram are spread: Count of them,
// logarithmically from Min to Max, 0 included and Min not.
type Buckets struct {
	Min, Max float64
	Count    int
}

// Names of the histograms whose bounds can be set, as in the variables
// DYN_METRICS_<name>_{MIN,MAX,COUNT}.
const (
	BucketDuration = "REQUEST_DURATION"
	BucketInput    = "INPUT_SEQUENCE"
	BucketOutput   = "OUTPUT_SEQUENCE"
	BucketTTFT     = "TTFT"
	BucketITL      = "ITL"
)

// BucketNames maps the names of histograms to their default bounds.
func BucketNames() map[string]Buckets {
	return map[string]Buckets{
		BucketDuration: {1, 512, 10},
		BucketInput:    {50, 128000, 12},
		BucketOutput:   {50, 32000, 10},
		BucketTTFT:     {0.001, 480, 18},
		BucketITL:      {0.001, 2, 13},
	}
}

// Validate says what is wrong with b, if anything.
func (b Buckets) Validate() error {
	switch {
	case math.IsNaN(b.Min) || math.IsInf(b.Min, 0) || math.IsNaN(b.Max) || math.IsInf(b.Max, 0), b.Min <= 0, b.Min >= b.Max:
		return fmt.Errorf("min %v, max %v: want 0 < min < max", b.Min, b.Max)
	case b.Count < 1 || b.Count > 512:
		return fmt.Errorf("count %d: want 1..512", b.Count)
	}
	return nil
}

// Bounds returns the upper bounds of the buckets, each rounded to two
// significant digits.
func (b Buckets) Bounds() []float64 {
	bounds := []float64{0}
	lo, hi := math.Log(b.Min), math.Log(b.Max)
	for i := 1; i < b.Count; i++ {
		x := math.Exp(lo + (hi-lo)*float64(i)/float64(b.Count-1))
		// Rounding by way of decimal digits keeps 0.0022 from becoming
		// 0.0022000000000000001.
		x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'e', 1, 64), 64)
		if x != bounds[len(bounds)-1] {
			bounds = append(bounds, x)
		}
	}
	return bounds
}
