package agents

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dynago/dynago/bench/stats"
	"github.com/dynago/dynago/sim/trace"
)

// Tier is how important a request is.
type Tier struct {
	Name     string
	Share    float64 // of the requests that come by themselves
	Priority float64 // seconds of earlier arrival
	Strict   uint32
}

// Tiers are those of the overloaded fleet: half of the requests can wait, a fifth
// cannot, and one in a hundred goes before everything.
var Tiers = []Tier{
	{"strict", 0.01, 120, 1},
	{"high", 0.20, 120, 0},
	{"medium", 0.30, 30, 0},
	{"low", 0.49, 0, 0},
}

// Draw returns the tier of a number from 0 to 1.
func Draw(u float64) Tier {
	for _, t := range Tiers {
		if u -= t.Share; u < 0 {
			return t
		}
	}
	return Tiers[len(Tiers)-1]
}

func tierOf(name string) Tier {
	return Tiers[slices.IndexFunc(Tiers, func(t Tier) bool { return t.Name == name })]
}

// Poisson returns independent requests at a rate, the same ones in the same order
// whatever the rate, and the tier of each.
func Poisson(rate float64, span time.Duration) ([]trace.Request, map[string]string, error) {
	w, err := collect(trace.Synthetic{
		Sessions: max(1, int(rate*span.Seconds())),
		Input:    trace.Length{Mean: 4000, Deviation: 1000}, Output: trace.Length{Mean: 150, Deviation: 50},
		Arrival: trace.Poisson, Rate: rate, Seed: 42,
	}.Requests())
	random := rand.New(rand.NewPCG(42, 0))
	of := make(map[string]string, len(w))
	for i := range w {
		of[w[i].ID] = Draw(random.Float64()).Name
	}
	return w, of, err
}

// Tag lets requests say which tier they are of, and returns them.
func Tag(w []trace.Request, of map[string]string) []trace.Request {
	tagged := slices.Clone(w)
	for i := range tagged {
		t := tierOf(of[tagged[i].ID])
		tagged[i].Priority, tagged[i].StrictPriority = t.Priority, t.Strict
	}
	return tagged
}

// TierOutcome compares requests of a tier with how the same ones fared in the order of
// their arrival. Times are those to the first token in milliseconds, and the longest
// wait for a batch in seconds.
type TierOutcome struct {
	Tier                string
	P50, P99, Longest   float64
	FCFS50, FCFS99, Old float64
}

// Compare compares two runs tier by tier.
func Compare(before, after []Outcome, of map[string]string) []TierOutcome {
	var all []TierOutcome
	for _, t := range Tiers {
		wanted := func(id string) bool { return of[id] == t.Name }
		was, old := Waits(before, wanted)
		is, longest := Waits(after, wanted)
		if len(is) == 0 {
			continue
		}
		all = append(all, TierOutcome{
			Tier: t.Name,
			P50:  stats.Quantile(is, 0.5), P99: stats.Quantile(is, 0.99), Longest: longest,
			FCFS50: stats.Quantile(was, 0.5), FCFS99: stats.Quantile(was, 0.99), Old: old,
		})
	}
	return all
}

// Bound is what no request of the lowest tier may wait longer than, in seconds: it is
// overtaken only by what comes less than the highest priority later, and that would
// have waited as long as anyone in order of arrival.
func Bound(before []Outcome) (bound float64) {
	_, longest := Waits(before, func(string) bool { return true })
	for _, t := range Tiers {
		bound = max(bound, t.Priority+longest)
	}
	return bound
}
