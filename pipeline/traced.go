package pipeline

import (
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/router"
)

// Traced is what a trace tells of a request beside its [Notes]. It may be read once
// the loop over the answer has ended.
type Traced struct {
	// Prompt are the tokens that the request's model is shown, which must not be
	// changed, and BlockSize how many of them are a block of its workers' caches. They
	// are nil and 0 where that is not known here.
	Prompt    []uint32
	BlockSize int
	// Blocks names the prompt's complete blocks outside all namespaces, where the router
	// has found that out. They must not be changed.
	Blocks []kv.SeqHash
	// Courses are those of the request's choices; none, if it did not get so far. Room
	// that there is for them is used.
	Courses []Course
}

// Course is when what became of one choice of a request. A time is zero where it did
// not come to that.
type Course struct {
	Sent     time.Time // to the first worker that has answered, or to the last one
	Computed time.Time // the prompt, for another worker
	First    time.Time // token
	Last     time.Time // item
	// Prefill has computed the prompt and Decode has answered, if Placed.
	Placed          bool
	Prefill, Decode kv.Target
	Finish          engine.Finish // what the engine has called its end
	Tokens          int           // that have come
}

// traces begins the courses of a request's choices.
func (r *Request) traces(prompt []uint32, blockSize uint32) {
	if t := r.Traced; t != nil {
		t.Prompt, t.BlockSize = prompt, int(blockSize)
		t.Courses = append(t.Courses[:0], make([]Course, r.Chat.Sampling.Choices())...)
	}
}

// placed notes where an attempt goes, and what the router knows of the prompt.
func (r *Request) placed(plan *router.Plan, answer *router.Booking) {
	r.Notes.placed(plan, answer)
	if t := r.Traced; t != nil {
		if blocks, size := begins(plan, answer).Blocks(); size == t.BlockSize {
			t.Blocks = blocks
		}
	}
}

// course returns where the course of a choice is noted, or nil if nobody asks.
func (r *Request) course(index int) *Course {
	if r.Traced == nil {
		return nil
	}
	return &r.Traced.Courses[index]
}

// Numbers are what a timing points to, in one piece of memory.
type Numbers struct {
	received int64
	depth    int
	ms       [9]float64
}

// Timing tells how long the parts of an answer of so many tokens took, whose request
// came when arrived says. What lacks one of its ends is nil. The numbers are put into
// room, which must not be used for another one.
func (c *Course) Timing(arrived time.Time, tokens int, n *Notes, room *Numbers) (t nvext.Timing) {
	free := room.ms[:0]
	number := func(x float64) *float64 {
		free = append(free, x)
		return &free[len(free)-1]
	}
	span := func(from, to time.Time) *float64 {
		if from.IsZero() || to.IsZero() || to.Before(from) {
			return nil
		}
		return number(inMilliseconds(to.Sub(from)))
	}
	t.PrefillWait, t.Prefill, t.TTFT = span(arrived, c.Sent), span(c.Sent, c.First), span(arrived, c.First)
	t.Total, t.KVTransfer = span(arrived, c.Last), span(c.Computed, c.First)
	if !arrived.IsZero() {
		room.received = arrived.UnixMilli()
		t.RequestReceived = &room.received
	}
	if tokens > 1 && !c.First.IsZero() && !c.Last.Before(c.First) {
		t.ITL = number(inMilliseconds(c.Last.Sub(c.First)) / float64(tokens-1))
		t.AverageITL = t.ITL
	}
	if !c.Sent.IsZero() { // it was placed
		t.Queue, t.Routing = number(inMilliseconds(n.Queue)), number(inMilliseconds(n.Routing))
		room.depth = n.Waiting
		t.QueueDepth, t.RouterQueueDepth = &room.depth, &room.depth
		if n.Blocks > 0 {
			t.KVHitRate = number(min(1, float64(n.Overlap)/float64(n.Blocks)))
		}
	}
	return t
}

// inMilliseconds is exact to the microsecond.
func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
