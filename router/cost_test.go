package router

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The rows of the worked example: 160 tokens in blocks of 16, ten of them.
func goldenRows() []Candidate {
	return []Candidate{
		{BlockSize: 16, Preference: 1, ActiveBlocks: 4, DecodeBlocks: 14},
		{BlockSize: 16, Preference: 1, ActiveBlocks: 9, DecodeBlocks: 11, PrefillTokens: 320, Device: 8},
		{BlockSize: 16, Preference: 1, ActiveBlocks: 6, DecodeBlocks: 16, Device: 4, Host: 4},
	}
}

func TestCost(t *testing.T) {
	for _, tc := range []struct {
		name    string
		tune    func(*Tuning)
		change  func([]Candidate)
		prefill bool
		want    [3]float64
		pick    int
	}{
		{name: "defaults", want: [3]float64{24, 33, 19}, pick: 2},
		{name: "no credit", tune: func(t *Tuning) { t.OverlapScoreCredit = 0 }, want: [3]float64{24, 41, 23}, pick: 2},
		{name: "credit decays", tune: func(t *Tuning) { t.OverlapScoreCreditDecay = 1 }, want: [3]float64{24, 38.333333333333336, 19}, pick: 2},
		{name: "prefill pool, untracked", tune: func(t *Tuning) { t.TrackPrefillTokens = false }, prefill: true, want: [3]float64{14, 11, 16}, pick: 1},
		{name: "decode pool, untracked", tune: func(t *Tuning) { t.TrackPrefillTokens = false }, want: [3]float64{14, 3, 9}, pick: 1},
		{name: "decode pool, untracked, no credit", tune: func(t *Tuning) { t.TrackPrefillTokens, t.OverlapScoreCredit = false, 0 }, want: [3]float64{14, 11, 16}, pick: 1},
		{name: "prefill scaled", tune: func(t *Tuning) { t.PrefillLoadScale = 2 }, want: [3]float64{34, 55, 22}, pick: 2},
		{
			name: "requests", tune: func(t *Tuning) { t.DecodeActiveRequestWeight = 3 },
			change: func(c []Candidate) { c[0].Requests, c[2].Requests = 1, 4 }, want: [3]float64{27, 33, 31}, pick: 0,
		},
		{name: "disk", change: func(c []Candidate) { c[0].Disk = 8 }, want: [3]float64{22, 33, 19}, pick: 2},
		{
			name: "shared", tune: func(t *Tuning) { t.SharedCacheMultiplier = 0.5 },
			change: func(c []Candidate) { c[0].Shared, c[2].Shared = 10, 2 }, want: [3]float64{19, 33, 18}, pick: 2,
		},
		{name: "credit above what there is", tune: func(t *Tuning) { t.OverlapScoreCredit = 9 }, want: [3]float64{24, 11, 16}, pick: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tuning, rows := DefaultTuning(), goldenRows()
			if tc.tune != nil {
				tc.tune(&tuning)
			}
			if tc.change != nil {
				tc.change(rows)
			}
			for i := range rows {
				rows[i].Cost = tuning.cost(ask{tokens: 160, prefillPool: tc.prefill}, &rows[i])
				if math.Abs(rows[i].Cost-tc.want[i]) > 1e-9 {
					t.Errorf("row %d costs %v, want %v", i, rows[i].Cost, tc.want[i])
				}
			}
			if pick := cheapest(rand.New(rand.NewPCG(1, 1)), rows); pick != tc.pick {
				t.Errorf("picks row %d, want %d", pick, tc.pick)
			}
		})
	}
}

func TestCachedTokens(t *testing.T) {
	tuning := DefaultTuning()
	var got []int
	for _, c := range goldenRows() {
		got = append(got, tuning.cachedTokens(&c))
	}
	if want := []int{0, 128, 112}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The shares of the worked example at temperature 0.5, by chi-square.
func TestTemperature(t *testing.T) {
	rows := goldenRows()
	for i, cost := range []float64{24, 33, 19} {
		rows[i].Cost = cost
	}
	share := []float64{0.30128, 0.08329, 0.61543}
	r := rand.New(rand.NewPCG(7, 7))
	const n = 100_000
	var seen [3]float64
	for range n {
		seen[soften(r.Float64(), rows, 0.5)]++
	}
	chi := 0.0
	for i, p := range share {
		chi += (seen[i] - n*p) * (seen[i] - n*p) / (n * p)
	}
	if chi > 13.8 { // p = 0.001 at two degrees of freedom
		t.Errorf("seen %v of %d, chi-square %.1f", seen, n, chi)
	}
}

func TestTemperatureEdges(t *testing.T) {
	row := func(costs ...float64) []Candidate {
		var rows []Candidate
		for _, c := range costs {
			rows = append(rows, Candidate{BlockSize: 1, Cost: c})
		}
		return rows
	}
	for _, tc := range []struct {
		u    float64
		rows []Candidate
		t    float64
		want int
	}{
		{0, row(5, 5, 5), 1, 0},
		{0.99, row(5, 5, 5), 1, 2},
		{0.5, row(5, 5, 5), 1, 1},
		{0.999999, row(0, 1), 1e-9, 0},
		{0.5, row(math.MaxFloat64, -math.MaxFloat64), 0.01, 1},
		{0.7, row(3), 2, 0},
	} {
		if got := soften(tc.u, tc.rows, tc.t); got != tc.want {
			t.Errorf("%+v: got %d", tc, got)
		}
	}
}

func TestTiesAreUniform(t *testing.T) {
	rows := make([]Candidate, 5)
	for i, cost := range []float64{3, 1, 1, 2, 1} {
		rows[i] = Candidate{BlockSize: 16, Cost: cost}
	}
	r := rand.New(rand.NewPCG(3, 3))
	const n = 30_000
	seen := map[int]int{}
	for range n {
		seen[cheapest(r, rows)]++
	}
	for i := range rows {
		want := 0
		if rows[i].Cost == 1 {
			want = n / 3
		}
		if d := seen[i] - want; d*d > 9*n/4 { // three standard deviations and more
			t.Errorf("row %d: %d of %d, want about %d", i, seen[i], n, want)
		}
	}
}

// Across block sizes the least cost in tokens wins, not in blocks.
func TestCostComparesTokens(t *testing.T) {
	rows := []Candidate{{BlockSize: 64, Cost: 3}, {BlockSize: 16, Cost: 10}}
	if got := cheapest(rand.New(rand.NewPCG(1, 1)), rows); got != 1 {
		t.Errorf("picked %d", got)
	}
}
