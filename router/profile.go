package router

import (
	"fmt"
	"slices"
	"time"
)

// Profile says into which class of the queue a request belongs. It does not
// change once it is made.
type Profile struct {
	Classes []*Class // in the order in which they take turns

	explicit map[string]*Class   // those that a request may name itself
	families map[string][]*Class // one for each bucket
	buckets  []int               // uncached tokens at which each begins
	standard string              // the family of requests that name none
}

// Class is a kind of requests that wait together.
type Class struct {
	Name string
	// Family and Bucket are the cell that the class fills: which requests, and with
	// how much to compute. They are empty for a class that requests name.
	Family, Bucket string
	Order          QueueOrder
	Quantum        int // uncached tokens that the class is given in its turn

	// A target is busy for the class if more prompt tokens than this wait to be
	// computed there: absolutely, or against what it computes in one step. Without
	// either the class never waits.
	PrefillBusyThreshold     *int
	PrefillBusyThresholdFrac *float64

	// What may be parked, for each worker; nil: any number.
	RequestLimit, TokenLimit, CachedTokenLimit *int

	place int // in the profile
}

// QueueOrder says who goes first within a class, among those of one strict tier.
type QueueOrder string

// The orders. In all of them priority counts, and who came first goes first among
// equals. Nobody is passed for ever under FCFS, but whoever came first under LCFS
// or has much to compute under WSPT may be, as anybody may by a higher tier.
const (
	// FCFS lets go who came first; priority is seconds of earlier arrival. So nobody
	// goes before a request who comes later by more seconds than his priority.
	FCFS QueueOrder = "fcfs"
	// LCFS lets go who came last; priority is seconds of later arrival.
	LCFS QueueOrder = "lcfs"
	// WSPT lets go who has the least to compute for its weight, which is 1 + priority.
	WSPT QueueOrder = "wspt"
)

// QueueOrders are all orders, the default first.
var QueueOrders = []QueueOrder{FCFS, LCFS, WSPT}

// ParseQueueOrder reads the name of an order; the empty string is [FCFS].
func ParseQueueOrder(s string) (QueueOrder, error) {
	switch o := QueueOrder(s); {
	case s == "":
		return FCFS, nil
	case slices.Contains(QueueOrders, o):
		return o, nil
	}
	return "", fmt.Errorf("unknown queue policy %q: want fcfs, lcfs or wspt", s)
}

// score ranks a request that came so long after the queue's epoch and costs so
// many tokens.
func (o QueueOrder) score(priority float64, arrived time.Duration, cost int) float64 {
	if !(priority > 0) { // NaN too
		priority = 0
	}
	offset := max(0, arrived).Seconds()
	switch o {
	case LCFS:
		return priority + offset
	case WSPT:
		return (1 + priority) / float64(cost)
	}
	return priority - offset
}

// DefaultProfile is the profile without a policy file: one class named default,
// for which a target is busy above threshold times what it computes in one step.
// Without a threshold nobody waits.
func DefaultProfile(threshold *float64, order QueueOrder) *Profile {
	c := &Class{Name: "default", Order: order, Quantum: 1, PrefillBusyThresholdFrac: threshold}
	return &Profile{
		Classes:  []*Class{c},
		families: map[string][]*Class{"": {c}},
		buckets:  []int{0},
	}
}

// Classify returns the class of a request that names class, which may be empty
// or unknown, and has so many tokens to compute that are not cached.
func (p *Profile) Classify(class string, uncached int) *Class {
	if c := p.explicit[class]; c != nil {
		return c
	}
	cells, ok := p.families[class]
	if !ok {
		cells = p.families[p.standard]
	}
	for i := len(p.buckets) - 1; i > 0; i-- {
		if p.buckets[i] <= uncached {
			return cells[i]
		}
	}
	return cells[0]
}

// Waits says whether requests of the class ever wait.
func (c *Class) Waits() bool {
	return c.PrefillBusyThreshold != nil || c.PrefillBusyThresholdFrac != nil
}

// guessedBatch stands in for what a worker computes in one step if it does not
// tell.
const guessedBatch = 10_000_000

// Busy says whether a target is too busy for the class, where so many prompt
// tokens wait to be computed and so many are computed in one step; 0: it does
// not tell.
func (c *Class) Busy(prefillTokens, batchTokens int) bool {
	if batchTokens <= 0 {
		batchTokens = guessedBatch
	}
	return c.PrefillBusyThreshold != nil && prefillTokens > *c.PrefillBusyThreshold ||
		c.PrefillBusyThresholdFrac != nil && float64(prefillTokens) > *c.PrefillBusyThresholdFrac*float64(batchTokens)
}
