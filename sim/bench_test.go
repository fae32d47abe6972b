package sim_test

import (
	"os"
	"testing"

	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/trace"
)

// conversation returns the first n requests of an hour of a chat service, or all
// if n is 0.
func conversation(t testing.TB, n int) []trace.Request { return recorded(t, "conversation", n) }

// recorded returns the first n requests of a recorded trace.
func recorded(t testing.TB, name string, n int) []trace.Request {
	t.Helper()
	f, err := os.Open("../bench/data/" + name + "_trace.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var w []trace.Request
	for r, err := range trace.Read(trace.Mooncake, trace.ReadOptions{}, f) {
		if err != nil {
			t.Fatal(err)
		}
		if w = append(w, r); len(w) == n {
			break
		}
	}
	return w
}

// How many requests of an hour of a chat service are simulated in a second.
func BenchmarkConversation(b *testing.B) {
	w := conversation(b, 0)
	tokens := 0
	for b.Loop() {
		r, err := sim.Run(sim.Config{Workers: 8}, w)
		if err != nil {
			b.Fatal(err)
		}
		tokens += r.InputTokens + r.OutputTokens
	}
	b.ReportMetric(float64(b.N*len(w))/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}
