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
// notices both: the first within 200 requests, the second more slowly, since who is
// avoided has little to show. Any of the workers may be the one, and what is said of
// shares is said of several runs together: in one of them a hundred requests say
// little.
func TestLearning(t *testing.T) {
	const (
		slow, cured, n = 600, 1000, 2800 // requests
		workers, runs  = 4, 6
	)
	var learns, sees share
	for seed := range uint64(runs) {
		victim := int(seed % workers)
		w := poisson(n, 1, seed, func(i int, random *rand.Rand) trace.Request {
			return ask(i, 0, 500+random.IntN(3000), 10+random.IntN(30))
		})
		set := func(i int, speed float64) sim.Change {
			return sim.Change{At: w[i].At, Do: func(s *sim.Simulation) error { return s.SetSpeed(victim, speed) }}
		}
		count := func(s *share, c sim.Config) {
			c.Workers, c.Changes = workers, []sim.Change{set(slow, 1.0/3), set(cured, 1)}
			_, records := run(t, c, w)
			for i := range w {
				s.note(i, records[w[i].ID].Worker == fmt.Sprintf("worker-%d", victim))
			}
		}
		clock := new(sim.Clock)
		config := thompson.Default()
		config.Seed, config.Now = seed+1, clock.Now
		policy, err := thompson.New(config)
		if err != nil {
			t.Fatal(err)
		}
		count(&learns, sim.Config{Clock: clock, Router: router.Config{Policy: policy, Seed: seed + 1}})
		count(&sees, sim.Config{Router: router.Config{Seed: seed + 1}})
	}
	for _, tt := range []struct {
		what      string
		share     float64
		low, high float64
	}{
		{"before", learns.of(slow-400, slow), 0.8, 1.25},
		{"slow, its second hundred requests", learns.of(slow+100, slow+200), 0, 0.5},
		{"slow", learns.of(slow+200, cured), 0, 0.4},
		{"cured for 1,000 requests", learns.of(cured+1000, cured+1400), 0.5, 1.25},
		{"cured for 1,400", learns.of(n-400, n), 0.65, 1.25},
		{"slow, if only load is looked at", sees.of(slow+200, cured), 0.7, 1.25},
	} {
		t.Logf("%s: %.2f", tt.what, tt.share)
		if tt.share < tt.low || tt.share > tt.high {
			t.Errorf("%s: it has %.2f times the requests of another one, want %.2f to %.2f", tt.what, tt.share, tt.low, tt.high)
		}
	}
}

// share is what one of four workers had of the requests of several runs, by their
// number.
type share struct{ had, all [2800]int }

func (s *share) note(i int, had bool) {
	s.all[i]++
	if had {
		s.had[i]++
	}
}

// of returns how many of some requests it had, against what each of the others had.
func (s *share) of(from, to int) float64 {
	had, all := 0, 0
	for i := from; i < to; i++ {
		had, all = had+s.had[i], all+s.all[i]
	}
	return 3 * float64(had) / float64(all-had)
}
