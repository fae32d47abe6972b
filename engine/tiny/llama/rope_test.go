package llama

import (
	"math"
	"testing"
)

// TestRope holds frequencies and turned heads against numbers that were computed
// elsewhere, in double precision and without rounding the angles in between.
func TestRope(t *testing.T) {
	cfg := Config{HeadSize: 8, Context: 1000, RopeBase: 10000}
	for _, tt := range []struct {
		scaling RopeScaling
		want    []float32
	}{
		{RopeScaling{}, []float32{1, 0.1, 0.01, 0.001}},
		{RopeScaling{Type: "default"}, []float32{1, 0.1, 0.01, 0.001}},
		{RopeScaling{Type: "linear", Factor: 4}, []float32{0.25, 0.025, 0.0025, 0.00025}},
		{RopeScaling{Type: "factors", Factors: []float32{1, 2, 4, 8}}, []float32{1, 0.05, 0.0025, 0.000125}},
		// 256 positions hold 40.7, 4.07, 0.407 and 0.0407 waves: two stay, the
		// third is stretched by a share of ((0.407-0.25)/(4-0.25)) of itself.
		{
			RopeScaling{Type: "llama3", Factor: 8, LowFrequency: 0.25, HighFrequency: 4, Original: 256},
			[]float32{1, 0.1, 0.001617352, 0.000125},
		},
	} {
		cfg.RopeScaling = tt.scaling
		r := newRope(cfg)
		for i, want := range tt.want {
			if got := r.frequencies[i]; !(math.Abs(float64(got/want-1)) < 1e-6) {
				t.Errorf("%+v: frequency %d is %v instead of %v", tt.scaling, i, got, want)
			}
		}
	}

	// A head whose first half is 1 and whose second is 0 becomes the cosines and
	// the sines of the angles.
	cfg.RopeScaling = RopeScaling{}
	r := newRope(cfg)
	for _, tt := range []struct {
		position int
		want     [8]float32
	}{
		{0, [8]float32{1, 1, 1, 1, 0, 0, 0, 0}},
		{1, [8]float32{0.54030231, 0.99500417, 0.99995000, 0.99999950, 0.84147098, 0.09983342, 0.00999983, 0.00100000}},
		{10, [8]float32{-0.83907153, 0.54030231, 0.99500417, 0.99995000, -0.54402111, 0.84147098, 0.09983342, 0.00999983}},
		{999, [8]float32{0.99964985, 0.80745866, -0.84446970, 0.54114351, -0.02646075, -0.58992416, -0.53560333, 0.84093026}},
	} {
		row := []float32{1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0}
		r.turn(row, tt.position, 0.5)
		for i, want := range tt.want {
			if !(math.Abs(float64(row[i]-want/2)) < 2e-6) || row[8+i] != 2*row[i] {
				t.Errorf("position %d: number %d is %v and %v instead of %v and %v", tt.position, i, row[i], row[8+i], want/2, want)
			}
		}
	}
}
