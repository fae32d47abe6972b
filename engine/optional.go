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

// Prefix names blocks of a cache from the root on: by their hashes, or as the whole
// blocks of a prompt.
type Prefix struct {
	Namespace kv.Namespace
	TokenIDs  []uint32
	Hashes    []kv.SeqHash // if set, they alone count
	Rank      *uint32      // nil: all ranks that have it
}

// Pinner is an engine that keeps a prefix for some time, whatever happens to others.
type Pinner interface {
	// Pin pins what is there, as far as the budget goes, so that the result may have
	// fewer blocks than were asked for, or none. A TTL of 0 takes the pins of the
	// owner away. Pins of a session end with it.
	Pin(ctx context.Context, p *Prefix, o PinOptions) (Pinned, error)
}

// PinOptions say how a prefix is pinned.
type PinOptions struct {
	Owner kv.SessionKey // the zero key: nobody's
	TTL   time.Duration
	Hard  bool // where that is not allowed it counts as not hard
}

// Pinned is how many blocks were asked for, and how many of them are pinned.
type Pinned struct{ Requested, Pinned int }

// Retainer is an engine whose blocks can be made worth more or less.
type Retainer interface {
	// Retain sets the retention of blocks (0..100, 35 is neutral) and returns how many
	// there are. A TTL of 0 holds for ever.
	Retain(ctx context.Context, p *Prefix, priority uint8, ttl time.Duration) (blocks int, err error)
}

// Prefetcher is an engine that brings blocks up from lower tiers before they are
// needed. A prefetch is advice: what it cannot do, the request does that needs the
// blocks.
type Prefetcher interface {
	Prefetch(ctx context.Context, p *Prefix, o PrefetchOptions) (Prefetch, error)
	// Prefetched says how far a prefetch has come. One that is not known, any more, is
	// an error of kind not_found.
	Prefetched(ctx context.Context, id string) (Prefetch, error)
	// CancelPrefetch ends one, and says how far it came.
	CancelPrefetch(ctx context.Context, id string) (Prefetch, error)
}

// PrefetchOptions say what a prefetch is for.
type PrefetchOptions struct {
	Target kv.Tier       // device or host
	In     time.Duration // until the blocks are needed; 0: soon
}

// Prefetch is how far a prefetch has come: of the blocks requested, those that were
// there already, those that are brought and those that are nowhere; and of those that
// are brought, how many have come, and how many will not.
type Prefetch struct {
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
