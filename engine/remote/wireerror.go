package remote

import (
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// Trailers of a call that failed. Without a kind the code decides.
const (
	trailerKind   = "x-dynago-error-kind"
	trailerStatus = "x-dynago-engine-status"
	trailerRetry  = "x-dynago-retry-after-ms"
	trailerParam  = "x-dynago-error-param"
	trailerCode   = "x-dynago-error-code"
)

// codeOf are the codes of kinds; all others are INTERNAL.
var codeOf = map[engine.ErrorKind]codes.Code{
	engine.InvalidArgument:   codes.InvalidArgument,
	engine.NotFound:          codes.NotFound,
	engine.Unsupported:       codes.Unimplemented,
	engine.Denied:            codes.Unauthenticated,
	engine.CannotConnect:     codes.Unavailable,
	engine.ConnectionTimeout: codes.Unavailable,
	engine.Disconnected:      codes.Unavailable,
	engine.ResponseTimeout:   codes.Unavailable,
	engine.StreamIncomplete:  codes.Unavailable,
	engine.EngineShutdown:    codes.Unavailable,
	engine.Unavailable:       codes.Unavailable,
	engine.WorkerOverloaded:  codes.ResourceExhausted,
	engine.ResourceExhausted: codes.ResourceExhausted,
	engine.Stale:             codes.FailedPrecondition,
	engine.Cancelled:         codes.Canceled,
	engine.DeadlineExceeded:  codes.DeadlineExceeded,
	engine.Internal:          codes.Internal,
}

// kindOf are the kinds of codes that come without one.
var kindOf = map[codes.Code]engine.ErrorKind{
	codes.NotFound:          engine.NotFound,
	codes.Unimplemented:     engine.Unsupported,
	codes.Unauthenticated:   engine.Denied,
	codes.PermissionDenied:  engine.Denied,
	codes.Unavailable:       engine.Unavailable,
	codes.Aborted:           engine.Unavailable,
	codes.ResourceExhausted: engine.WorkerOverloaded,
	codes.Canceled:          engine.Cancelled,
	codes.DeadlineExceeded:  engine.DeadlineExceeded,
	codes.Internal:          engine.Internal,
	codes.Unknown:           engine.Internal,
	codes.DataLoss:          engine.Internal,
	// All others, a bare FAILED_PRECONDITION among them, are invalid_argument.
}

// errorParts are what is told of a failure.
type errorParts struct {
	kind             engine.ErrorKind
	message          string
	param, code      string
	status           int
	retryAfterMillis int64
}

func partsOf(err error) errorParts {
	p := errorParts{kind: engine.KindOf(err), message: err.Error()}
	e, ok := errors.AsType[*engine.Error](err)
	if !ok {
		return p
	}
	p.message, p.param, p.code, p.status = e.Message, e.Param, e.Code, e.Status
	if e.Message == "" && e.Err != nil {
		p.message = e.Err.Error()
	}
	p.retryAfterMillis = e.RetryAfter.Milliseconds()
	return p
}

// statusOf returns the trailers and the status by which a failure is told.
func statusOf(err error) (metadata.MD, error) {
	p := partsOf(err)
	code, ok := codeOf[p.kind]
	if !ok {
		code = codes.Internal
	}
	md := metadata.Pairs(trailerKind, string(p.kind))
	set := func(name, value string) {
		if value != "" && value != "0" && printable(value) {
			md.Set(name, value)
		}
	}
	set(trailerStatus, strconv.Itoa(p.status))
	set(trailerRetry, strconv.FormatInt(p.retryAfterMillis, 10))
	set(trailerParam, p.param)
	set(trailerCode, p.code)
	return md, status.Error(code, p.message)
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// tooLarge begins what the library says of a message beyond the limit. It has the
// code of a worker that is full, and no other worker would do better.
const tooLarge = "grpc: received message larger than max"

// errorOf returns what the end of a call means. begun says that response headers
// have come.
func errorOf(err error, trailer metadata.MD, begun bool) *engine.Error {
	if errors.Is(err, io.EOF) {
		return engine.Errorf(engine.StreamIncomplete, "the worker ended the stream before the answer was complete")
	}
	s := status.Convert(err)
	e := &engine.Error{Message: s.Message(), Param: one(trailer, trailerParam), Code: one(trailer, trailerCode)}
	if n, err := strconv.ParseUint(one(trailer, trailerStatus), 10, 16); err == nil {
		e.Status = int(n)
	}
	if n, err := strconv.ParseUint(one(trailer, trailerRetry), 10, 32); err == nil {
		e.RetryAfter = time.Duration(n) * time.Millisecond
	}
	kind := engine.ErrorKind(one(trailer, trailerKind))
	if _, known := codeOf[kind]; known {
		e.Kind, e.FromEngine = ofWorker(kind, begun), true
		return e
	}
	var ok bool
	switch e.Kind, ok = kindOf[s.Code()]; {
	case !ok:
		e.Kind = engine.InvalidArgument
	case s.Code() == codes.ResourceExhausted && strings.HasPrefix(s.Message(), tooLarge):
		e.Kind, e.Message = engine.Internal, "the worker sent a message of more than "+strconv.Itoa(maxMessage>>20)+" MiB"
	case s.Code() == codes.Unavailable && begun:
		e.Kind = engine.Disconnected
	default:
		e.Kind = ofWorker(e.Kind, begun)
	}
	return e
}

// ofWorker returns a kind of error as it may come from a worker. Queues are ours, and
// it is for the caller to see whether anybody here has cancelled the request: if not,
// the worker gave it up.
func ofWorker(kind engine.ErrorKind, begun bool) engine.ErrorKind {
	switch {
	case kind == engine.ResourceExhausted:
		return engine.WorkerOverloaded
	case kind == engine.Cancelled && begun:
		return engine.EngineShutdown
	case kind == engine.Cancelled:
		return engine.Unavailable
	}
	return kind
}

func one(md metadata.MD, name string) string {
	if v := md.Get(name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// errorMessage is how the end of one call among many is told.
func errorMessage(err error) *workerpb.Error {
	if err == nil {
		return &workerpb.Error{}
	}
	p := partsOf(err)
	return &workerpb.Error{
		Kind: string(p.kind), Message: p.message,
		EngineStatus: uint32(max(0, p.status)), RetryAfterMs: uint32(min(max(0, p.retryAfterMillis), math.MaxUint32)),
	}
}

// errorOfMessage is the inverse; nil for success.
func errorOfMessage(m *workerpb.Error) error {
	if m.GetKind() == "" {
		return nil
	}
	e := &engine.Error{
		Kind: ofWorker(engine.ErrorKind(m.Kind), true), Message: m.Message, FromEngine: true,
		Status: int(m.EngineStatus), RetryAfter: time.Duration(m.RetryAfterMs) * time.Millisecond,
	}
	if _, known := codeOf[e.Kind]; !known {
		e.Kind = engine.Internal
	}
	return e
}
