package main

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/bench/stats"
	"github.com/dynago/dynago/bench/workload"
)

// paired is what a writer and a reader beside each other took.
type paired struct {
	Blocks  int           `json:"blocks"`  // block operations of both
	Wall    float64       `json:"wall"`    // seconds until both were finished
	Writer  float64       `json:"writer"`  // processor seconds of the thread that applied events
	Reader  float64       `json:"reader"`  // seconds that the other one spent in queries
	Lag     float64       `json:"lag"`     // seconds from the last event to the last answer
	Latency stats.Latency `json:"latency"` // of queries, the clock's own time included
	Clock   float64       `json:"clock"`   // microseconds that reading the clock takes
	Failed  int           `json:"failed"`
}

// pair replays a history on two threads. One applies the events, as fast as it
// can; the other follows it and answers each query once all events before it
// have been applied, so that both do as much as the history has of each.
func pair(c contestant, h *workload.Corpus) (paired, error) {
	if runtime.NumCPU() < 2 {
		return paired{}, errors.New("two threads need two cores")
	}
	runtime.GOMAXPROCS(2)
	p := paired{Blocks: workload.CountsOf(h.Ops).All(), Clock: clockCost()}
	queries := 0
	for _, op := range h.Ops {
		if op.Kind == workload.Query {
			queries++
		}
	}
	latencies := make([]time.Duration, 0, queries)
	x := c.new()
	match := x.matcher()
	runtime.GC()

	var done atomic.Int64 // operations that the writer is past
	var both sync.WaitGroup
	var wrote, answered time.Time
	began := time.Now()
	both.Go(func() {
		runtime.LockOSThread()
		before := now()
		for i, op := range h.Ops {
			if op.Kind != workload.Query && x.Apply(op.Target(), h.Event(op)) != nil {
				p.Failed++
			}
			done.Store(int64(i) + 1)
		}
		end := now()
		wrote, p.Writer = end.wall, end.since(before).Thread
	})
	both.Go(func() {
		runtime.LockOSThread()
		for i, op := range h.Ops {
			if op.Kind != workload.Query {
				continue
			}
			await(&done, int64(i))
			start := time.Now()
			match(h.Prompt(op))
			latencies = append(latencies, time.Since(start))
		}
		answered = time.Now()
	})
	both.Wait()
	p.Wall = max(wrote.Sub(began), answered.Sub(began)).Seconds()
	p.Lag = answered.Sub(wrote).Seconds()
	p.Latency = stats.LatencyOf(latencies)
	for _, l := range latencies {
		p.Reader += l.Seconds()
	}
	return p, nil
}

// await returns once done is beyond i. The writer is at work on the other core,
// and mostly there soon; if it is not, somebody else may need this one.
func await(done *atomic.Int64, i int64) {
	const patience = 1 << 15
	for tries := 0; done.Load() <= i; tries++ {
		if tries > patience {
			yield()
		}
	}
}

// clockCost returns the microseconds between two readings of the clock.
func clockCost() float64 {
	const n = 100_000
	began := time.Now()
	var last time.Time
	for range n {
		last = time.Now()
	}
	return float64(last.Sub(began)) / n / float64(time.Microsecond)
}
