package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/dynago/dynago/bench/agents"
	"github.com/dynago/dynago/bench/stats"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/agenttrace"
	"github.com/dynago/dynago/sim/trace"
)

// Agents that write: a long answer, of which the next prompt leaves out the thinking,
// and hardly a word from the tool that has put it into a file. Numbers of tokens are
// medians but for the first.
const (
	writerBegin   = 32_000 // tools and system text
	writerTask    = 800
	writerAnswer  = 2_000
	writerResult  = 100
	writerTurns   = 20
	writerThinks  = 0.4 // of an answer
	foresightFew  = 24  // agents
	foresightRate = 0.1 // that begin a second
)

// foreseeing is what it is worth to compute ahead what is known of the next prompt.
type foreseeing struct{ Runs []foresightRun }

// foresightRun is what one kind of agents made of it.
type foresightRun struct {
	Agents   string
	Requests int
	// TTFT are those of turns behind the first, in milliseconds, with and without it.
	TTFT, TTFTWithout       float64
	TTFTTail, TTFTTailWhole float64 // the same, 99 of 100
	// Ahead are the tokens that were computed ahead and not cached, Used those of them
	// that were cached when the next turn came.
	Ahead, Used int
	// Late is how many were not done by then, and Elsewhere how many went to another
	// worker than the turn before them.
	Foreseen, Late, Elsewhere int
}

// foresight replays agents with and without it on four workers. What is computed ahead
// is a request of one token that comes as soon as its turn is answered, and never if the
// next turn comes at the same moment, which would end it. That does not wait for it.
func foresight(timing string, short bool) (any, error) {
	few := foresightFew
	if short {
		few = 6
	}
	c := agenttrace.Default()
	c.Leads, c.Rate, c.MinTurns, c.MaxTurns, c.Spawn = few, foresightRate/4, writerTurns, writerTurns, 0
	reading, err := collect(c.Requests())
	if err != nil {
		return nil, err
	}
	var f foreseeing
	for _, k := range []struct {
		name string
		w    []trace.Request
	}{{"that write", writers(few)}, {"that read", reading}} {
		run, err := foresee(k.w, timing)
		if err != nil {
			return nil, fmt.Errorf("agents %s: %w", k.name, err)
		}
		run.Agents = k.name
		f.Runs = append(f.Runs, run)
	}
	return f, nil
}

// writers are agents that write.
func writers(few int) (w []trace.Request) {
	piece := func(name string, n int) trace.Piece { return trace.Piece{Stream: trace.Named(name), Len: uint32(n)} }
	for n := range few {
		random := rand.New(rand.NewPCG(42, uint64(n)))
		tokens := func(median int) int {
			return max(1, int(math.Round(float64(median)*math.Exp(0.5*random.NormFloat64()))))
		}
		name := fmt.Sprintf("writer %d", n)
		r := trace.Request{
			Session: name, At: time.Duration(float64(n) / foresightRate * float64(time.Second)),
			Prompt: trace.Text{piece("tools and system", writerBegin), piece(name+": task", tokens(writerTask))},
		}
		for turn := range writerTurns {
			r.ID = fmt.Sprintf("%s, turn %d", name, turn)
			r.Final = turn == writerTurns-1
			answer := piece(r.ID+": answer", tokens(writerAnswer))
			r.Answer = trace.Text{answer}
			r.Thinking = int(writerThinks * float64(answer.Len))
			w = append(w, r)
			answer.From = uint32(r.Thinking)
			answer.Len -= answer.From
			prompt := append(r.Prompt[:len(r.Prompt):len(r.Prompt)], answer, piece(r.ID+": result", tokens(writerResult)))
			r.Prompt, r.After, r.Tool = prompt, []string{r.ID}, true
			r.Delay = time.Duration((2 + 8*random.Float64()) * float64(time.Second)).Round(time.Millisecond)
		}
	}
	return w
}

// ahead returns the request that computes what is known of the prompt behind r, in
// whole blocks.
func ahead(r *trace.Request, block int) trace.Request {
	known := append(r.Prompt[:len(r.Prompt):len(r.Prompt)], r.Answer[0])
	shown := &known[len(known)-1]
	shown.From += uint32(r.Thinking)
	shown.Len -= uint32(r.Thinking)
	for over := uint32(known.Len() % block); over > 0; {
		last := &known[len(known)-1]
		cut := min(over, last.Len)
		if last.Len -= cut; last.Len == 0 {
			known = known[:len(known)-1]
		}
		over -= cut
	}
	return trace.Request{
		ID: r.ID + ", ahead", Session: r.Session, Parent: r.Parent, After: []string{r.ID}, Prompt: known,
		Answer: trace.Text{{Stream: trace.Named(r.ID + ": nothing"), Len: 1}},
	}
}

// bound keeps the turns of a session at the worker of the first one, and what is computed
// ahead of them.
var bound = mode{"kv+sessions", func(*sim.Clock) (router.Config, error) {
	return router.Config{SessionTTL: 5 * time.Minute}, nil
}}

// foresee replays one workload with and without.
func foresee(w []trace.Request, timing string) (run foresightRun, err error) {
	f := newFleet(4, timing)
	next := map[string]string{} // by the turn before, if there is time between them
	for i := range w {
		for _, id := range w[i].After {
			if w[i].Delay > 0 {
				next[id] = w[i].ID
			}
		}
	}
	var with []trace.Request
	for i := range w {
		if with = append(with, w[i]); next[w[i].ID] != "" {
			with = append(with, ahead(&w[i], f.engine.BlockSize))
		}
	}
	_, without, err := f.replay(bound, w)
	if err != nil {
		return run, err
	}
	_, records, err := f.replay(bound, with)
	if err != nil {
		return run, err
	}
	run.Requests = len(w)
	by := map[string]*sim.Record{}
	for _, r := range records {
		by[r.ID] = r
	}
	later := map[string]bool{}
	for i := range w {
		if later[w[i].ID] = len(w[i].After) > 0; next[w[i].ID] == "" {
			continue
		}
		turn, a, then := by[w[i].ID], by[w[i].ID+", ahead"], by[next[w[i].ID]]
		run.Foreseen++
		if a.Worker != turn.Worker {
			run.Elsewhere++
		}
		if a.Ended > then.Arrived {
			run.Late++
		}
		run.Ahead += a.Input - a.Cached
		if a.Worker == then.Worker {
			run.Used += max(0, min(a.Input, then.Cached)-a.Cached)
		}
	}
	wanted := func(id string) bool { return later[id] }
	ttft, _ := agents.Waits(outcomes(records), wanted)
	plainly, _ := agents.Waits(outcomes(without), wanted)
	run.TTFT, run.TTFTWithout = stats.Median(ttft), stats.Median(plainly)
	run.TTFTTail, run.TTFTTailWhole = ttft[len(ttft)*99/100], plainly[len(plainly)*99/100]
	return run, nil
}
