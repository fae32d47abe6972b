package router_test

import (
	"math"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// What rows are made of can be written down as JSON, whatever factors a request
// has brought.
func TestExplainIsFinite(t *testing.T) {
	h := newHouse(t, router.Config{})
	defer h.fleet.Close()
	h.join(1, card())
	h.join(2, card())
	p := count(0, 40)
	h.caches(1, 1, kv.TierDevice, p)
	for name, o := range map[string]router.Overrides{
		"credit": {OverlapScoreCredit: new(math.MaxFloat64)},
		"scale":  {PrefillLoadScale: new(math.MaxFloat64)},
	} {
		rows, err := h.router.Explain(t.Context(), &router.Query{Model: "m", Tokens: p, Overrides: &o})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if _, err := json.Marshal(r.Terms); err != nil {
				t.Errorf("%s: %v of %+v", name, err, r.Terms)
			}
			if math.IsInf(r.Cost, 0) {
				t.Errorf("%s: an endless cost on %v", name, r.Target)
			}
		}
		if sum := rows[0].Chance + rows[1].Chance; math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: chances %v and %v", name, rows[0].Chance, rows[1].Chance)
		}
	}
}
