package mock

import (
	"slices"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// Core is the scheduler of one rank: requests, blocks and passes. It has no
// goroutine, clock, lock or I/O. Time is what the caller says, counted from any
// start; the same calls give the same answers.
//
// A pass first continues what runs, in the order of admission, preempting
// others where blocks are short, then admits from the queue what fits. It is
// computed as a whole: Step returns when it ends and what it gives then.
type Core struct {
	args    Args
	timing  timing
	pool    *kvcache.Pool  // the device
	local   []kv.LocalHash // content of its published blocks, by slot; nil if there is more below
	below   *below         // or nil
	bytes   *Bytes         // or nil
	asked   bool           // somebody has asked something of the cache
	stats   CacheStats     // as far as it is counted here
	counted time.Duration  // how far pins are
	start   time.Duration  // of the last pass
	end     time.Duration
	// reports says that events are to come with what they stored.
	reports  bool
	planned  bool    // passes are computed by somebody else
	perToken float64 // nanoseconds that they take of late

	slots   []*request // by the low half of an ID
	free    []uint32
	waiting queue
	running []*request // in order of admission

	arrivals uint64
	kept     int // requests that have ended, and keep their blocks
	keptOpen int // of these blocks, not full

	hits, queries, preemptions int64

	// The pass that is being computed.
	most   int // tokens that it may compute
	budget int // of them not yet given away
	result Result
	tokens []uint32
	spans  spans
}

// ID names a request of one [Core]; it is never used twice.
type ID uint64

// Generator gives the tokens of one answer, one after the other. It is asked
// once for each token, whatever happens to the request in between.
type Generator interface {
	Next() uint32
}

// Request is one generation as the core sees it. Its slices are read until it
// ends and never written.
type Request struct {
	Prompt    []uint32
	Namespace kv.Namespace
	Generator Generator

	MaxTokens int // at least 1
	MinTokens int // so many come before anything but MaxTokens ends the request
	Stop      []uint32
	Hidden    []uint32 // as Stop, but left out of what is shown
	Priority  int32    // higher is sooner, and is preempted later
	// Received is how many of the prompt's first tokens another engine has
	// computed, whose blocks come with the request. They take room here, and no
	// time; all of them but the last token count. Once preempted they are lost.
	Received int

	// Keep leaves the blocks of a request that has ended in use, until it is
	// cancelled: another engine is to come for them.
	Keep bool

	// Fresh says that the whole prompt is to be computed, whatever is cached of it.
	Fresh bool

	// Pace, if not empty, holds tokens back until they are due. Its parts are
	// ordered, and the first one begins at 0.
	Pace []Pace
	// Cut breaks the request off, or is nil.
	Cut *Cut

	Owner any // the caller's; comes back with every output

	// Session is the one that the request is a turn of, or 0, and Directives what it
	// asks of the cache, or nil. Their namespace is not looked at.
	Session    kvcache.SessionID
	Directives *kv.Directives
}

// Pace says when tokens are due, from one position of the output on.
type Pace struct {
	From  int           // position of the first token it holds for
	First time.Duration // before that one; after the submission or the token before
	Each  time.Duration // before every further delta
	Burst int           // tokens per delta; 0 = 1
}

// Cut breaks a request off once After tokens have been given: it ends, or, with
// Hold, stays as it is until it is cancelled.
type Cut struct {
	After int
	Hold  bool
}

// Output is what one pass gives to one request.
type Output struct {
	ID        ID
	Owner     any
	Tokens    []uint32 // without hidden ones; valid until the next Step
	Generated int      // so far, hidden ones included
	Cached    int      // tokens of the prompt that were found when it was first admitted
	Finish    engine.Finish
	Matched   uint32 // the id that ended it, if Finish is FinishStop
	Cut       bool   // broken off; no Finish
	// Pinned is how many blocks of the prompt its pins hold from now on, if it has
	// ended, and ToPin how many they are about.
	Pinned, ToPin int
	// Err says why the request could not go on; there are no tokens, and no Finish.
	Err error
}

// Result is one pass. It is valid until the next Step.
type Result struct {
	Idle bool // nothing can run; no other field but Events and Stores means anything
	// End is when the pass is over and its outputs are there.
	End       time.Duration
	Outputs   []Output
	Events    []kv.Event // in order; they happen when the pass begins
	Stores    []Store    // what each of the Events stored; empty unless [Core.Report] was called
	Preempted []ID       // in order
	// Admitted are the requests that went from waiting to running when the pass
	// began, in order; one that was preempted comes again.
	Admitted []Admission
	Spans    []Span // what is to be computed; only [Core.Plan] says it
	Work     Work
	Snapshot Snapshot
}

// Admission is a request that begins to run.
type Admission struct {
	ID     ID
	Owner  any
	Cached int // tokens of it that were found
	// From says on which tiers these were found: what was not on the device has been
	// loaded.
	From [kv.TierShared + 1]int
}

type request struct {
	Request
	id    ID
	local []kv.LocalHash // of the blocks that are complete
	seq   []kv.SeqHash
	out   []uint32 // generated so far

	blocks   []kvcache.Ref
	sealed   int // leading blocks that are published
	computed int // tokens
	used     int // tokens scheduled in this pass

	cached    int // -1 before the first admission
	preempted int // how often
	recompute bool
	pace      int // part of Pace that holds for the next token
	due       time.Duration
	held      bool

	wishes   *wishes        // or nil
	arrived  uint64         // in what order
	load     kvcache.LoadID // while it is parked
	parkedAt time.Duration
	loaded   bool      // as far as could be
	base     int       // number of the first block that was loaded
	from     []kv.Tier // where it and those after it came from

	prev, next *request // in the waiting queue
	waiting    bool
}

func (r *request) length() int { return len(r.Prompt) + len(r.out) }

// NewCore returns an idle core. The arguments must be valid.
func NewCore(a Args) *Core { return newCore(a, nil, nil, nil) }

// newCore returns a core that has some of its tiers from elsewhere, or nil, and
// blocks that have bytes, or nil.
func newCore(a Args, s *Shared, disk *kvcache.Tier, bytes *Bytes) *Core {
	c := &Core{args: a, bytes: bytes, timing: a.timing(), pool: kvcache.NewPool(a.pool(kv.TierDevice))}
	if a.tiered() {
		c.below = newBelow(&c.args, c.pool, s, disk, bytes)
	} else {
		c.local = make([]kv.LocalHash, a.NumGPUBlocks)
	}
	return c
}

// Submit puts a request into the queue. One that could never run is refused
// with an error of kind invalid_argument.
func (c *Core) Submit(now time.Duration, r Request) (ID, error) {
	if err := c.admissible(&r); err != nil {
		return 0, err
	}
	q := c.slot()
	q.Request = r
	q.cached = -1
	if c.args.EnablePrefixCaching {
		q.local = kv.AppendLocalHashes(q.local, r.Prompt, c.args.BlockSize, r.Namespace.Seed())
		q.seq = kv.AppendSeqHashes(q.seq, q.local)
	}
	if len(r.Pace) > 0 {
		q.due = now + r.Pace[0].First
	}
	c.arrivals++
	q.arrived = c.arrivals
	c.heed(now, q)
	c.waiting.pushBack(q)
	return q.id, nil
}

func (c *Core) admissible(r *Request) error {
	switch n, most := len(r.Prompt)+r.MaxTokens, c.args.Capacity(); {
	case len(r.Prompt) == 0:
		return engine.Errorf(engine.InvalidArgument, "the prompt is empty")
	case r.MaxTokens < 1:
		return engine.Errorf(engine.InvalidArgument, "max_tokens is %d, want at least 1", r.MaxTokens)
	case n > most:
		err := engine.Errorf(engine.InvalidArgument, "%d prompt tokens and up to %d of output exceed the %d that this engine can hold", len(r.Prompt), r.MaxTokens, most)
		err.Code = "context_length_exceeded"
		return err
	}
	return nil
}

// slot returns an empty request with a new id.
func (c *Core) slot() *request {
	if n := len(c.free); n > 0 {
		i := c.free[n-1]
		c.free = c.free[:n-1]
		return c.slots[i]
	}
	r := &request{id: ID(len(c.slots))}
	c.slots = append(c.slots, r)
	return r
}

// SetSpeed makes passes from the next one on take 1/ratio of what the timing
// model says; 0 is no time at all.
func (c *Core) SetSpeed(ratio float64) { c.args.SpeedupRatio = ratio }

// Cancel removes a request, wherever it is, and frees its blocks. It is not an
// error if the request has ended.
func (c *Core) Cancel(id ID) {
	i := int(id & 0xffffffff)
	if i >= len(c.slots) || c.slots[i].id != id || c.slots[i].Generator == nil {
		return
	}
	r := c.slots[i]
	if k := slices.Index(c.running, r); r.waiting {
		c.waiting.remove(r)
	} else if r.load != 0 {
		c.unpark(r)
	} else if k >= 0 {
		c.running = slices.Delete(c.running, k, k+1)
	} else {
		c.kept--
		c.keptOpen -= len(r.blocks) - r.sealed
	}
	c.retire(r)
}

// retire gives back everything of a request that is in no queue.
func (c *Core) retire(r *request) {
	c.leaveTurn(r)
	c.giveBack(r)
	*r = request{
		id:    r.id + 1<<32,
		local: r.local[:0], seq: r.seq[:0], out: r.out[:0], blocks: r.blocks[:0], from: r.from[:0],
	}
	c.free = append(c.free, uint32(r.id))
}

// NextWake returns when there is something to do next: a request that holds tokens
// back has one due, something ends that is on its way between tiers, or a pin ends
// beside which there may be no room. It is false if nothing will happen by itself.
func (c *Core) NextWake() (at time.Duration, ok bool) {
	if b := c.below; b != nil {
		if at, ok = b.carrier.Next(); len(b.written) > 0 && (!ok || c.end < at) {
			at, ok = c.end, true
		}
	}
	for _, r := range c.running {
		if r.paced() && !r.held && (!ok || r.due < at) {
			at, ok = r.due, true
		}
	}
	if pinned, _ := c.pool.PinBudget(); pinned > 0 && c.waits() {
		if due, will := c.pool.Due(); will && (!ok || due < at) {
			at, ok = due, true
		}
	}
	return at, ok
}

// waits says whether there are requests that a pass could do something for, once
// there is room.
func (c *Core) waits() bool { return c.waiting.head != nil || len(c.running) > 0 }

// Load returns what the core has to do; its rank is left to the caller.
func (c *Core) Load() engine.RankLoad {
	s := c.pool.Stats()
	parked, tokens := 0, 0
	if c.below != nil {
		for _, r := range c.below.loads {
			parked, tokens = parked+1, tokens+r.length()
		}
	}
	return engine.RankLoad{
		Running:       int64(len(c.running)),
		Waiting:       int64(c.waiting.fresh.N+c.waiting.preempted.N) + int64(parked),
		WaitingTokens: int64(c.waiting.fresh.Sum+c.waiting.preempted.Sum) + int64(tokens),
		UsedBlocks:    int64(s.Used()),
		TotalBlocks:   int64(s.Total),
		PrefixHits:    c.hits,
		PrefixQueries: c.queries,
		Preemptions:   c.preemptions,
	}
}

// Stored returns events that store everything the cache holds, parents before
// children: on all tiers, as the events told so far have it.
func (c *Core) Stored() []kv.Event {
	if c.below != nil {
		return c.below.events.Snapshot()
	}
	var events []kv.Event
	for run := range c.pool.Chains() {
		e := kv.Event{Kind: kv.Stored, Blocks: make([]kv.Block, len(run))}
		if parent := c.pool.Parent(run[0]); parent != kvcache.Root {
			e.Parent, e.HasParent = kv.EngineHash(c.pool.Hash(parent)), true
		}
		for i, ref := range run {
			e.Blocks[i] = kv.Block{Engine: kv.EngineHash(c.pool.Hash(ref)), Local: c.local[ref]}
		}
		events = append(events, e)
	}
	return events
}
