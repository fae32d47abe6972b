package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dynago/dynago/sim/trace"
)

// intake knows the requests that have not come yet, and what they wait for.
type intake struct {
	jobs  []*job
	left  int           // that have not ended
	moved time.Duration // when one came or ended last

	// What has come and has no room, where room is limited. What follows an
	// earlier request goes first: a conversation that has begun goes on before
	// another one begins.
	limit         int // 0: none
	running       int
	goesOn, fresh []*job
}

// take takes in a whole workload, since what a request waits for may stand
// behind it.
func (in *intake) take(workload []trace.Request) error {
	if len(workload) == 0 {
		return errors.New("the workload is empty")
	}
	if err := trace.Check(workload); err != nil {
		return err
	}
	byID := make(map[string]*job, len(workload))
	for i, r := range workload {
		switch prompt, answer := r.Prompt.Len(), r.Answer.Len(); {
		case prompt == 0 || answer == 0:
			return fmt.Errorf("request %q has %d tokens of prompt and %d of output, want at least 1 of each", r.ID, prompt, answer)
		case r.Delay < 0:
			return fmt.Errorf("request %q comes %v before what it waits for", r.ID, -r.Delay)
		}
		j := &job{Request: r, n: i}
		in.jobs = append(in.jobs, j)
		byID[r.ID] = j
	}
	for _, j := range in.jobs {
		for i, id := range j.After {
			if !slices.Contains(j.After[:i], id) {
				j.waits++
				byID[id].followers = append(byID[id].followers, j)
			}
		}
	}
	in.left = len(in.jobs)
	return nil
}

// arrive notes that a request wants to come.
func (in *intake) arrive(j *job) {
	if len(j.After) > 0 {
		in.goesOn = append(in.goesOn, j)
	} else {
		in.fresh = append(in.fresh, j)
	}
}

// pop returns the next request for which there is room, or nil.
func (in *intake) pop() *job {
	queue := &in.goesOn
	if len(in.goesOn) == 0 {
		queue = &in.fresh
	}
	if len(*queue) == 0 || in.limit > 0 && in.running == in.limit {
		return nil
	}
	j := (*queue)[0]
	(*queue)[0] = nil
	if *queue = (*queue)[1:]; len(*queue) == 0 {
		*queue = nil
	}
	in.running++
	return j
}

// over notes that a request has ended.
func (in *intake) over(now time.Duration) {
	in.running--
	in.left--
	in.moved = now
}
