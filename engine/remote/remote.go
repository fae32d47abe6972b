// Package remote is both ends of the one service by which workers in other
// processes are reached: [Client] is an [engine.Engine] whose engine is elsewhere,
// and [Server] puts any [engine.Engine] behind that service. The service is
// described in proto/dynago/worker/v1/worker.proto, so that backends in any
// language can stand in for the server.
//
// The one idea: the wire has the shape of the interface. Each method is one call,
// each sequence one stream, and what ends a sequence ends the call below it, so
// that neither side keeps state for the other. The one stream that stays, Describe,
// tells what the worker is and that it lives; what the client believes of a worker
// it has from there, and it trusts no answer to keep the contract.
package remote

import (
	"context"
	"errors"
	"iter"
	"math"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// Protocol is the version of the service that this package speaks.
const Protocol = 1

// DefaultPort is where workers listen unless they are told otherwise.
const DefaultPort = 50061

// Limits of both sides.
const (
	maxMessage       = 64 << 20
	maxTensorMessage = math.MaxInt32
	fileChunk        = 1 << 20
	maxFile          = 1 << 30
)

// Times of both sides. A worker that said nothing for silentIntervals of its
// heartbeats gets nothing new, and after deadIntervals is taken for dead. Whoever
// loads may have no time for us, and has loadingIntervals.
const (
	defaultHeartbeat = 2 * time.Second
	shortestBeat     = 10 * time.Millisecond
	longestBeat      = time.Minute
	silentIntervals  = 3
	deadIntervals    = 5
	loadingIntervals = 60
	firstMessage     = 5 * time.Second
	controlTimeout   = 5 * time.Second
	namedTimeout     = 60 * time.Second
	askAgain         = 30 * time.Second
)

// scheme of addresses; with TLS it is grpcs.
const (
	plainScheme  = "grpc"
	secretScheme = "grpcs"
)

// healthName is the service of a worker as grpc.health.v1 knows it.
var healthName = workerpb.Worker_ServiceDesc.ServiceName

// once makes a sequence good for one loop: a second one yields an error.
func once[T any](what string, seq func(yield func(T, error) bool)) iter.Seq2[T, error] {
	var ranged atomic.Bool
	return func(yield func(T, error) bool) {
		if ranged.Swap(true) {
			var zero T
			yield(zero, engine.Errorf(engine.Internal, "remote: the sequence of %s was ranged over twice", what))
			return
		}
		seq(yield)
	}
}

// wait returns once d has passed, or false when ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// operation adds what was being done to an error of known kind.
func operation(err error, op string) error {
	if e, ok := errors.AsType[*engine.Error](err); ok && e.Op == "" {
		c := *e
		c.Op = op
		return &c
	}
	return err
}
