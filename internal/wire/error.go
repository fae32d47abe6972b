package wire

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dynago/dynago/engine"
)

// Statuses without a constant in net/http.
const (
	StatusClientClosedRequest = 499
	StatusOverloaded          = 529 // the default overload status
)

// Codes that clients act upon.
const (
	CodeInvalidValue    = "invalid_value"
	CodeMissing         = "missing_required_parameter"
	CodeUnsupported     = "unsupported_parameter"
	CodeContextLength   = "context_length_exceeded"
	CodeModelNotFound   = "model_not_found"
	CodeInvalidAPIKey   = "invalid_api_key"
	CodeOverloaded      = "overloaded"
	CodeRateLimit       = "rate_limit_exceeded"
	CodeServerError     = "server_error"
	CodeTimeout         = "timeout"
	CodeRequestTooLarge = "request_too_large"
	CodeCancelled       = "request_cancelled"
)

// Error is what a client is told of a failure, whatever its protocol. Type and
// Code are OpenAI's; empty ones follow from Status.
type Error struct {
	Status int
	// Lead stands before Message in the answers of OpenAI's routes, whose clients
	// know it; other protocols have words of their own.
	Lead       string
	Message    string
	Type       string
	Param      string // path of the member at fault, or empty
	Code       string
	RetryAfter time.Duration // for the header Retry-After; 0 = none
	Details    any           // encodes as a JSON object, or nil
}

// Error returns the message with its lead.
func (e *Error) Error() string { return e.Lead + e.Message }

// Invalid is the error of a value that breaks a rule.
func Invalid(param, format string, args ...any) *Error {
	return &Error{
		Status: http.StatusBadRequest, Lead: "Validation: ", Message: fmt.Sprintf(format, args...),
		Type: "invalid_request_error", Param: param, Code: CodeInvalidValue,
	}
}

// Missing is the error of a member that has to be there.
func Missing(param, format string, args ...any) *Error {
	e := Invalid(param, format, args...)
	e.Code = CodeMissing
	return e
}

// Unsupported is the error of a member that is not served.
func Unsupported(param, format string, args ...any) *Error {
	e := Invalid(param, format, args...)
	e.Code = CodeUnsupported
	return e
}

// Malformed is the error of a body that does not decode.
func Malformed(param, format string, args ...any) *Error {
	detail := fmt.Sprintf(format, args...)
	if param != "" {
		detail = param + ": " + detail
	}
	return &Error{
		Status: http.StatusBadRequest, Lead: "Failed to deserialize the JSON body into the target type: ", Message: detail,
		Type: "invalid_request_error", Param: param, Code: CodeInvalidValue,
	}
}

// ErrorOf turns any failure of the way down or up into what the client is told.
// An *Error is returned as it is. Failures of ours say nothing of their inside.
// overloadStatus is the status for "all busy"; 0 means [StatusOverloaded].
func ErrorOf(err error, overloadStatus int) *Error {
	if overloadStatus == 0 {
		overloadStatus = StatusOverloaded
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e, ok := errors.AsType[*engine.Error](err)
	if !ok {
		e = &engine.Error{Kind: engine.KindOf(err)}
	}
	switch e.Kind {
	case engine.ResourceExhausted, engine.WorkerOverloaded:
		return overloaded(err, e, overloadStatus)
	case engine.Unavailable:
		return unavailable(err, e)
	}
	if bad := invalidArgument(err); bad != nil {
		return &Error{
			Status: http.StatusBadRequest, Message: cmp.Or(bad.Message, "Invalid request"),
			Type: "invalid_request_error", Param: bad.Param, Code: cmp.Or(bad.Code, CodeInvalidValue),
		}
	}
	switch e.Kind {
	case engine.Cancelled:
		return &Error{
			Status: StatusClientClosedRequest, Message: "Request cancelled",
			Type: "invalid_request_error", Code: CodeCancelled,
		}
	case engine.NotFound:
		return &Error{
			Status: http.StatusNotFound, Message: cmp.Or(e.Message, "Model not found"),
			Type: "invalid_request_error", Param: cmp.Or(e.Param, "model"), Code: cmp.Or(e.Code, CodeModelNotFound),
		}
	case engine.Unsupported:
		return &Error{
			Status: http.StatusNotImplemented, Message: cmp.Or(e.Message, "Not supported by this model"),
			Type: "invalid_request_error", Param: e.Param, Code: cmp.Or(e.Code, CodeUnsupported),
		}
	case engine.CannotConnect, engine.ConnectionTimeout, engine.Disconnected,
		engine.StreamIncomplete, engine.EngineShutdown, engine.Stale:
		return unavailable(err, e)
	case engine.ResponseTimeout, engine.DeadlineExceeded:
		return &Error{Status: http.StatusGatewayTimeout, Message: "Request timed out", Type: "server_error", Code: CodeTimeout}
	case engine.Denied:
		return serverError("Internal server error", nil)
	}
	return internal(err, e, overloadStatus)
}

// internal tells of a failure without a kind of its own: what a worker answered
// over HTTP and no adapter classified, or a fault of ours.
func internal(err error, e *engine.Error, overloadStatus int) *Error {
	status := e.Status
	switch {
	case !e.FromEngine || status == 0:
		return serverError("Failed to generate completions", nil)
	case status == http.StatusTooManyRequests || status == overloadStatus:
		return overloaded(err, e, overloadStatus)
	case status == http.StatusServiceUnavailable:
		return unavailable(err, e)
	case status == StatusClientClosedRequest:
		return &Error{Status: status, Message: "Request cancelled", Type: "invalid_request_error", Code: CodeCancelled}
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status < 400:
		return serverError("Internal server error", nil)
	case status < 500:
		return &Error{
			Status: status, Message: cmp.Or(e.Message, http.StatusText(status)),
			Type: "invalid_request_error", Param: e.Param, Code: cmp.Or(e.Code, CodeInvalidValue),
		}
	}
	return serverError("Internal server error", map[string]int{"backend_status": status})
}

// overloaded tells that all is busy.
func overloaded(err error, e *engine.Error, status int) *Error {
	return explained(err, &Error{
		Status: status, Message: "Service temporarily overloaded", Type: "server_error",
		Code: CodeOverloaded, RetryAfter: max(time.Second, e.RetryAfter),
	})
}

// unavailable tells that nobody can serve the request now.
func unavailable(err error, e *engine.Error) *Error {
	return explained(err, &Error{
		Status: http.StatusServiceUnavailable, Message: "Service temporarily unavailable", Type: "server_error",
		Code: CodeOverloaded, RetryAfter: max(time.Second, e.RetryAfter),
	})
}

// explained lets out tell what err says in public: the message and details of a
// failure in its chain that has a method ClientDetails() any.
func explained(err error, out *Error) *Error {
	var public interface {
		error
		ClientDetails() any
	}
	if errors.As(err, &public) {
		out.Message, out.Details = public.Error(), public.ClientDetails()
	}
	return out
}

func serverError(message string, details any) *Error {
	return &Error{
		Status: http.StatusInternalServerError, Message: message,
		Type: "server_error", Code: CodeServerError, Details: details,
	}
}

// invalidArgument finds a failure of that kind anywhere in err's chain.
func invalidArgument(err error) *engine.Error {
	for {
		e, ok := errors.AsType[*engine.Error](err)
		if !ok || e.Kind == engine.InvalidArgument {
			return e
		}
		err = e.Err
	}
}
