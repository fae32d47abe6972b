package main

import (
	"math/rand/v2"
	"time"

	"github.com/dynago/dynago/bench/stats"
	"github.com/dynago/dynago/bench/workload"
	"github.com/dynago/dynago/kv"
)

// agentic is what a history of agents took.
type agentic struct {
	mixture
	Late answers `json:"late"` // queries of long conversations, asked at the end
}

// lateBlocks is the length of the prompts of long conversations.
const lateBlocks = 430

// agents replays a history of agents and then asks for the prompts of their last
// turns, in an order of its own.
func agents(c contestant, h *workload.Corpus) (agentic, error) {
	oneThread()
	all := workload.CountsOf(h.Ops)
	a := agentic{mixture: mixture{Blocks: all.All(), Ops: len(h.Ops), Held: all.Held()}}
	x := c.new()
	match := x.matcher()
	capacity := h.Capacity()
	began := now()
	reserve(x, h, capacity)
	a.replay(x, match, h, h.Ops)
	a.spent = now().since(began)

	var late []workload.Op
	for _, op := range h.Ops {
		if op.Kind == workload.Query && op.N >= lateBlocks {
			late = append(late, op)
		}
	}
	rand.New(rand.NewPCG(42, 42)).Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
	a.Late = askFor(match, h, late)
	return a, a.Late.enough()
}

// askFor asks for the beginnings of prompts, which must all be held.
func askFor(match match, h *workload.Corpus, late []workload.Op) answers {
	var a answers
	latencies := make([]time.Duration, 0, len(late))
	prompt := make([]kv.LocalHash, lateBlocks)
	for len(late) > 0 {
		batch := late[:min(batchSize, len(late))]
		late = late[len(batch):]
		before := usage(ofThread).Nivcsw
		start := len(latencies)
		for _, op := range batch {
			copy(prompt, h.Prompt(op))
			began := time.Now()
			found := match(prompt)
			latencies = append(latencies, time.Since(began))
			if found < lateBlocks {
				a.Wrong++
			}
		}
		if usage(ofThread).Nivcsw != before {
			a.Disturbed += float64(len(batch))
			latencies = latencies[:start]
		}
	}
	a.Latency = stats.LatencyOf(latencies)
	a.Disturbed /= float64(max(1, len(latencies)+int(a.Disturbed)))
	return a
}
