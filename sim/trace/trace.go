// Package trace holds workloads: the requests that a fleet was asked, or might
// have been, with what waits for what. It reads the formats in which others
// record them, changes them (faster, longer, twice over), and makes new ones from
// a few parameters.
//
// The one idea: a prompt is a [Text], a few pieces of endless streams of tokens,
// and is written out only when somebody computes with it. Two prompts that share
// a prefix share its pieces, so that a trace of a hundred million tokens fits in
// a few megabytes, and the same tokens come out wherever it is replayed.
package trace

import (
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/zeebo/xxh3"
)

// Request is one request of a workload.
type Request struct {
	ID      string // unique in the workload
	Session string // conversation that it belongs to; "": none
	Parent  string // session that has opened Session; "": none
	Final   bool   // no later request of Session follows; false where nobody knows

	// At is when the request comes, counted from the start of the workload. One
	// with After comes Delay after the last of those has been answered, whatever
	// At says.
	At    time.Duration
	After []string // ids of requests
	Delay time.Duration

	Prompt Text
	// Answer is what the engine generates for it: its length is the number of
	// output tokens. What a later prompt repeats of an answer is a piece of the
	// same stream.
	Answer Text

	// What the router is told, as its Query has it.
	Priority       float64
	StrictPriority uint32
	Class          string
	Tool           bool // the newest turn brings the results of tools

	// Thinking is how many tokens of the answer, from its first on, no later prompt
	// repeats, so that nothing behind them can be found again; 0 where nobody knows.
	Thinking int

	// KV is what it asks of caches. Without a session there, Session is the one
	// that its blocks belong to.
	KV kv.Directives
}

// Text is a sequence of tokens by the streams they come from. The zero value is
// empty. Texts are never changed once made, and may share memory.
type Text []Piece

// Piece is the tokens from From on of a stream, Len of them.
type Piece struct {
	Stream    uint64
	From, Len uint32
}

// Len returns the number of tokens.
func (t Text) Len() int {
	n := 0
	for _, p := range t {
		n += int(p.Len)
	}
	return n
}

// Tokens are drawn from [firstToken, firstToken+vocabulary): ids that the
// vocabularies of today's models have, above those that are control tokens in
// many of them.
const (
	firstToken = 1 << 10
	vocabulary = 1 << 15
)

// Append writes the tokens out behind dst. Which token stands at a place of a
// stream is fixed; different streams differ nearly everywhere.
func (t Text) Append(dst []uint32) []uint32 {
	for _, p := range t {
		seed := mix(p.Stream)
		for i := range uint64(p.Len) {
			dst = append(dst, firstToken+uint32(mix(seed+(uint64(p.From)+i)*golden)>>(64-15)))
		}
	}
	return dst
}

// Cut returns the first n tokens, or all if there are fewer.
func (t Text) Cut(n int) Text {
	for i, p := range t {
		if int(p.Len) <= n {
			n -= int(p.Len)
			continue
		}
		if n <= 0 {
			return t[:i:i]
		}
		return append(t[:i:i], Piece{p.Stream, p.From, uint32(n)})
	}
	return t
}

// Kinds of streams that are made here. Recorded ids are the numbers of streams
// themselves; the others are spread over all numbers, where they meet neither
// those nor each other.
const (
	answers = iota + 1 // of engines, by the number of the request
	prompts            // what is new in one, by the same
	shared             // what the prompts of a group begin with, by group
)

// Named returns the stream of a name.
func Named(name string) uint64 { return xxh3.HashString(name) }

func stream(kind, n uint64) uint64 { return mix(mix(kind*golden) + n*golden) }

// answer returns the answer of the n-th request of a workload.
func answer(n, tokens int) Text {
	return Text{{Stream: stream(answers, uint64(n)), Len: uint32(tokens)}}
}

const golden = 0x9e3779b97f4a7c15

// mix is a bijection in which every bit of the result depends on every bit of x.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
