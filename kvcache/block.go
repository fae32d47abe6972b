package kvcache

import "github.com/dynago/dynago/kv"

// Ref is one reference to a block, and the number of the slot that the block
// lies in: 0..N-1 of a pool of N. Every Ref that Allocate or Match returned is
// to be released exactly once.
type Ref uint32

// Root stands for the missing parent of a sequence's first block.
const Root = ^Ref(0)

// State is what a slot is in.
type State uint8

// States of a slot.
const (
	Reset     State = iota // free
	Mutable                // handed out for writing, not yet published
	Primary                // published and in use
	Duplicate              // holds the same as a primary; keeps that in use
	Inactive               // published and used by no one: findable, evictable
)

// String returns the state's lower-case name.
func (s State) String() string {
	return [...]string{"reset", "mutable", "primary", "duplicate", "inactive"}[min(s, Inactive)]
}

// none ends a list and marks the absence of a slot.
const none = int32(-1)

// block is one slot. It holds no pointers, and two of them fill a cache line.
// What only some blocks have lies in tables beside: see note and tags.
type block struct {
	hash kv.SeqHash
	// up is the parent of a published block, or none; of a duplicate it is the
	// primary. A block that is not inactive holds a reference on it.
	up   int32
	refs int32 // references out, those of children and duplicates included
	// prev and next link the free list (next alone) and the queues; of a block
	// that is set aside they are its key, and of one in a heap prev is where.
	prev, next int32
	kids       int32 // inactive children: the block is no leaf
	state      State
	queue      uint8 // of an inactive block: where it is or belongs
	place      spot
	flags      flags
}

// spot says where an inactive block waits for its turn.
type spot uint8

const (
	nowhere spot = iota // not inactive, or hard-pinned
	inList              // in the list of its queue
	inFront             // in the heap before that list
	inPins              // among the soft-pinned
	aside               // its turn came while it had children
)

// flags are what a block without any wish has none of.
type flags uint8

const (
	noted     flags = 1 << iota // has a note: a priority, pins, or locks
	tagged                      // belongs to sessions
	foreign                     // was hit by someone who left no tag
	shared                      // has had more sessions than are counted
	ephemeral                   // goes first
	skipWrite                   // does not go to lower tiers
	once                        // is reset when nobody uses it any more
	foremost                    // goes before all others once it is idle
)

// odd marks blocks that do not simply go to the end of the neutral queue.
const odd = noted | ephemeral | once

func (b *block) published() bool { return b.state == Primary || b.state == Inactive }
