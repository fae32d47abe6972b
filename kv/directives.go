package kv

import (
	"math"
	"slices"
	"time"
)

// Directives is what one request asks of the KV cache. The frontend fills it
// once; router, worker and store read it. All of it is advice, except the
// namespace. The zero value asks for nothing.
type Directives struct {
	Namespace Namespace
	Session   Session
	// Priority is the request's own priority, from which the retention of its
	// blocks follows as clamp(35+p, 0, 100); nil means unannotated.
	Priority *int32
	// Ranges give retention to positions of the prompt: ordered, disjoint, at
	// most 64, only the last one open-ended.
	Ranges []Range
	// DecodePriority and DecodeTTL are the same for blocks completed while
	// generating.
	DecodePriority *uint8
	DecodeTTL      time.Duration
	// Pins keep a prefix in the cache after the request has ended.
	Pins []Pin
	// Class applies to blocks that this request completes first.
	Class Class
	// SkipWrite keeps the request's blocks from lower tiers.
	SkipWrite bool
	// Thinking, if not nil, lets reasoning go first: the next prompt leaves it out, so
	// that neither it nor what follows it can be found again.
	Thinking *Thinking
	// Compacted says that the harness has replaced the session's history by a
	// summary, with which this prompt begins.
	Compacted bool
	// NextIn is the expected time to the session's next request; 0 = unknown.
	NextIn time.Duration
	// EvictSession closes the session's KV when its last request has ended.
	EvictSession bool
}

// SessionKey names a session everywhere: two models, and two tenants, have
// sessions of their own under the same id.
type SessionKey struct{ Model, Salt, ID string }

// Session ties the blocks of a conversation together.
type Session struct {
	ID, Parent string
	Timeout    time.Duration // 0 = the server's default
	Ephemeral  bool
}

// Range gives the blocks of prompt positions [Start, End) a retention. A block
// takes the range of its first token.
type Range struct {
	Start    uint32
	End      *uint32       // nil = to the end of the prompt
	Priority uint8         // 0..100, 35 is neutral
	TTL      time.Duration // 0 = for ever
}

// WholeSequence, as the end of a [Pin], is that of the answer.
const WholeSequence = math.MaxUint32

// Pin asks that the first UpTo tokens of the prompt stay cached for TTL.
type Pin struct {
	UpTo uint32 // floored to whole blocks; or WholeSequence
	TTL  time.Duration
	Hard bool
}

// Class is how readily blocks may go.
type Class uint8

// Eviction classes.
const (
	ClassNormal    Class = iota
	ClassEphemeral       // evicted first, never written through
)

// Thinking says how reasoning is spelled that the next prompt of a conversation will
// leave out.
type Thinking struct {
	// Start and End are the ids of tokens, any of which begins or ends reasoning.
	Start, End []uint32
	// Header, if there is one, follows a Start that begins reasoning, and no other.
	Header []uint32
}

// Begins says whether the last of these ids begin reasoning, with the header.
func (t *Thinking) Begins(ids []uint32) bool {
	at := len(ids) - len(t.Header) - 1
	return at >= 0 && slices.Contains(t.Start, ids[at]) && slices.Equal(ids[at+1:], t.Header)
}

// Lead is how many of the ids that begin reasoning the next prompt leaves out: what
// has a header begins like other messages.
func (t *Thinking) Lead() int { return max(1, len(t.Header)) }

// Open says whether an answer to the prompt begins within reasoning.
func (t *Thinking) Open(prompt []uint32) bool {
	for i, id := range slices.Backward(prompt) {
		switch {
		case t.Begins(prompt[:i+1]):
			return true
		case slices.Contains(t.End, id):
			return false
		}
	}
	return false
}
