package main

import (
	"runtime"
	"sync"
	"time"

	"github.com/dynago/dynago/bench/workload"
)

// submitted is what it took to hand a history over, by the method of a figure
// that was published for another index. It is not what an index can do.
type submitted struct {
	Submitted float64 `json:"submitted"` // seconds until all events were in a queue and all queries answered
	Drained   float64 `json:"drained"`   // seconds until the queue was empty
	Blocks    int     `json:"blocks"`    // block operations by that method: removals are not counted
	Failed    int     `json:"failed"`
}

// submit lets every worker of the history be a goroutine that puts its events
// into a queue without waiting, and asks its queries itself. One more applies
// the events.
func submit(c contestant, h *workload.Corpus) (submitted, error) {
	runtime.GOMAXPROCS(2)
	n := workload.CountsOf(h.Ops)
	s := submitted{Blocks: n.Queried + n.Stored}
	of := make([][]uint32, h.Workers) // operations by worker
	events := 0
	for i, op := range h.Ops {
		of[op.Worker] = append(of[op.Worker], uint32(i))
		if op.Kind != workload.Query {
			events++
		}
	}
	x := c.new()
	queue := make(chan uint32, events)
	drained := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(drained)
		for i := range queue {
			op := h.Ops[i]
			if x.Apply(op.Target(), h.Event(op)) != nil {
				s.Failed++
			}
		}
	}()
	var workers sync.WaitGroup
	for _, ops := range of {
		match := x.matcher()
		workers.Go(func() {
			for _, i := range ops {
				op := h.Ops[i]
				if op.Kind == workload.Query {
					match(h.Prompt(op))
				} else {
					queue <- i
				}
			}
		})
	}
	workers.Wait()
	s.Submitted = time.Since(began).Seconds()
	close(queue)
	<-drained
	s.Drained = time.Since(began).Seconds()
	return s, nil
}
