package openai

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/dynago/dynago/internal/wire"
)

// AppendError appends the body of an error answer: OpenAI's nested object and
// the flat members of the reference beside it, for both kinds of client.
func AppendError(dst []byte, e *wire.Error) []byte {
	dst = append(dst, `{"error":`...)
	dst = appendNested(dst, e)
	dst = append(dst, `,"message":`...)
	dst = wire.AppendString(dst, e.Error())
	dst = append(dst, `,"type":`...)
	dst = wire.AppendString(dst, reason(e))
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

// AppendErrorFrame appends the error as it ends a stream that has begun: a data
// frame, then the end marker.
func AppendErrorFrame(dst []byte, e *wire.Error) []byte {
	dst = append(dst, `data: {"error":`...)
	dst = appendNested(dst, e)
	dst = append(dst, `,"status":`...)
	dst = strconv.AppendInt(dst, int64(e.Status), 10)
	return append(dst, "}\n\n"+endMarker...)
}

const endMarker = "data: [DONE]\n\n"

func appendNested(dst []byte, e *wire.Error) []byte {
	kind := cmp.Or(e.Type, typeOf(e.Status))
	dst = append(dst, `{"message":`...)
	dst = wire.AppendString(dst, e.Error())
	dst = append(dst, `,"type":`...)
	dst = wire.AppendString(dst, kind)
	dst = append(dst, `,"param":`...)
	if e.Param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = wire.AppendString(dst, e.Param)
	}
	dst = append(dst, `,"code":`...)
	dst = wire.AppendString(dst, cmp.Or(e.Code, codeOf(e.Status), kind))
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
		return wire.CodeInvalidAPIKey
	case http.StatusNotFound:
		return wire.CodeModelNotFound
	case http.StatusRequestEntityTooLarge:
		return wire.CodeRequestTooLarge
	case http.StatusTooManyRequests:
		return wire.CodeRateLimit
	case wire.StatusClientClosedRequest:
		return wire.CodeCancelled
	case http.StatusNotImplemented:
		return wire.CodeUnsupported
	case http.StatusServiceUnavailable, wire.StatusOverloaded:
		return wire.CodeOverloaded
	case http.StatusGatewayTimeout:
		return wire.CodeTimeout
	}
	return ""
}

// reason returns the flat type: the reason phrase of the status.
func reason(e *wire.Error) string {
	switch {
	case e.Status == wire.StatusOverloaded, e.Code == wire.CodeOverloaded && e.Status != http.StatusServiceUnavailable:
		return "Overloaded"
	case e.Status == http.StatusRequestEntityTooLarge:
		return "Payload Too Large"
	case e.Status == wire.StatusClientClosedRequest:
		return "Client Closed Request"
	}
	return cmp.Or(http.StatusText(e.Status), "UnknownError")
}
