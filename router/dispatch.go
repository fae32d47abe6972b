package router

import (
	"iter"
	"math"
	"slices"

	"github.com/dynago/dynago/kv"
)

// What the dispatchers of others need besides: bookings by their ids, answers that
// are told of block by block, and what is known of caches.

// Booked returns the booking of an id, or an error of kind not_found.
func (r *Router) Booked(id string) (*Booking, error) { return r.request(id) }

// OutputBlock tells that one more block of the answer is in use, and how much of
// the answer is still ahead, 0..1; nil is as much as was expected. Unlike
// [Booking.Output] it counts also where blocks of answers are not tracked
// otherwise.
func (b *Booking) OutputBlock(ahead *float64) {
	r, output := b.router, int(b.output.Add(int64(b.blockSize)))
	if !r.tuning.TrackActiveBlocks {
		return
	}
	weight := b.remaining(output)
	if ahead != nil && !math.IsNaN(*ahead) {
		weight = int64(min(max(0, *ahead), 1) * one)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.last == nil {
		return
	}
	if more := b.blocks(output) - b.blocks(0) - b.outputBlocks; more > 0 {
		r.books.grow(b, more, weight)
	}
}

// Dump returns events that would make an empty index hold of a target what this
// router's does.
func (r *Router) Dump(t kv.Target) iter.Seq[kv.Event] { return r.index.Dump(t) }

// SharesCache says whether a cache beside the workers is asked for prompts.
func (r *Router) SharesCache() bool { return r.shared != nil }

// NeedsCapacity says whether it depends on how much workers compute in one step
// if requests for a model have to wait.
func (r *Router) NeedsCapacity(model string) bool {
	profile := r.policies.Profile(model)
	if profile == nil {
		return r.threshold != nil
	}
	return slices.ContainsFunc(profile.Classes, func(c *Class) bool { return c.PrefillBusyThresholdFrac != nil })
}
