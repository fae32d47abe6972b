package anthropic

import (
	"encoding/json"
	"net/http"

	"github.com/dynago/dynago/internal/wire"
)

// AppendError appends the body of an error answer. id is that of the request, or
// empty.
func AppendError(dst []byte, e *wire.Error, id string) []byte {
	dst = append(dst, `{"type":"error","error":`...)
	dst = appendInner(dst, e)
	if id != "" {
		dst = append(dst, `,"request_id":`...)
		dst = wire.AppendString(dst, id)
	}
	return append(dst, '}')
}

// AppendErrorFrame appends the event that ends a stream which fails.
func AppendErrorFrame(dst []byte, e *wire.Error) []byte {
	dst = append(dst, "event: error\ndata: "+`{"type":"error","error":`...)
	return append(appendInner(dst, e), "}\n\n"...)
}

func appendInner(dst []byte, e *wire.Error) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, typeOf(e)...)
	dst = append(dst, `","message":`...)
	dst = wire.AppendString(dst, messageOf(e))
	if e.Details != nil {
		if details, err := json.Marshal(e.Details); err == nil {
			dst = append(append(dst, `,"details":`...), details...)
		}
	}
	return append(dst, '}')
}

// typeOf returns the API's error type.
func typeOf(e *wire.Error) string {
	if e.Code == wire.CodeOverloaded {
		return "overloaded_error" // whatever status the operator has chosen for it
	}
	switch e.Status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case wire.StatusClientClosedRequest:
		return "request_cancelled"
	case http.StatusServiceUnavailable, wire.StatusOverloaded:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if e.Status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// messageOf returns what a client is told. Of a fault of ours it is always the
// same.
func messageOf(e *wire.Error) string {
	if e.Status == http.StatusInternalServerError {
		return "Internal server error"
	}
	return e.Message
}
