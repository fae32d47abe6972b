package router

import (
	"context"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// Query is what a router must know of a request.
type Query struct {
	ID        string
	Model     string      // primary name or alias
	Role      engine.Role // of the workers asked for
	Tokens    []uint32    // whole prompt
	Namespace kv.Namespace
	Expected  uint32 // forecast of output tokens; 0: none
	Choices   int    // answers wanted; 0 is 1
	// Recompute says that some engines compute the whole prompt, whatever they
	// have cached of it, because its log probabilities are wanted.
	Recompute bool

	PinWorker uint64   // the only worker that will do; 0: none in particular
	PinRank   *uint32  // and its rank; needed only if it has several
	Exclude   []uint64 // workers that have failed this request
	Require   []string // taints that a worker must have
	Overrides *Overrides
}

func (q *Query) pinned() bool { return q.PinWorker != 0 }

// Candidate is one rank that may serve a request.
type Candidate struct {
	Target    kv.Target
	Worker    *fleet.Worker
	BlockSize int // tokens

	// Blocks of the prompt that are cached here: leading ones on the device,
	// those that continue them on the host, on disk or in a shared store behind
	// the worker, and in a cache beside the workers.
	Device, Host, Disk, Shared int

	// What is booked here, without this request.
	PrefillTokens int // prompts not yet computed
	ActiveBlocks  int // in use
	Requests      int
	LastPick      uint64 // number of the last decision for this target; 0: none

	// DecodeBlocks is how many would be in use with this request.
	DecodeBlocks int
	// Cost is what the request would cost here, in blocks of BlockSize.
	Cost float64
}

// Policy picks a candidate.
type Policy interface {
	// Pick returns the index of its choice. There is at least one candidate, and
	// they come in the order of their targets; the slice must not be kept. The
	// error, if any, becomes the request's.
	Pick(ctx context.Context, q *Query, c []Candidate) (int, error)
}

// Decision says what was chosen and what it rests on. The numbers are
// predictions.
type Decision struct {
	Target       kv.Target
	Model        string // primary name, also where an alias was asked for
	Overlap      int    // blocks of the prompt taken to be cached, by tier weight
	Blocks       int    // blocks of the prompt, the last one maybe incomplete
	CachedTokens int    // tokens of the prompt taken to be cached
	Routing      time.Duration
	Queue        time.Duration // parked before; always 0 while there is no queue
}
