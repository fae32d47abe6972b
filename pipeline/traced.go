package pipeline

import (
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
)

// Traced is what a trace tells of a request beside its [Notes]. It may be read once
// the loop over the answer has ended.
type Traced struct {
	// Prompt are the tokens that the request's model is shown, which must not be
	// changed, and BlockSize how many of them are a block of its workers' caches. They
	// are nil and 0 where that is not known here.
	Prompt    []uint32
	BlockSize int
	// Courses are those of the request's choices; none, if it did not get so far.
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
		t.Courses = make([]Course, r.Chat.Sampling.Choices())
	}
}

// course returns where the course of a choice is noted, or nil if nobody asks.
func (r *Request) course(index int) *Course {
	if r.Traced == nil {
		return nil
	}
	return &r.Traced.Courses[index]
}

// Timing tells how long the parts of an answer of so many tokens took, whose request
// came when arrived says. What lacks one of its ends is nil.
func (c *Course) Timing(arrived time.Time, tokens int, n *Notes) *nvext.Timing {
	t := &nvext.Timing{
		PrefillWait: between(arrived, c.Sent), Prefill: between(c.Sent, c.First), TTFT: between(arrived, c.First),
		Total: between(arrived, c.Last), KVTransfer: between(c.Computed, c.First),
	}
	if !arrived.IsZero() {
		t.RequestReceived = new(arrived.UnixMilli())
	}
	if all := between(c.First, c.Last); all != nil && tokens > 1 {
		t.ITL = new(*all / float64(tokens-1))
		t.AverageITL = t.ITL
	}
	if !c.Sent.IsZero() { // it was placed
		t.Queue, t.Routing = milliseconds(n.Queue), milliseconds(n.Routing)
		t.QueueDepth = new(n.Waiting)
		t.RouterQueueDepth = t.QueueDepth
		if n.Blocks > 0 {
			t.KVHitRate = new(min(1, float64(n.Overlap)/float64(n.Blocks)))
		}
	}
	return t
}
