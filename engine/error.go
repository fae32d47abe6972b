package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrorKind classifies a failure by what can be done about it.
type ErrorKind string

// Kinds of errors, as on the wire. What each one means for the request and for
// the client is told by its methods.
const (
	InvalidArgument   ErrorKind = "invalid_argument"   // malformed, too long, refused by the engine
	NotFound          ErrorKind = "not_found"          // model or adapter not here
	Unsupported       ErrorKind = "unsupported"        // this engine lacks it
	Denied            ErrorKind = "denied"             // our credentials were refused
	CannotConnect     ErrorKind = "cannot_connect"     // no connection
	ConnectionTimeout ErrorKind = "connection_timeout" // no connection in time
	Disconnected      ErrorKind = "disconnected"       // lost before the terminal item
	ResponseTimeout   ErrorKind = "response_timeout"   // no item in time
	StreamIncomplete  ErrorKind = "stream_incomplete"  // a clean end without terminal item
	EngineShutdown    ErrorKind = "engine_shutdown"    // the engine leaves under a running stream
	Unavailable       ErrorKind = "unavailable"        // loading, draining, no worker
	WorkerOverloaded  ErrorKind = "worker_overloaded"  // the worker's own admission limit
	ResourceExhausted ErrorKind = "resource_exhausted" // our queue, limit or pool; never from a worker
	Stale             ErrorKind = "stale"              // meant for an earlier epoch
	Cancelled         ErrorKind = "cancelled"          // the client has left
	DeadlineExceeded  ErrorKind = "deadline_exceeded"  // the client's own deadline
	Internal          ErrorKind = "internal"           // anything else
)

// Retry says whether another worker may be tried.
type Retry uint8

// Answers to "may another worker be tried?".
const (
	RetryNever   Retry = iota
	RetryEarly         // only before the first item of the attempt
	RetryMigrate       // also after it, carrying on from the tokens delivered
)

// Retry tells whether a failure of this kind may be mended by another worker.
func (k ErrorKind) Retry() Retry {
	switch k {
	case Disconnected, ResponseTimeout, StreamIncomplete, EngineShutdown, WorkerOverloaded:
		return RetryMigrate
	case NotFound, Unsupported, Denied, CannotConnect, ConnectionTimeout, Unavailable, Stale:
		return RetryEarly
	}
	return RetryNever
}

// Inhibits says whether the worker should be left alone for a while.
func (k ErrorKind) Inhibits() bool {
	switch k {
	case CannotConnect, ConnectionTimeout, Disconnected, ResponseTimeout, StreamIncomplete, EngineShutdown:
		return true
	}
	return false
}

// Error is a failure of known kind. Message is safe to log: it never holds
// prompt text.
type Error struct {
	Kind       ErrorKind
	Op         string // what was being done
	Worker     uint64 // 0: none in particular
	Message    string // for people; an engine's own text for InvalidArgument
	Param      string // the request's field at fault, as a JSON path, or empty
	Code       string // finer than Kind, for clients: context_length_exceeded, model_not_found
	FromEngine bool
	Status     int // the engine's own status, or 0
	RetryAfter time.Duration
	Err        error
}

// Error returns one line.
func (e *Error) Error() string {
	s := string(e.Kind)
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Worker != 0 {
		s = fmt.Sprintf("worker %d: %s", e.Worker, s)
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error of a kind.
func Errorf(kind ErrorKind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// KindOf returns the kind of err: that of the first [Error] in its chain, the
// one that belongs to a cancelled context, or Internal.
func KindOf(err error) ErrorKind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	for _, c := range causes {
		if errors.Is(err, c.err) {
			return c.kind
		}
	}
	return Internal
}

// Causes with which contexts are cancelled. What the client sees follows from
// the cause alone.
var (
	ErrQueueTimeout = errors.New("no worker became free in time")
	ErrFirstItem    = errors.New("the worker sent nothing in time")
	ErrInactive     = errors.New("the worker fell silent")
	ErrWorkerLost   = errors.New("the worker is gone")
	ErrDeadline     = errors.New("the request's deadline has passed")
	ErrClientGone   = errors.New("the client has gone")
	ErrShutdown     = errors.New("the server is shutting down")
	ErrSuperseded   = errors.New("superseded by a newer request")
)

var causes = []struct {
	err  error
	kind ErrorKind
}{
	{ErrQueueTimeout, ResourceExhausted},
	{ErrFirstItem, ResponseTimeout},
	{ErrInactive, ResponseTimeout},
	{ErrWorkerLost, Disconnected},
	{ErrDeadline, DeadlineExceeded},
	{ErrClientGone, Cancelled},
	{ErrShutdown, Unavailable},
	{ErrSuperseded, Cancelled},
	{context.DeadlineExceeded, DeadlineExceeded},
	{context.Canceled, Cancelled},
}

// CauseOf returns the error with which a source ends when ctx is done: its kind
// follows from the cause the context was cancelled with. If ctx is not done,
// or err is of a known kind already, it returns err; what has not failed has no
// cause, whatever became of ctx since.
func CauseOf(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Kind != Cancelled {
		return err
	}
	cause := context.Cause(ctx)
	return &Error{Kind: KindOf(cause), Err: cause}
}
