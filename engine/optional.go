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
