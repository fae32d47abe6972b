package kvcache

import (
	"math"

	"github.com/dynago/dynago/kv"
)

// backgroundPriority is the priority of work that nobody waits for, such as warming a
// prefix. It says nothing about what the warmed blocks are worth.
const backgroundPriority = -100

// Plan is what one request's directives ask for each block of its sequence.
type Plan struct {
	d      *kv.Directives
	size   int
	prompt int
}

// NewPlan reads d for a prompt of so many tokens. It keeps d.
func NewPlan(d *kv.Directives, blockSize, promptTokens int) Plan {
	return Plan{d: d, size: blockSize, prompt: promptTokens}
}

// Retention returns what the plan asks for block number n of the sequence, and
// false if it asks for nothing. A block takes what its first token is given: a
// range of the prompt, or what holds for generated tokens, else what follows from
// the request's own priority. Fresh blocks are those that this request has
// stored; only they may be put below neutral by that.
func (p Plan) Retention(n int, fresh bool) (r Retention, ok bool) {
	token := n * p.size
	if token >= p.prompt {
		if p.d.DecodePriority != nil {
			return Retention{Priority: *p.d.DecodePriority, TTL: p.d.DecodeTTL}, true
		}
	} else {
		for _, r := range p.d.Ranges {
			if token >= int(r.Start) && (r.End == nil || token < int(*r.End)) {
				return Retention{Priority: r.Priority, TTL: r.TTL}, true
			}
		}
	}
	if p.d.Priority == nil || *p.d.Priority == backgroundPriority {
		return Retention{}, false
	}
	priority := min(max(int64(*p.d.Priority)+Neutral, 0), MaxPriority)
	return Retention{Priority: uint8(priority), Floor: !fresh}, true
}

// Ephemeral reports whether the blocks that this request stores are to go first.
func (p Plan) Ephemeral() bool { return p.d.Class == kv.ClassEphemeral }

// Session returns the options of the request's session.
func (p Plan) Session() SessionOptions {
	return SessionOptions{Timeout: p.d.Session.Timeout, Ephemeral: p.d.Session.Ephemeral}
}

// Pins yields the request's pins, each with the number of whole blocks, from the
// root on, that it is about; math.MaxInt is all there are.
func (p Plan) Pins(yield func(blocks int, pin Pin) bool) {
	for _, pin := range p.d.Pins {
		blocks := min(int(pin.UpTo), p.prompt) / p.size
		if pin.UpTo == kv.WholeSequence {
			blocks = math.MaxInt
		}
		if !yield(blocks, Pin{TTL: max(pin.TTL, 0), Hard: pin.Hard}) {
			return
		}
	}
}
