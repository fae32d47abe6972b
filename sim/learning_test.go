package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/thompson"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/trace"
)

// One of four workers becomes three times slower, and is cured later, where there
// is so little to do that load alone does not show it. A policy that learns
// notices both.
func TestLearning(t *testing.T) {
	const (
		slow, cured, n = 600, 1000, 2800 // requests
		within         = 200
	)
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := poisson(n, 1, seed, func(i int, random *rand.Rand) trace.Request {
				return ask(i, 0, 500+random.IntN(3000), 10+random.IntN(30))
			})
			set := func(i int, speed float64) sim.Change {
				return sim.Change{At: w[i].At, Do: func(s *sim.Simulation) error { return s.SetSpeed(2, speed) }}
			}
			// shares replays it, and returns what the slow worker had of some requests,
			// against what each of the others had.
			shares := func(c sim.Config) func(from, to int) float64 {
				c.Workers, c.Changes = 4, []sim.Change{set(slow, 1.0/3), set(cured, 1)}
				_, records := run(t, c, w)
				return func(from, to int) float64 {
					had := 0
					for _, r := range w[from:to] {
						if records[r.ID].Worker == "worker-2" {
							had++
						}
					}
					return 3 * float64(had) / float64(to-from-had)
				}
			}
			clock := new(sim.Clock)
			config := thompson.Default()
			config.Seed, config.Now = seed+1, clock.Now
			policy, err := thompson.New(config)
			if err != nil {
				t.Fatal(err)
			}
			learns := shares(sim.Config{Clock: clock, Router: router.Config{Policy: policy, Seed: seed + 1}})
			sees := shares(sim.Config{Router: router.Config{Seed: seed + 1}})
			for _, tt := range []struct {
				what      string
				share     float64
				low, high float64
			}{
				{"before", learns(slow-400, slow), 0.7, 1.4},
				{"slow, just noticed", learns(slow+within/2, slow+within), 0, 0.5},
				{"slow", learns(slow+within, cured), 0, 0.4},
				{"cured", learns(n-400, n), 0.6, 1.4},
				{"slow, if only load is looked at", sees(slow+within, cured), 0.6, 1.4},
			} {
				if tt.share < tt.low || tt.share > tt.high {
					t.Errorf("%s: it has %.2f times the requests of another one, want %.1f to %.1f", tt.what, tt.share, tt.low, tt.high)
				}
			}
		})
	}
}
