package router

import (
	"fmt"
	"math"
)

// LimitKind names what a class of a queue may hold only so much of.
type LimitKind string

// The kinds of limits.
const (
	RequestLimit     LimitKind = "requests"
	TokenLimit       LimitKind = "raw_isl_tokens" // of prompts
	CachedTokenLimit LimitKind = "cached_tokens"  // of those, cached ones
)

// QueueRejection is why a request was not even parked. Its JSON is what clients
// are told.
type QueueRejection struct {
	Class   string    `json:"policy_class"`
	Kind    LimitKind `json:"limit_kind"`
	Current int       `json:"current"` // what is parked
	Limit   int       `json:"limit"`   // for all workers together
}

// Error returns one line.
func (r *QueueRejection) Error() string {
	return fmt.Sprintf("the queue of policy class %q is full: %s %d of %d", r.Class, r.Kind, r.Current, r.Limit)
}

// ClientDetails marks an error whose text is meant for clients, and returns its JSON.
func (r *QueueRejection) ClientDetails() any { return r }

// rejection compares what is parked with the limits for so many workers.
func (l *line[T]) rejection(workers int) *QueueRejection {
	for _, of := range [...]struct {
		kind      LimitKind
		current   int
		perWorker *int
	}{
		{RequestLimit, l.requests, l.class.RequestLimit},
		{TokenLimit, l.tokens, l.class.TokenLimit},
		{CachedTokenLimit, l.cached, l.class.CachedTokenLimit},
	} {
		if of.perWorker == nil {
			continue
		}
		limit := times(*of.perWorker, workers)
		if of.current >= limit {
			return &QueueRejection{Class: l.class.Name, Kind: of.kind, Current: of.current, Limit: limit}
		}
	}
	return nil
}

// times multiplies two numbers that are not negative, up to the largest int.
func times(a, b int) int {
	if b > 0 && a > math.MaxInt/b {
		return math.MaxInt
	}
	return a * b
}
