package router

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The rows of the worked example: 160 tokens in blocks of 16, ten of them.
func goldenRows() []Candidate {
	return []Candidate{
		{BlockSize: 16, Preference: 1, ActiveBlocks: 4, DecodeBlocks: 14},
		{BlockSize: 16, Preference: 1, ActiveBlocks: 9, DecodeBlocks: 11, PrefillTokens: 320, Device: 8},
		{BlockSize: 16, Preference: 1, ActiveBlocks: 6, DecodeBlocks: 16, Device: 4, Host: 4},
	}
}

// The README says how they were found.
func TestDefaultScale(t *testing.T) {
	if got := DefaultTuning().PrefillLoadScale; got != 4 {
		t.Errorf("a block of prefill counts %v by default, want 4", got)
	}
	tuning := DefaultTuning()
	if LoadAware(&tuning); tuning.PrefillLoadScale != 1 {
		t.Errorf("a block of prefill counts %v where only load does, want 1", tuning.PrefillLoadScale)
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
		{name: "unscaled", want: [3]float64{24, 33, 19}, pick: 2},
		{name: "no credit", tune: func(t *Tuning) { t.OverlapScoreCredit = 0 }, want: [3]float64{24, 41, 23}, pick: 2},
		{name: "credit decays", tune: func(t *Tuning) { t.OverlapScoreCreditDecay = 1 }, want: [3]float64{24, 38.333333333333336, 19}, pick: 2},
		{name: "prefill pool, untracked", tune: func(t *Tuning) { t.TrackPrefillTokens = false }, prefill: true, want: [3]float64{14, 11, 16}, pick: 1},
		{name: "decode pool, untracked", tune: func(t *Tuning) { t.TrackPrefillTokens = false }, want: [3]float64{14, 3, 9}, pick: 1},
		{name: "decode pool, untracked, no credit", tune: func(t *Tuning) { t.TrackPrefillTokens, t.OverlapScoreCredit = false, 0 }, want: [3]float64{14, 11, 16}, pick: 1},
		{name: "defaults", tune: func(t *Tuning) { *t = DefaultTuning() }, want: [3]float64{54, 99, 28}, pick: 2},
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
		{
			name: "preferences", change: func(c []Candidate) { c[0].Preference, c[1].Preference = 0.5, 2 },
			want: [3]float64{12, 66, 19}, pick: 0,
		},
		{
			name: "more cached than there is", change: func(c []Candidate) { c[0].Device, c[2].Device = 12, 11 },
			want: [3]float64{14, 33, 16}, pick: 0,
		},
		{name: "credit above what there is", tune: func(t *Tuning) { t.OverlapScoreCredit = 9 }, want: [3]float64{24, 11, 16}, pick: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tuning, rows := Unscaled(), goldenRows()
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
				parts := tuning.terms(ask{tokens: 160, prefillPool: tc.prefill}, &rows[i])
				if sum := (parts.Prefill + parts.Decode + parts.Requests) * parts.Preference; sum != rows[i].Cost || parts.Total != sum {
					t.Errorf("row %d costs %v, and its parts %+v", i, rows[i].Cost, parts)
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
	for i, p := range shares(rows, 0.5) {
		if math.Abs(p-share[i]) > 5e-6 {
			t.Errorf("row %d has a share of %v, want %v", i, p, share[i])
		}
	}
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
		{0.9, row(math.Inf(1), 1), 0.1, 1},
		{0.4, row(math.Inf(1), math.Inf(1)), 1, 0},
		{0.6, row(math.Inf(1), math.Inf(1)), 1, 1},
	} {
		if got := soften(tc.u, tc.rows, tc.t); got != tc.want {
			t.Errorf("%+v: got %d", tc, got)
		}
	}
}

// Of equal costs each has a chance in proportion to its free room: the same for
// equal workers, less for a small or a full one, and the same for all where it is
// not known of one of them.
func TestTies(t *testing.T) {
	const dear = -1 // not among the equal ones
	for name, tc := range map[string]struct {
		total, active []int
		weight        []float64
	}{
		"unknown":           {[]int{0, 0, 0, 0, 0}, nil, []float64{dear, 1, 1, dear, 1}},
		"equal":             {[]int{900, 900, 900, 1, 900}, nil, []float64{dear, 1, 1, dear, 1}},
		"one is half":       {[]int{900, 900, 450, 1, 900}, nil, []float64{dear, 2, 1, dear, 2}},
		"one is in use":     {[]int{900, 900, 900, 1, 900}, []int{0, 0, 600, 0, 0}, []float64{dear, 3, 1, dear, 3}},
		"one is full":       {[]int{900, 900, 900, 1, 900}, []int{0, 0, 1200, 0, 0}, []float64{dear, 1, 0, dear, 1}},
		"all are full":      {[]int{9, 9, 9, 1, 9}, []int{0, 9, 9, 0, 9}, []float64{dear, 1, 1, dear, 1}},
		"one is unknown":    {[]int{900, 900, 0, 1, 10}, nil, []float64{dear, 1, 1, dear, 1}},
		"dear ones unknown": {[]int{0, 900, 450, 0, 900}, nil, []float64{dear, 2, 1, dear, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			rows := make([]Candidate, 5)
			sum := 0.0
			for i := range rows {
				rows[i] = Candidate{BlockSize: 16, Cost: 1, TotalBlocks: tc.total[i]}
				if tc.active != nil {
					rows[i].ActiveBlocks = tc.active[i]
				}
				if tc.weight[i] == dear {
					rows[i].Cost = 2
				} else {
					sum += tc.weight[i]
				}
			}
			r := rand.New(rand.NewPCG(3, 3))
			const n = 30_000
			var seen [5]float64
			for range n {
				seen[cheapest(r, rows)]++
			}
			chi := 0.0
			for i := range rows {
				want := n * max(0, tc.weight[i]) / sum
				switch {
				case want > 0:
					chi += (seen[i] - want) * (seen[i] - want) / want
				case seen[i] > 0:
					t.Errorf("row %d is taken %v times", i, seen[i])
				}
			}
			if chi > 13.8 { // p = 0.001 at two degrees of freedom
				t.Errorf("seen %v, chi-square %.1f", seen, chi)
			}
			got := make([]Row, len(rows))
			for i := range rows {
				got[i].Candidate = rows[i]
			}
			chances(got, 0)
			for i := range got {
				if want := max(0, tc.weight[i]) / sum; math.Abs(got[i].Chance-want) > 1e-12 {
					t.Errorf("row %d is said to have a chance of %v, want %v", i, got[i].Chance, want)
				}
			}
		})
	}
}

// Across block sizes the least cost in tokens wins, not in blocks.
func TestCostComparesTokens(t *testing.T) {
	rows := []Candidate{{BlockSize: 64, Cost: 3}, {BlockSize: 16, Cost: 10}}
	if got := cheapest(rand.New(rand.NewPCG(1, 1)), rows); got != 1 {
		t.Errorf("picked %d", got)
	}
}

// The parts of the worked example.
func TestTerms(t *testing.T) {
	tuning, rows := Unscaled(), goldenRows()
	for i, want := range []Terms{
		{RawPrefill: 10, Decay: 1, Scale: 1, Prefill: 10, Decode: 14, Preference: 1, Total: 24},
		{RawPrefill: 30, Decay: 1, Credit: 8, Undecayed: 8, Scale: 1, Prefill: 22, Decode: 11, Preference: 1, Total: 33},
		{RawPrefill: 10, Decay: 1, Credit: 7, Undecayed: 7, Scale: 1, Prefill: 3, Decode: 16, Preference: 1, Total: 19},
	} {
		if got := tuning.terms(ask{tokens: 160}, &rows[i]); got != want {
			t.Errorf("row %d: %+v, want %+v", i, got, want)
		}
	}
	tuning.OverlapScoreCreditDecay = 1
	if got := tuning.terms(ask{tokens: 160}, &rows[1]); got.Decay != 1./3 || math.Abs(got.Credit-8./3) > 1e-12 {
		t.Errorf("decayed: %+v", got)
	}
}

// The quick way to a cost gives the same, bit by bit, as the sum of its parts.
func TestCostIsTheSumOfItsTerms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(most int, name string) int {
			if rapid.Bool().Draw(t, name+" is 0") {
				return 0
			}
			return rapid.IntRange(0, most).Draw(t, name)
		}
		factor := func(name string) float64 {
			return rapid.OneOf(rapid.SampledFrom([]float64{0, 1}), rapid.Float64Range(0, 3)).Draw(t, name)
		}
		tuning := Tuning{
			OverlapScoreCredit: factor("credit"), OverlapScoreCreditDecay: factor("decay"), PrefillLoadScale: factor("scale"),
			DecodeActiveRequestWeight: factor("requests"), HostCacheHitWeight: factor("host"), DiskCacheHitWeight: factor("disk"),
			SharedCacheMultiplier: factor("shared"), TrackPrefillTokens: rapid.Bool().Draw(t, "track"),
		}
		a := ask{tokens: number(1e6, "tokens"), prefillPool: rapid.Bool().Draw(t, "prefill")}
		c := Candidate{
			BlockSize: rapid.IntRange(1, 300).Draw(t, "size"), Device: number(5000, "device"), Host: number(5000, "host"),
			Disk: number(5000, "disk"), Shared: number(5000, "shared"), PrefillTokens: number(1e6, "outstanding"),
			Requests: number(500, "requests"), DecodeBlocks: number(1e5, "decode"), Preference: 1 / (1 + factor("preference")),
		}
		if rapid.Bool().Draw(t, "quick") {
			tuning.TrackPrefillTokens, tuning.OverlapScoreCreditDecay, c.Host, c.Disk, c.Shared = true, 0, 0, 0, 0
		}
		rows := []Candidate{c, c, c}
		rows[1].BlockSize, rows[2].Cost = rapid.SampledFrom([]int{1, 16, 64}).Draw(t, "another size"), 77
		tuning.price(a, rows)
		for i := range rows {
			if want := tuning.terms(a, &rows[i]).Total; rows[i].Cost != want {
				t.Errorf("row %d: %v, want %v", i, rows[i].Cost, want)
			}
		}
	})
}
