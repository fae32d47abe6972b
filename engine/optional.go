package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dynago/dynago/kv"
)

// What only some engines can do is found by [As], and is there only if the card
// says so. None of these calls ever fails a user's turn.

// Sessioner is an engine that keeps the cache of a session by its name.
type Sessioner interface {
	// OpenSession makes a session, or gives one that exists a new timeout, and
	// says whether it existed.
	OpenSession(ctx context.Context, key kv.SessionKey, o SessionOptions) (known bool, err error)
	// CloseSession ends one. It is no error to close one that is not there.
	CloseSession(ctx context.Context, key kv.SessionKey) (known bool, err error)
}

// SessionOptions say how a session is kept.
type SessionOptions struct {
	Timeout   time.Duration
	Capacity  int // tokens
	Ephemeral bool
	Rank      *uint32
}

// Pinner is an engine whose cache can be told what to keep besides what requests say.
type Pinner interface {
	// Pin keeps the prefix of a prompt that is there, as far as the budget goes: an
	// exhausted one is an outcome, not an error. The later deadline of a session holds;
	// a TTL of 0 takes its pins away, and so does its end.
	Pin(ctx context.Context, q PinRequest) (PinResult, error)
	// Retain changes what blocks are worth, and returns how many of them there are.
	Retain(ctx context.Context, u RetentionUpdate) (updated int, err error)
}

// PinRequest says what is to be pinned.
type PinRequest struct {
	Namespace kv.Namespace
	TokenIDs  []uint32 // whose whole blocks are meant
	TTL       time.Duration
	Hard      bool          // where that is not allowed it counts as not hard
	Session   kv.SessionKey // whose pin it is; the zero key: nobody's
	Rank      *uint32       // nil: all ranks
}

// PinResult says how many blocks were asked for, and how many of them are pinned.
type PinResult struct {
	Requested, Pinned int
	Deadline          time.Time // zero if none is pinned
}

// Outcome returns full, partial or denied.
func (r PinResult) Outcome() string {
	switch {
	case r.Pinned >= r.Requested:
		return "full"
	case r.Pinned > 0:
		return "partial"
	}
	return "denied"
}

// RetentionUpdate gives blocks another retention.
type RetentionUpdate struct {
	Hashes   []kv.SeqHash
	Priority uint8         // 0..100, 35 is neutral
	TTL      time.Duration // 0: for ever
}

// Prefetcher is an engine that brings blocks up from lower tiers before they are
// needed. A prefetch is advice: what it does not do, the request does that needs the
// blocks.
type Prefetcher interface {
	Prefetch(ctx context.Context, q PrefetchRequest) (PrefetchState, error)
	// PrefetchState says how far a prefetch has come. One that is unknown, or not known
	// any more, is an error of kind not_found.
	PrefetchState(ctx context.Context, id string) (PrefetchState, error)
	// CancelPrefetch ends one. It is no error if it has ended.
	CancelPrefetch(ctx context.Context, id string) error
}

// PrefetchRequest says what is to be brought: the whole blocks of a prompt, or, if
// there are hashes, those.
type PrefetchRequest struct {
	Namespace kv.Namespace
	TokenIDs  []uint32
	Hashes    []kv.SeqHash  // from the root
	Target    kv.Tier       // device or host
	In        time.Duration // until they are needed; 0: soon
	Rank      *uint32       // nil: the engine's choice
}

// PrefetchState is how far a prefetch has come. Already, Scheduled and Missing are
// blocks that were there, that are brought and that are nowhere; Loaded and Failed
// those of the scheduled ones that have come, and that will not.
type PrefetchState struct {
	ID    string
	State string // running, done, cancelled or expired

	Requested, Already, Scheduled, Missing int
	Loaded, Failed                         int
}

// Disaggregator is an engine that computes prompts for others.
type Disaggregator interface {
	// Prepare is asked of the prefill engine before either leg of a request runs.
	Prepare(ctx context.Context, q HandoffQuery) (Handoff, error)
	// Release lets go of what was computed, once the decode leg has it or will not
	// come. It is no error if there is nothing to let go of.
	Release(ctx context.Context, handoff string) error
}

// HandoffQuery names the two legs of a request.
type HandoffQuery struct {
	Request      string // its id
	Rank         uint32 // of the prefill engine
	Decode       kv.Target
	DecodeLayout string // [Transfer.Layout] of the decode worker
}

// Handoff is how two legs of a request meet.
type Handoff struct {
	ID string
	// Concurrent says that both legs start at once; else the decode leg starts
	// with what the prefill leg's last delta hands over.
	Concurrent bool
	// Prefill and Decode are for [Request.Disagg] of the legs, as they are.
	Prefill, Decode json.RawMessage
}

// Controller is an engine that can be told to do something besides generating:
// what its card lists in Controls. All of it may be told twice.
type Controller interface {
	Control(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error)
}

// Controls that several engines have.
const (
	ControlReset      = "reset" // forget what is cached
	ControlSleep      = "sleep"
	ControlWake       = "wake"
	ControlPause      = "pause"
	ControlResume     = "resume"
	ControlLoadLoRA   = "lora_load"
	ControlUnloadLoRA = "lora_unload"
)
