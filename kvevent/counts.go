package kvevent

import "iter"

// EventType is what an engine calls an event, as metrics name it.
type EventType uint8

// The types of events. Unknown ones are counted, and otherwise ignored.
const (
	TypeUnknown EventType = iota
	TypeStored
	TypeRemoved
	TypeCleared
	TypeUpdated // a block has moved to another tier

	eventTypes
)

var eventTypeNames = [eventTypes]string{"unknown", "stored", "removed", "cleared", "updated"}

// String returns the label of the type.
func (t EventType) String() string { return eventTypeNames[t] }

// Reason says why an event, or a part of it, was left out.
type Reason uint8

// The reasons. All but the last group drop the whole event.
const (
	None Reason = iota

	// What the event says of itself.
	IgnoredEvent          // its type is unknown
	MalformedEvent        // a field is missing or has another shape than its own
	NonLocalLocality      // the blocks lie on another machine
	UnknownMedium         // the blocks lie on something that is no tier
	UnsupportedOwnership  // the blocks belong to a cache of their own
	UnknownOwnership      // the blocks belong to nobody we know
	NonMainAttentionKind  // blocks of sliding windows, states and the like
	UnknownKind           // blocks of a kind of attention we do not know
	NonMainAttentionGroup // a group known to be of such a kind
	UnlearnedGroup        // a group of which nothing is known
	UnknownAdapter        // blocks of an adapter that has a number and no name

	// What does not fit to what came before, or to itself.
	EmptyStore         // no blocks
	RepeatedHash       // a key twice, or as its own parent
	UnknownParent      // the blocks continue one that is not there
	UnknownBlock       // a block moves that is not there
	AmbiguousNamespace // the blocks are in two namespaces at once

	// What ends a store early. The blocks before it are kept.
	WrongBlockSize   // not the size of this worker's blocks
	ShortTokens      // fewer tokens than blocks
	ForeignNamespace // a salt that is not ours, or a prompt of embeddings
	UnknownMedia     // media that have no hash
	TooManyBlocks    // more blocks than a decoder remembers

	// What only one engine does.
	OtherWindow  // blocks of a smaller attention window
	PartialBlock // the unfinished end of a prompt

	reasons
)

var reasonNames = [reasons]string{
	"none",
	"ignored_event", "malformed_event", "non_local_locality", "unknown_medium",
	"unsupported_ownership", "unknown_ownership", "non_main_attention_kind",
	"unknown_kind", "non_main_attention_group", "unlearned_group_idx", "unknown_adapter",
	"empty_store_blocks", "repeated_hash", "unknown_parent", "unknown_block", "ambiguous_cache_namespace",
	"wrong_block_size", "short_tokens", "foreign_cache_namespace", "unknown_media", "too_many_blocks",
	"other_window", "partial_block",
}

// String returns the label of the reason.
func (r Reason) String() string { return reasonNames[r] }

// Counts is what a decoder has seen. It is plain data: copy it and subtract.
type Counts struct {
	// Messages is how many payloads were read, Malformed how many of them could
	// not be.
	Messages, Malformed uint64
	// Received and Accepted count events by type. An accepted event has had its
	// effect at least in part.
	Received, Accepted [eventTypes]uint64
	// Dropped counts events by type and reason.
	Dropped [eventTypes][reasons]uint64
	// Blocks is how many blocks were stored, by whatever name and as often as
	// they were.
	Blocks uint64
}

// Drop is one counter of [Counts.Drops].
type Drop struct {
	Type   EventType
	Reason Reason
	Events uint64
}

// Drops yields the counters of dropped events that are not zero.
func (c *Counts) Drops() iter.Seq[Drop] {
	return func(yield func(Drop) bool) {
		for t := range eventTypes {
			for r := range reasons {
				if n := c.Dropped[t][r]; n > 0 && !yield(Drop{t, r, n}) {
					return
				}
			}
		}
	}
}
