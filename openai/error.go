package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
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

// Error is what a client is told of a failure. Type and Code are OpenAI's;
// empty ones follow from Status.
type Error struct {
	Status     int
	Message    string
	Type       string
	Param      string // path of the member at fault, or empty
	Code       string
	RetryAfter time.Duration // for the header Retry-After; 0 = none
	Details    any           // encodes as a JSON object, or nil
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// invalid is the error of a value that breaks a rule.
func invalid(param, format string, args ...any) *Error {
	return &Error{
		Status: http.StatusBadRequest, Message: "Validation: " + fmt.Sprintf(format, args...),
		Type: "invalid_request_error", Param: param, Code: CodeInvalidValue,
	}
}

// missing is the error of a member that has to be there.
func missing(param, format string, args ...any) *Error {
	e := invalid(param, format, args...)
	e.Code = CodeMissing
	return e
}

// unsupported is the error of a member that is not served.
func unsupported(param, format string, args ...any) *Error {
	e := invalid(param, format, args...)
	e.Code = CodeUnsupported
	return e
}

// malformed is the error of a body that does not decode.
func malformed(param, format string, args ...any) *Error {
	detail := fmt.Sprintf(format, args...)
	if param != "" {
		detail = param + ": " + detail
	}
	return &Error{
		Status: http.StatusBadRequest, Message: "Failed to deserialize the JSON body into the target type: " + detail,
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
		return unavailable(e)
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
		return unavailable(e)
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
		return unavailable(e)
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

// overloaded tells that all is busy. A failure in err's chain with a method
// ClientDetails() any says why in public: its message and details are passed.
func overloaded(err error, e *engine.Error, status int) *Error {
	out := &Error{
		Status: status, Message: "Service temporarily overloaded", Type: "server_error",
		Code: CodeOverloaded, RetryAfter: max(time.Second, e.RetryAfter),
	}
	var public interface {
		error
		ClientDetails() any
	}
	if errors.As(err, &public) {
		out.Message, out.Details = public.Error(), public.ClientDetails()
	}
	return out
}

func unavailable(e *engine.Error) *Error {
	return &Error{
		Status: http.StatusServiceUnavailable, Message: "Service temporarily unavailable", Type: "server_error",
		Code: CodeOverloaded, RetryAfter: max(time.Second, e.RetryAfter),
	}
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

// AppendBody appends the body of an error answer: OpenAI's nested object and
// the flat members of the reference beside it, for both kinds of client.
func (e *Error) AppendBody(dst []byte) []byte {
	dst = append(dst, `{"error":`...)
	dst = e.appendNested(dst)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, e.reason())
	dst = append(dst, `,"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Status), 10)
	if e.Details != nil {
		if details, err := json.Marshal(e.Details); err == nil {
			dst = append(dst, `,"details":`...)
			dst = append(dst, details...)
		}
	}
	return append(dst, '}')
}

// AppendFrame appends the error as it ends a stream that has begun: a data
// frame, then the end marker.
func (e *Error) AppendFrame(dst []byte) []byte {
	dst = append(dst, `data: {"error":`...)
	dst = e.appendNested(dst)
	dst = append(dst, `,"status":`...)
	dst = strconv.AppendInt(dst, int64(e.Status), 10)
	return append(dst, "}\n\n"+endMarker...)
}

const endMarker = "data: [DONE]\n\n"

func (e *Error) appendNested(dst []byte) []byte {
	kind := cmp.Or(e.Type, typeOf(e.Status))
	dst = append(dst, `{"message":`...)
	dst = appendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, kind)
	dst = append(dst, `,"param":`...)
	if e.Param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, e.Param)
	}
	dst = append(dst, `,"code":`...)
	dst = appendString(dst, cmp.Or(e.Code, codeOf(e.Status), kind))
	return append(dst, '}')
}

// typeOf returns OpenAI's error type for a status.
func typeOf(status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= 500 && status != http.StatusNotImplemented:
		return "server_error"
	}
	return "invalid_request_error"
}

func codeOf(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return CodeInvalidAPIKey
	case http.StatusNotFound:
		return CodeModelNotFound
	case http.StatusRequestEntityTooLarge:
		return CodeRequestTooLarge
	case http.StatusTooManyRequests:
		return CodeRateLimit
	case StatusClientClosedRequest:
		return CodeCancelled
	case http.StatusNotImplemented:
		return CodeUnsupported
	case http.StatusServiceUnavailable, StatusOverloaded:
		return CodeOverloaded
	case http.StatusGatewayTimeout:
		return CodeTimeout
	}
	return ""
}

// reason returns the flat type: the reason phrase of the status.
func (e *Error) reason() string {
	switch {
	case e.Status == StatusOverloaded, e.Code == CodeOverloaded && e.Status != http.StatusServiceUnavailable:
		return "Overloaded"
	case e.Status == http.StatusRequestEntityTooLarge:
		return "Payload Too Large"
	case e.Status == StatusClientClosedRequest:
		return "Client Closed Request"
	}
	return cmp.Or(http.StatusText(e.Status), "UnknownError")
}
