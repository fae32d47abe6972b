package router_test

import (
	"math"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// row is a candidate of blocks of ten tokens.
func row(worker uint64, terms router.Terms, chance float64) router.Row {
	terms.Total = terms.Prefill + terms.Decode
	return router.Row{
		Candidate: router.Candidate{Target: kv.Target{Worker: worker}, BlockSize: 10, DecodeBlocks: int(terms.Decode), Cost: terms.Total},
		Terms:     terms, Chance: chance,
	}
}

func TestCompare(t *testing.T) {
	idle := router.Terms{RawPrefill: 10, Scale: 1, Prefill: 10, Decode: 10}
	warm := router.Terms{RawPrefill: 10, Credit: 8, Scale: 1, Prefill: 2, Decode: 10}
	hot := router.Terms{RawPrefill: 13, Credit: 8, Scale: 1, Prefill: 5, Decode: 12} // warm and busy
	busy := router.Terms{RawPrefill: 30, Scale: 1, Prefill: 30, Decode: 20}
	endless := router.Terms{RawPrefill: 10, Scale: 1, Prefill: math.MaxFloat64} // in tokens
	// A block to compute counts as eight: 28 blocks more are in use where 4 more are
	// cached, and 10 more where two less are to be computed first.
	cold := router.Terms{RawPrefill: 10, Scale: 8, Prefill: 80, Decode: 12}
	decodes := router.Terms{RawPrefill: 10, Credit: 4, Scale: 8, Prefill: 48, Decode: 40}
	queued := router.Terms{RawPrefill: 12, Scale: 8, Prefill: 96, Decode: 2}
	swamped := router.Terms{RawPrefill: 90, Credit: 8, Scale: 1, Prefill: 82, Decode: 40}
	for name, tt := range map[string]struct {
		rows  []router.Row
		taken int
		want  router.Comparison
	}{
		"one":   {[]router.Row{row(1, idle, 1)}, 0, router.Comparison{Reason: router.ReasonNecessity, Next: -1, Ties: 1}},
		"cache": {[]router.Row{row(1, idle, 0), row(2, warm, 1)}, 1, router.Comparison{Reason: router.ReasonCache, Next: 0, Ties: 1, Cache: 80}},
		"in spite of load": {
			[]router.Row{row(1, idle, 0), row(2, hot, 1), row(3, busy, 0)},
			1,
			router.Comparison{Reason: router.ReasonCache, Next: 0, Ties: 1, Cache: 80, Load: -50},
		},
		"endless": {[]router.Row{row(1, endless, .5), row(2, endless, .5)}, 0, router.Comparison{Reason: router.ReasonTie, Next: 1, Ties: 2}},
		"load":    {[]router.Row{row(1, idle, 1), row(2, busy, 0)}, 0, router.Comparison{Reason: router.ReasonLoad, Next: 1, Ties: 1, Load: 300}},
		"cache, in spite of more blocks": {
			[]router.Row{row(1, cold, 0), row(2, decodes, 1)},
			1,
			router.Comparison{Reason: router.ReasonCache, Next: 0, Ties: 1, Cache: 320, Load: -280},
		},
		"load, in spite of more blocks": {[]router.Row{row(1, cold, 1), row(2, queued, 0)}, 0, router.Comparison{Reason: router.ReasonLoad, Next: 1, Ties: 1, Load: 60}},
		"in spite of cache":             {[]router.Row{row(1, idle, 1), row(2, swamped, 0)}, 0, router.Comparison{Reason: router.ReasonLoad, Next: 1, Ties: 1, Cache: -80, Load: 1100}},
		"tie":                           {[]router.Row{row(1, idle, .5), row(2, busy, 0), row(3, idle, .5)}, 2, router.Comparison{Reason: router.ReasonTie, Next: 0, Ties: 2}},
		"chance":                        {[]router.Row{row(1, idle, .9), row(2, busy, .1)}, 1, router.Comparison{Reason: router.ReasonChance, Next: 0, Ties: 1, Load: -300}},
		"policy":                        {[]router.Row{row(1, idle, 1), row(2, busy, 0)}, 1, router.Comparison{Reason: router.ReasonPolicy, Next: 0, Ties: 1, Load: -300}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := router.Compare(tt.rows, tt.taken); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A worker with a preferred taint is taken for that alone.
func TestComparePreference(t *testing.T) {
	liked := row(2, router.Terms{RawPrefill: 10, Scale: 1, Prefill: 10, Decode: 10}, 1)
	liked.Cost = 15
	c := router.Compare([]router.Row{row(1, router.Terms{RawPrefill: 10, Scale: 1, Prefill: 10, Decode: 10}, 0), liked}, 1)
	if c.Reason != router.ReasonPreference {
		t.Errorf("reason %s", c.Reason)
	}
}

// Where prefill is not counted, and the credit comes off decode, cache and load
// are told apart as well.
func TestCompareDecode(t *testing.T) {
	h := newHouse(t, router.Config{Tuning: func() *router.Tuning {
		t := router.DefaultTuning()
		t.TrackPrefillTokens = false
		return &t
	}()})
	h.join(1, card())
	h.join(2, card())
	prompt := count(1, 40)
	h.caches(2, 1, kv.TierDevice, prompt[:32])
	rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: prompt})
	if err != nil {
		t.Fatal(err)
	}
	if c := router.Compare(rows, 1); c.Reason != router.ReasonCache || c.Cache != 32 || c.Load != 0 {
		t.Errorf("%+v", c)
	}
}
