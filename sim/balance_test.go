package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/trace"
)

// poisson returns n requests that come at random, so many a second, and that are
// otherwise as make says.
func poisson(n int, perSecond float64, seed uint64, make func(i int, random *rand.Rand) trace.Request) []trace.Request {
	random := rand.New(rand.NewPCG(seed, 0))
	var at time.Duration
	var w []trace.Request
	for i := range n {
		r := make(i, random)
		r.At = at
		w = append(w, r)
		at += time.Duration(random.ExpFloat64() / perSecond * float64(time.Second))
	}
	return w
}

// tally counts the requests by the worker that had them.
func tally(records map[string]*sim.Record) map[string]int {
	n := make(map[string]int)
	for _, r := range records {
		n[r.Worker]++
	}
	return n
}

// each runs a test with a few seeds, of the workload and of the router: what is
// shown must not be the luck of one.
func each(t *testing.T, f func(t *testing.T, seed uint64)) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed+1), func(t *testing.T) { f(t, seed+1) })
	}
}

// Requests of one moment see each other, before any worker has told anything.
func TestBookingsCountFromTheDecisionOn(t *testing.T) {
	var w []trace.Request
	for i := range 40 {
		w = append(w, ask(i, 0, 1000, 10))
	}
	_, records := run(t, sim.Config{Workers: 8}, w)
	for worker, n := range tally(records) {
		if n != 5 {
			t.Errorf("%s has %d of 40 requests, want 5 as each of the 8", worker, n)
		}
	}
}

// Prompts that nobody has cached spread, whatever their length.
func TestColdRequestsSpread(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		w := poisson(800, 10, seed, func(i int, random *rand.Rand) trace.Request {
			return ask(i, 0, 100+random.IntN(8000), 1+random.IntN(300))
		})
		report, _ := run(t, sim.Config{Workers: 8, Router: router.Config{Seed: seed}}, w)
		// A hundred prompts a worker, whose lengths differ: what each has to compute
		// would have a deviation of 6% if they were dealt out without looking.
		if b := report.Imbalance; b.Uncached > 1.2 || b.Busy > 1.1 {
			t.Errorf("imbalance %+v, want at most 1.2 in tokens and 1.1 in time", b)
		}
	})
}

// A system prompt that everybody shares does not pull everybody to the worker
// that has had it first, where there is more to do than one worker can.
func TestSharedPrefixSpreads(t *testing.T) {
	each(t, sharedPrefixSpreads)
}

func sharedPrefixSpreads(t *testing.T, seed uint64) {
	w := poisson(1000, 24, seed, func(i int, random *rand.Rand) trace.Request {
		r := ask(i, 0, 200+random.IntN(1000), 100+random.IntN(200))
		r.Prompt = slices.Concat(trace.Text{{Stream: 1 << 50, Len: 6000}}, r.Prompt)
		return r
	})
	report, records := run(t, sim.Config{Workers: 4, Router: router.Config{Seed: seed}}, w)
	for worker, n := range tally(records) {
		if n < len(w)/8 || n > len(w)/2 {
			t.Errorf("%s has %d of %d requests", worker, n, len(w))
		}
	}
	if report.FirstReused < 0.85 {
		t.Errorf("%.3f of the prompts was cached, want all of the prefix but 4 times", report.FirstReused)
	}
	blind, _ := run(t, sim.Config{Workers: 4, Router: router.Config{Mode: router.LeastLoaded, Seed: seed}}, w)
	if report.TTFT.P99 > 1.25*blind.TTFT.P99 {
		t.Errorf("p99 of TTFT is %.0f ms, and %.0f ms if nobody looks at the caches", report.TTFT.P99, blind.TTFT.P99)
	}
}

// Where several workers are as good as each other, one with more room in its
// cache is taken more often.
func TestTiesGoByFreeCapacity(t *testing.T) {
	small, big := mock.DefaultArgs(), mock.DefaultArgs()
	small.NumGPUBlocks, big.NumGPUBlocks = 2000, 6000
	// One at a time: whenever a request comes, all workers are idle.
	var w []trace.Request
	for i := range 2000 {
		w = append(w, ask(i, 0, 70, 1))
	}
	for i := range w {
		w[i].At = time.Duration(i) * time.Second
	}
	each(t, func(t *testing.T, seed uint64) {
		_, records := run(t, sim.Config{
			Workers: 1, Engine: small, Router: router.Config{Seed: seed},
			Changes: []sim.Change{{Do: func(s *sim.Simulation) error { _, err := s.AddWorker(big); return err }}},
		}, w)
		n := tally(records)
		// 1500 of 2000, with a standard deviation of 19.
		if got := n["worker-1"]; got < 1420 || got > 1580 {
			t.Errorf("the worker with three quarters of the room has %d of %d requests", got, len(w))
		}
	})
}

// A conversation that is bound to its worker stays there, wherever the mode would
// send it, as long as it does not pause for longer than it is bound.
func TestSessionsStay(t *testing.T) {
	const sessions, turns, pause = 40, 6, 20 * time.Second
	var w []trace.Request
	for n := range sessions {
		history := trace.Text{{Stream: 1 << 50, Len: 3000}}
		for turn := range turns {
			r := ask(100*n+turn, time.Duration(n)*200*ms, 400, 40)
			r.Session, r.Final = fmt.Sprint(n), turn == turns-1
			r.Prompt = slices.Concat(history, r.Prompt)
			if turn > 0 {
				r.After, r.Delay = []string{w[len(w)-1].ID}, pause
			}
			history = slices.Concat(r.Prompt, r.Answer)
			w = append(w, r)
		}
	}
	// moved counts the turns that had another worker than the one before.
	moved := func(ttl time.Duration) (n int) {
		_, records := run(t, sim.Config{Workers: 4, Router: router.Config{Mode: router.Random, SessionTTL: ttl}}, w)
		for _, r := range w {
			if len(r.After) > 0 && records[r.ID].Worker != records[r.After[0]].Worker {
				n++
			}
		}
		return n
	}
	if n := moved(time.Minute); n != 0 {
		t.Errorf("%d of %d turns move, though they are bound for longer than they pause", n, len(w))
	}
	if n := moved(time.Second); n < len(w)/2 {
		t.Errorf("%d of %d turns move, though nobody is bound for as long as a pause", n, len(w))
	}
}

// Where more comes than the fleet can do for a while, everybody is served in the
// end. First come, first served, nobody waits longer than the backlog at the end
// of the rush takes, and the few seconds by which others may count as earlier.
// Shortest first, half of the requests hardly wait at all, and the longest only
// until the rush is over.
func TestNobodyStarves(t *testing.T) {
	each(t, nobodyStarves)
}

func nobodyStarves(t *testing.T, seed uint64) {
	const jump = 4 // seconds
	w := poisson(1000, 33, seed, func(i int, random *rand.Rand) trace.Request {
		r := ask(i, 0, 500+random.IntN(4000), 20+random.IntN(100))
		if i%50 == 0 {
			r.StrictPriority = 1
		}
		r.Priority = float64(i % 3 * jump / 2)
		return r
	})
	rush := w[len(w)-1].At
	threshold := 0.5
	median := make(map[router.QueueOrder]float64)
	for _, order := range []router.QueueOrder{router.FCFS, router.WSPT} {
		report, records := run(t, sim.Config{
			Workers: 2, Router: router.Config{QueueThreshold: &threshold, QueueOrder: order, Seed: seed},
		}, w)
		if report.Completed != len(w) {
			t.Fatalf("%s: %d of %d requests completed, failed: %v", order, report.Completed, len(w), report.Failed)
		}
		median[order] = report.TTFT.Median
		backlog := report.Duration - rush
		if backlog < 5*time.Second {
			t.Errorf("%s: all is worked off %v after the rush, which is no rush", order, backlog)
		}
		bound := backlog + jump*time.Second
		if order == router.WSPT {
			bound = report.Duration
		}
		for i, r := range w {
			wait := records[r.ID].Parked
			if wait > bound {
				t.Errorf("%s: %s is parked for %v, want at most %v", order, r.ID, wait, bound)
			}
			if i%50 == 0 && wait > time.Second {
				t.Errorf("%s: %s, of a higher tier, is parked for %v", order, r.ID, wait)
			}
		}
	}
	if median[router.WSPT] > median[router.FCFS]/4 {
		t.Errorf("p50 of TTFT is %.0f ms shortest first, and %.0f ms first come, first served", median[router.WSPT], median[router.FCFS])
	}
}

// guided is the built-in policy, but for requests of which the test says where
// they go.
type guided struct {
	router.Policy
	to map[string]uint64 // id of the worker, by request
}

func (g guided) Quick() bool { return true }

func (g guided) Pick(ctx context.Context, q *router.Query, c []router.Candidate) (int, error) {
	if id, ok := g.to[q.ID]; ok {
		return slices.IndexFunc(c, func(c router.Candidate) bool { return c.Target.Worker == id }), nil
	}
	return g.Policy.Pick(ctx, q, c)
}

// secondTurn stages a conversation whose first turn is warm on worker 1, which
// has two prompts to compute when the second turn comes, while worker 2 is idle
// and cold. It returns how long the second turn waits for its first token, and
// the worker that it had; forced, if not 0, is the one it has to have.
func secondTurn(t *testing.T, history, ahead int, tuning router.Tuning, forced uint64) (time.Duration, string) {
	t.Helper()
	first := ask(0, 0, history, 50)
	second := ask(1, 10*time.Second+ms, 100, 20)
	second.Prompt = slices.Concat(first.Prompt, first.Answer, second.Prompt)
	w := []trace.Request{first, second}
	to := map[string]uint64{"r0": 1}
	for i := range 2 {
		if ahead > 0 {
			w = append(w, ask(2+i, 10*time.Second, ahead/2, 100))
			to[w[len(w)-1].ID] = 1
		}
	}
	if forced != 0 {
		to["r1"] = forced
	}
	args := mock.DefaultArgs()
	args.NumGPUBlocks = 2048
	_, records := run(t, sim.Config{
		Workers: 2, Engine: args, Router: router.Config{Policy: guided{router.ModePolicy(router.KV, 0, 1), to}, Tuning: &tuning},
	}, w)
	r := records["r1"]
	return r.First - r.Arrived, r.Worker
}

// Whether a conversation is better off where it is warm, behind the prompts of
// others, or where it is cold and nobody is, depends on how much is ahead of it:
// what is ahead, and what would be computed again, take their time alike. A cost
// moves it somewhat early, because a prompt that waits counts twice, as prefill and
// as blocks in use: the default from four fifths of its length on instead of all of
// it, and where prefill counts no more than blocks in use, from half of it on. In
// between it waits at most twice as long as with the better choice; outside it is
// right.
func TestWarmOrIdle(t *testing.T) {
	const warm, idle = 1, 2
	reference := router.DefaultTuning()
	reference.PrefillLoadScale = 1
	for _, tt := range []struct {
		name   string
		tuning router.Tuning
		leaves float64 // from how much ahead, as a part of the conversation's length
		lose   float64 // at most so many times the better choice's time to first token
	}{
		{"default", router.DefaultTuning(), 4.0 / 5, 1.25},
		{"prefill scale 1", reference, 1.0 / 2, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, history := range []int{2_000, 16_000} {
				for _, part := range []float64{0, 0.25, 0.45, 0.6, 0.7, 0.85, 1.1, 2, 4} {
					ahead := int(part * float64(history))
					stay, _ := secondTurn(t, history, ahead, tt.tuning, warm)
					leave, _ := secondTurn(t, history, ahead, tt.tuning, idle)
					got, where := secondTurn(t, history, ahead, tt.tuning, 0)
					if left := where == "worker-1"; left != (part > tt.leaves) {
						t.Errorf("%d tokens ahead of a conversation of %d: it goes to %s", ahead, history, where)
					}
					best := min(stay, leave)
					if float64(got) > tt.lose*float64(best) || part <= tt.leaves && got > best {
						t.Errorf("%d tokens ahead of a conversation of %d: first token after %v on %s, %v where it is warm, %v where nobody is", ahead, history, got, where, stay, leave)
					}
				}
			}
		})
	}
}
