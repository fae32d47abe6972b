package trace_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/sim/trace"
)

func synthetic(t testing.TB, s trace.Synthetic) []trace.Request {
	t.Helper()
	w := collect(t, s.Requests())
	if err := trace.Check(w); err != nil {
		t.Fatal(err)
	}
	return w
}

// meanAndVariation returns the mean of durations in seconds and their standard
// deviation against it.
func meanAndVariation(all []time.Duration) (mean, variation float64) {
	n := float64(len(all))
	for _, d := range all {
		mean += d.Seconds() / n
	}
	for _, d := range all {
		variation += (d.Seconds() - mean) * (d.Seconds() - mean) / n
	}
	return mean, math.Sqrt(variation) / mean
}

func TestArrivals(t *testing.T) {
	for _, tt := range []struct {
		arrival    trace.Arrival
		smoothness float64
		variation  float64
	}{
		{trace.Constant, 0, 0},
		{trace.Poisson, 0, 1},
		{trace.Gamma, 0, 1},
		{trace.Gamma, 4, 0.5},
		{trace.Gamma, 0.25, 2},
	} {
		w := synthetic(t, trace.Synthetic{Sessions: 20_000, Input: trace.Length{Mean: 5}, Output: trace.Length{Mean: 5}, Arrival: tt.arrival, Rate: 4, Smoothness: tt.smoothness, Seed: 3})
		var gaps []time.Duration
		for i := range w[1:] {
			gaps = append(gaps, w[i+1].At-w[i].At)
		}
		mean, variation := meanAndVariation(gaps)
		if math.Abs(mean-0.25) > 0.01 || math.Abs(variation-tt.variation) > 0.05*max(tt.variation, 0.1) {
			t.Errorf("%s, smoothness %v: %.3f s apart, variation %.3f; want 0.25 and %v", tt.arrival, tt.smoothness, mean, variation, tt.variation)
		}
	}
	for _, r := range synthetic(t, trace.Synthetic{Sessions: 5, Input: trace.Length{Mean: 5}, Output: trace.Length{Mean: 5}}) {
		if r.At != 0 {
			t.Errorf("of a burst, %s comes at %v", r.ID, r.At)
		}
	}
}

func TestSyntheticLengths(t *testing.T) {
	w := synthetic(t, trace.Synthetic{Sessions: 5000, Input: trace.Length{Mean: 1000, Deviation: 200}, Output: trace.Length{Mean: 3, Deviation: 50}})
	s := trace.Analyse(w, 512)
	if math.Abs(s.Input.Mean-1000) > 10 || s.Input.P99 < 1430 || s.Input.P99 > 1500 {
		t.Errorf("inputs are %+v, want a mean of 1000 and p99 near 1465", s.Input)
	}
	for _, r := range w {
		if r.Answer.Len() < 1 {
			t.Fatalf("%s has an answer of %d tokens", r.ID, r.Answer.Len())
		}
	}
	if s.Reused != 0 {
		t.Errorf("%d blocks are shared and none should be", s.Reused)
	}
}

func TestSyntheticPrefix(t *testing.T) {
	w := synthetic(t, trace.Synthetic{Sessions: 400, Input: trace.Length{Mean: 1000}, Output: trace.Length{Mean: 1}, BlockSize: 100, Prefix: trace.Prefix{Ratio: 0.34, Groups: 4}})
	chains := trace.Chains(w, 100)
	groups := map[int32]int{}
	for i, chain := range chains {
		groups[chain[0]]++
		if n := common(chain, chains[0]); n != 3 && n != 0 && i > 0 {
			t.Fatalf("two prompts share %d blocks of 10, want 3 or none", n)
		}
	}
	if len(groups) != 4 {
		t.Errorf("%d beginnings, want 4", len(groups))
	}
	for _, n := range groups {
		if n < 70 || n > 130 {
			t.Errorf("a group of four has %d of 400 prompts", n)
		}
	}
}

func TestSyntheticTurns(t *testing.T) {
	s := trace.Synthetic{Sessions: 3, Turns: 4, Input: trace.Length{Mean: 100}, Output: trace.Length{Mean: 20}, Arrival: trace.Constant, Rate: 1, Pause: time.Second}
	apart := synthetic(t, s)
	s.Accumulate = true
	grown := synthetic(t, s)
	for i, r := range grown {
		turn := i % 4
		if apart[i].Prompt.Len() != 100 || r.Prompt.Len() != 100+120*turn {
			t.Errorf("%s: %d tokens and %d with the history, want 100 and %d", r.ID, apart[i].Prompt.Len(), r.Prompt.Len(), 100+120*turn)
		}
		if r.Final != (turn == 3) || (turn == 0) != (len(r.After) == 0) {
			t.Errorf("%+v is turn %d of 4", r, turn)
		}
		if turn > 0 {
			history := slices.Concat(grown[i-1].Prompt, grown[i-1].Answer)
			if !slices.Equal(r.Prompt[:len(history)], history) || r.After[0] != grown[i-1].ID || r.Delay != time.Second {
				t.Errorf("%s does not follow %s", r.ID, grown[i-1].ID)
			}
		}
	}
	s.Turns, s.Exponential = 2000, true
	var pauses []time.Duration
	for _, r := range synthetic(t, s) {
		if len(r.After) > 0 {
			pauses = append(pauses, r.Delay)
		}
	}
	if mean, variation := meanAndVariation(pauses); math.Abs(mean-1) > 0.05 || math.Abs(variation-1) > 0.05 {
		t.Errorf("pauses of %.3f s with variation %.3f, want 1 and 1", mean, variation)
	}
}

func TestSyntheticSeed(t *testing.T) {
	s := trace.Synthetic{Sessions: 10, Turns: 2, Input: trace.Length{Mean: 100, Deviation: 30}, Output: trace.Length{Mean: 20}, Arrival: trace.Poisson, Rate: 1, Seed: 7}
	one, same := fmt.Sprint(synthetic(t, s)), fmt.Sprint(synthetic(t, s))
	s.Seed = 8
	if other := fmt.Sprint(synthetic(t, s)); one != same || one == other {
		t.Error("a seed does not fix the workload, or nothing but it does")
	}
}

func TestSyntheticCheck(t *testing.T) {
	good := trace.Synthetic{Sessions: 1, Input: trace.Length{Mean: 1}, Output: trace.Length{Mean: 1}}
	for want, change := range map[string]func(*trace.Synthetic){
		"0 sessions":        func(s *trace.Synthetic) { s.Sessions = 0 },
		"0 input tokens":    func(s *trace.Synthetic) { s.Input.Mean = 0 },
		"0 output tokens":   func(s *trace.Synthetic) { s.Output.Mean = 0 },
		"deviations NaN":    func(s *trace.Synthetic) { s.Input.Deviation = math.NaN() },
		`arrival "tides"`:   func(s *trace.Synthetic) { s.Arrival = "tides" },
		"0 sessions a sec":  func(s *trace.Synthetic) { s.Arrival = trace.Poisson },
		"smoothness -1":     func(s *trace.Synthetic) { s.Smoothness = -1 },
		"a pause of -1s":    func(s *trace.Synthetic) { s.Pause = -time.Second },
		"block size -1":     func(s *trace.Synthetic) { s.BlockSize = -1 },
		"ratio: got 1.5":    func(s *trace.Synthetic) { s.Prefix = trace.Prefix{Ratio: 1.5, Groups: 1} },
		"groups: got 0":     func(s *trace.Synthetic) { s.Prefix = trace.Prefix{Ratio: 0.5} },
		"got -2 turns":      func(s *trace.Synthetic) { s.Turns = -2 },
		"groups: got -1, w": func(s *trace.Synthetic) { s.Prefix.Groups = -1 },
	} {
		s := good
		change(&s)
		var got error
		for _, err := range s.Requests() {
			got = err
		}
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("%v, want an error with %q", got, want)
		}
	}
}

// A minute of conversations that grow, as a generator makes them.
func ExampleSynthetic() {
	s := trace.Synthetic{
		Sessions: 2, Turns: 2, Accumulate: true,
		Input: trace.Length{Mean: 1000}, Output: trace.Length{Mean: 100},
		Arrival: trace.Constant, Rate: 0.5, Pause: 3 * time.Second,
	}
	for r, err := range s.Requests() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.ID, r.Prompt.Len(), r.Answer.Len())
	}
	// Output:
	// session 0, turn 0 1000 100
	// session 0, turn 1 2100 100
	// session 1, turn 0 1000 100
	// session 1, turn 1 2100 100
}

// Times that would not fit stay at the latest that does.
func TestSyntheticTimesDoNotOverflow(t *testing.T) {
	for _, arrival := range []trace.Arrival{trace.Poisson, trace.Constant, trace.Gamma} {
		w := synthetic(t, trace.Synthetic{
			Sessions: 20, Turns: 3, Input: trace.Length{Mean: 8}, Output: trace.Length{Mean: 2},
			Arrival: arrival, Rate: 1e-300, Pause: 1 << 62, Exponential: true,
		})
		for i, r := range w {
			if r.At < 0 || r.Delay < 0 || i > 0 && r.At < w[i-1].At {
				t.Errorf("%s: %s comes at %v, after a pause of %v", arrival, r.ID, r.At, r.Delay)
			}
		}
	}
}
