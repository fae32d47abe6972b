package kv

import "fmt"

// EventKind says what happened to a cache.
type EventKind uint8

// The kinds of events.
const (
	Stored  EventKind = iota // blocks became present, in chain order
	Removed                  // blocks are gone
	Cleared                  // nothing of the rank is left, on any tier
)

// String returns the kind's wire name.
func (k EventKind) String() string {
	switch k {
	case Stored:
		return "stored"
	case Removed:
		return "removed"
	case Cleared:
		return "cleared"
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is one change of one rank's cache.
type Event struct {
	Kind EventKind
	Tier Tier
	// Parent is the engine's key of the block before the first one stored. It
	// means nothing unless HasParent is set; without it the blocks begin at the
	// root.
	Parent    EngineHash
	HasParent bool
	// Blocks are the blocks stored, each the child of the one before it. For a
	// removal only their Engine keys are set, in any order.
	Blocks []Block
}

// Batch is a run of events of one rank, as an engine yields them.
//
// Events of one (worker, rank, epoch) are numbered without holes from 1 on.
// First..Last is the range of this batch; an idle source sends a batch without
// events whose Last is the newest number.
type Batch struct {
	Rank        uint32
	Epoch       uint64
	First, Last uint64
	Events      []Event
	// Gap, if not empty, says that what the receiver holds of this rank is not
	// to be trusted and must be cleared before anything that follows.
	Gap GapReason
	// Snapshot marks batches that rebuild a state instead of continuing it.
	Snapshot Snapshot
}

// GapReason says why a receiver must forget a rank.
type GapReason string

// Reasons for a gap.
const (
	GapRestart  GapReason = "restart"  // another life of the cache
	GapLost     GapReason = "lost"     // engine events are missing
	GapOverflow GapReason = "overflow" // the receiver was too slow
	GapTooOld   GapReason = "too_old"  // the cursor lies before the ring
	GapFuture   GapReason = "future"   // the cursor lies beyond the newest event
)

// Snapshot says what part a batch plays in rebuilding a rank.
type Snapshot uint8

// Parts of a snapshot.
const (
	SnapshotNone Snapshot = iota // an ordinary batch
	SnapshotPart                 // synthetic stores, parents before children
	SnapshotEnd                  // the state is complete; Last is the number it stands for
)

// Cursor names the last event of a rank that a receiver has applied.
type Cursor struct {
	Rank     uint32
	Epoch    uint64
	Sequence uint64
}
