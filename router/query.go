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
	Hashes    *Hashes     // stands for Tokens where only those names are known; else nil
	Namespace kv.Namespace
	Expected  uint32 // forecast of output tokens; 0: none
	Choices   int    // answers wanted; 0 is 1

	// Priority is how many seconds earlier the request may count to have come
	// where it has to wait; below 0 is 0. A higher StrictPriority always goes
	// first. Background work, for which no client waits, never waits itself.
	Priority       float64
	StrictPriority uint32
	Background     bool
	// TTFT and ITL are the latencies that the client hopes for; 0: it does not say.
	// They are for policies: costs know nothing of them.
	TTFT, ITL time.Duration
	// Settled says that the request goes to PinWorker whatever is decided here: it
	// is booked without waiting for room.
	Settled bool
	// Advisory says that the choice is asked for and not made: nothing is booked for
	// it. Whoever asked may book it later, by the same ID.
	Advisory bool
	// Uncached, if not nil, is how many tokens of the prompt are left to compute, by
	// who knows it better than the index.
	Uncached *int
	Class    string // policy class or family asked for; "": the default one
	Session  Session

	// Recompute says that some engines compute the whole prompt, whatever they
	// have cached of it, because its log probabilities are wanted.
	Recompute bool

	PinWorker uint64   // the only worker that will do; 0: none in particular
	PinRank   *uint32  // its rank, needed only if it has several; without a worker: of any
	Exclude   []uint64 // workers that have failed this request
	Allow     []uint64 // the only workers that will do; nil: all
	Require   []string // taints that a worker must have
	// Prefer weighs taints that a worker had better have; a negative weight, that
	// it had better not have.
	Prefer    map[string]float64
	Overrides *Overrides

	// follows says that the pin is not the client's but that of its session, which
	// may go elsewhere.
	follows bool
	// style, if not empty, is how the blocks of a decode leg come: whoever takes them
	// in another way cannot have them.
	style string
	// near, if not empty, is the one taint in Require that no client has asked for: what
	// a decode worker must have in common with the prefill worker.
	near string
	// came is when the request came, if it has waited for others of its session.
	came time.Time
}

// Session is what a router may know of the conversation that a request belongs
// to.
type Session struct {
	ID     string // "": none
	Parent string // that has opened this one; "": none
	Tenant string // whose it is, for a fair part of the table; not part of its key
	Final  bool   // this is its last request
	Input  Input  // what the newest turn brings
	// Control is what the client says of the session's binding; nil: nothing, and the
	// id is one by which it happens to be known.
	Control *SessionControl
}

// SessionControl is what a client wants done about the binding of its session.
type SessionControl struct {
	Action SessionAction
	SessionTerms
}

// SessionTerms are how a session is kept. Of a client that sets its session up they
// are what it asks for.
type SessionTerms struct {
	Timeout   time.Duration // while it is idle; 0 is [DefaultSessionTimeout]
	Ephemeral bool          // its blocks are worth nothing behind its end
}

// SessionAction is what a turn does to its session.
type SessionAction uint8

// The actions. Whoever opens a session also wants the engine to keep it.
const (
	ContinueSession SessionAction = iota
	BindSession
	OpenSession
	CloseSession // behind this turn
)

// DefaultSessionTimeout is how long a session is idle before its binding ends, where
// its client does not say.
const DefaultSessionTimeout = 300 * time.Second

// Input says who has spoken last.
type Input uint8

// The inputs.
const (
	OtherInput Input = iota
	UserInput
	ToolInput
)

// Hashes names the blocks of a prompt as their worker's pool does.
type Hashes struct {
	// Local is nil where only the sequence is known: then nothing is found cached.
	Local  []kv.LocalHash
	Seq    []kv.SeqHash // of the same blocks
	Tokens int          // of the whole prompt
}

func (q *Query) pinned() bool { return q.PinWorker != 0 }

// Length returns how many tokens the prompt has.
func (q *Query) Length() int {
	if q.Hashes != nil {
		return q.Hashes.Tokens
	}
	return len(q.Tokens)
}

// check returns an error of kind invalid_argument for a query that means
// nothing.
func (q *Query) check() error {
	h := q.Hashes
	switch {
	case h == nil:
		return nil
	case len(q.Tokens) > 0:
		return engine.Errorf(engine.InvalidArgument, "a prompt is given by its tokens or by its hashes, not by both")
	case h.Local != nil && len(h.Local) != len(h.Seq):
		return engine.Errorf(engine.InvalidArgument, "got %d block hashes and %d sequence hashes, want as many of one as of the other", len(h.Local), len(h.Seq))
	case h.Tokens < len(h.Seq):
		return engine.Errorf(engine.InvalidArgument, "a prompt of %d tokens cannot have %d blocks", h.Tokens, len(h.Seq))
	}
	return nil
}

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
	TotalBlocks   int    // that the target can hold; 0: unknown
	OnCPU         bool   // it runs on processors alone

	// DecodeBlocks is how many would be in use with this request.
	DecodeBlocks int
	// Preference multiplies the cost: below 1 for workers with more of the
	// taints that the request prefers than it dislikes, 1 if there are none.
	Preference float64
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

// Learner is a [Policy] that learns from how requests have gone.
type Learner interface {
	Policy
	// Learn is told the outcome of each request once, also of one that was pinned, by
	// its client or its session, about which the policy was not asked. It is called
	// without any lock held, possibly for several at once.
	Learn(o Outcome)
}

// Outcome is how a request has gone where it was placed.
type Outcome struct {
	ID           string      // of the query
	Role         engine.Role // and its workers
	Target       kv.Target
	PromptTokens int
	CachedTokens int // of the prompt, as the engine says; -1: it did not say
	OutputTokens int
	Queue        time.Duration // parked before the placement
	First        time.Duration // from the placement to the first token; 0: none came
	// Transfer is how long, at most, the blocks of a prompt were on their way that another
	// worker has computed: from its end to the first token; 0: there was nothing to measure.
	Transfer time.Duration
	Total    time.Duration // from the placement to the end
	End      End
}

// End says how a request ended.
type End uint8

// The ends.
const (
	Abandoned End = iota // nobody waits for the answer any more
	Completed
	Failed // by the worker's fault
)

// Decision says what was chosen and what it rests on. The numbers are
// predictions.
type Decision struct {
	Target       kv.Target
	Model        string // primary name, also where an alias was asked for
	Overlap      int    // blocks of the prompt taken to be cached, by tier weight
	Blocks       int    // blocks of the prompt, the last one maybe incomplete
	CachedTokens int    // tokens of the prompt taken to be cached
	// What the choice was based on; see [Candidate].
	Device, Host, Disk, DecodeBlocks int

	Session SessionUse    // what its session had to do with it
	Class   string        // policy class in which it waits where all are busy; "": it never does
	Routing time.Duration // deciding
	Queue   time.Duration // parked before that
	Waiting int           // others of its kind that are parked then
	Took    Took          // what Routing is made of, if anybody observes
}

// Took tells how long the parts of a decision took.
type Took struct {
	Hashing, Matching, Shared, Scheduling time.Duration
	SharedAsked                           bool
}
