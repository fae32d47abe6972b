// Package agents is what figures ask of a fleet on behalf of agents, and how they judge
// what came of it: requests that are in a hurry among others that are not, workflows of
// several calls, and agents that let their prompts stay cached while their tools run.
//
// The one idea: neither the requests nor the judging knows how time passes. The same
// requests go through the simulator in virtual time and to a server over HTTP, each
// gives one [Outcome] for each of them, and these are compared.
package agents

import (
	"iter"
	"slices"
	"time"

	"github.com/dynago/dynago/sim/trace"
)

// Outcome is what came of one request. Times count from the start, and are those of
// the workload: a fleet that is run faster than life has been slowed down again.
type Outcome struct {
	ID, Session string
	Input       int // tokens
	// Cached tokens of the prompt were when it began to be computed, and Pinned when it
	// was answered, from the first one on.
	Cached, Pinned int

	Arrived time.Duration
	// Admitted is when it began to be computed. Who sees it from outside alone takes it
	// for one that began at once, or waited until its first token, as the figure says.
	Admitted     time.Duration
	First, Ended time.Duration // token; of the answer
}

// Size is how much is asked of how many workers.
type Size struct {
	Workers int // behind a queue
	Span    time.Duration
	Rate    float64       // requests a second that they sustain
	Rounds  int           // of workflows in each slot
	Blocks  int           // of a worker's cache, for these,
	Pause   time.Duration // before each of their calls
	Leads   int
	Pinned  float64 // part of the leads
}

// Pause is what harnesses take between the calls of workflows, on average.
const Pause = 10 * time.Millisecond

// Live is the size of figures that are taken in real time.
func Live(short bool) Size {
	if short {
		return Size{Workers: 2, Span: 20 * time.Second, Rate: 14.5, Rounds: 1, Blocks: 200, Pause: Pause, Leads: 6, Pinned: 1.0 / 6}
	}
	return Size{Workers: 2, Span: 90 * time.Second, Rate: 14.5, Rounds: 4, Blocks: 200, Pause: Pause, Leads: 24, Pinned: 1.0 / 20}
}

// Waits returns the times to the first token of the requests that are wanted, in
// milliseconds, sorted, and how long one of them was kept out of a batch at most, in
// seconds.
func Waits(all []Outcome, wanted func(id string) bool) (ttft []float64, longest float64) {
	for i := range all {
		o := &all[i]
		if wanted(o.ID) {
			ttft = append(ttft, (o.First-o.Arrived).Seconds()*1000)
			longest = max(longest, (o.Admitted - o.Arrived).Seconds())
		}
	}
	slices.Sort(ttft)
	return ttft, longest
}

// collect returns all of a sequence, or its error.
func collect(requests iter.Seq2[trace.Request, error]) ([]trace.Request, error) {
	var all []trace.Request
	for r, err := range requests {
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// median returns the middle of sorted values, 0 if there are none.
func median(sorted []float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}
