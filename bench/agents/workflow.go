package agents

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dynago/dynago/sim/trace"
)

// calls are those of a workflow that classifies a question, works on it four
// times at once, drafts an answer and reviews it.
var calls = []struct {
	name   string
	tier   string
	output int
	after  []int
}{
	{"classify", "high", 5, nil},
	{"work 1", "low", 500, []int{0}},
	{"work 2", "low", 500, []int{0}},
	{"work 3", "low", 500, []int{0}},
	{"work 4", "low", 500, []int{0}},
	{"draft", "medium", 500, []int{1, 2, 3, 4}},
	{"review", "high", 20, []int{5}},
}

// Workflows returns the calls of workflows that follow each other in so many slots,
// and the tier of each. Pause is how long a harness takes before a call, on average:
// from half of that to one and a half times. With none all workflows walk in step, and
// calls that are sent out together come at the very same moment.
func Workflows(slots, rounds int, pause time.Duration) ([]trace.Request, map[string]string) {
	const system, question, more = 1500, 500, 200 // tokens
	piece := func(name string, tokens uint32) trace.Piece {
		return trace.Piece{Stream: trace.Named(name), Len: tokens}
	}
	random := rand.New(rand.NewPCG(42, 0))
	of := map[string]string{}
	var w []trace.Request
	for slot := range slots {
		last := ""
		for round := range rounds {
			name := fmt.Sprintf("workflow %d.%d", slot, round)
			id := func(call int) string { return name + ", " + calls[call].name }
			answers := make([]trace.Piece, len(calls))
			for i, call := range calls {
				r := trace.Request{ID: id(i), At: time.Duration(slot) * 250 * time.Millisecond}
				r.Prompt = trace.Text{piece("system", system), piece(name, question), piece(r.ID, more)}
				r.Delay = time.Duration((0.5 + random.Float64()) * float64(pause))
				for _, j := range call.after {
					r.After = append(r.After, id(j))
					r.Prompt = append(r.Prompt, answers[j])
				}
				if i == 0 && last != "" {
					r.After = []string{last}
				}
				answers[i] = piece(r.ID+": answer", uint32(call.output))
				r.Answer = trace.Text{answers[i]}
				of[r.ID] = call.tier
				w = append(w, r)
			}
			last = id(len(calls) - 1)
		}
	}
	return w, of
}
