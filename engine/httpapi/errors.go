package httpapi

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// ErrorOf classifies an engine's answer that is none, by what can be done about
// it. Only the text of an invalid argument is for the client; of everything else
// it is for the log.
func ErrorOf(status int, header http.Header, body []byte) *engine.Error {
	told := Told(body)
	e := &engine.Error{Message: told.Message, Param: told.Param, FromEngine: true, Status: status}
	switch {
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity:
		e.Kind = engine.InvalidArgument
		if isTooLong(&told) {
			e.Code = "context_length_exceeded"
		}
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Kind = engine.Denied
	case status == http.StatusNotFound && told.Found:
		e.Kind = engine.NotFound
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		e.Kind = engine.Unsupported
	case status == http.StatusTooManyRequests:
		e.Kind = engine.WorkerOverloaded
	case status == http.StatusServiceUnavailable && strings.Contains(strings.ToLower(told.Message), "queue"):
		e.Kind = engine.WorkerOverloaded
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		e.Kind = engine.Unavailable
	default:
		e.Kind = engine.Internal
	}
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = min(time.Duration(seconds)*time.Second, time.Minute)
	}
	return e
}

// tooLong are the words by which engines say that a prompt is longer than they take.
var tooLong = []string{
	"context length", "longer than the model", "maximum model length", // vLLM, SGLang
	"exceeds the available context size", "exceed_context_size", // llama.cpp
	"max_num_tokens", "max_input_len", "max_seq_len", // TensorRT-LLM
}

func isTooLong(f *Fault) bool {
	said := strings.ToLower(f.Message + " " + f.Type)
	return slices.ContainsFunc(tooLong, func(words string) bool { return strings.Contains(said, words) })
}

// Fault is what an engine tells of a failure.
type Fault struct {
	Found   bool // the body tells of one
	Message string
	Type    string
	Param   string
	Code    string // a number or a word
}

// Told finds a failure in a JSON object, in any of the shapes in use: under
// error as an object or a text, at the top beside object: "error", or as the
// detail of a web framework.
func Told(body []byte) Fault {
	var f Fault
	top := members(body)
	switch e := top["error"]; {
	case len(e) > 0 && e[0] == '{':
		f = fault(members(e))
		f.Found = true
	case len(e) > 0 && e[0] == '"':
		f.Found, f.Message = true, text(e)
	case text(top["object"]) == "error":
		f = fault(top)
		f.Found = true
	case len(top["detail"]) > 0:
		// A route that does not exist has the detail "Not Found": that tells of
		// the route, and of nothing that was asked for.
		f.Message = text(top["detail"])
		if f.Message == "" {
			f.Message = string(top["detail"])
		}
		f.Found = f.Message != "Not Found" && f.Message != "Method Not Allowed"
	}
	const most = 2000
	if len(f.Message) > most {
		f.Message = strings.ToValidUTF8(f.Message[:most], "") + "…"
	}
	return f
}

func fault(m map[string][]byte) Fault {
	f := Fault{Message: text(m["message"]), Type: text(m["type"]), Param: text(m["param"]), Code: text(m["code"])}
	if f.Code == "" && string(m["code"]) != "null" {
		f.Code = string(m["code"])
	}
	return f
}

// members returns those of an object, raw; none if it is no object.
func members(object []byte) map[string][]byte {
	d := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() != '{' {
		return nil
	}
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	out := map[string][]byte{}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			break
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil {
			break
		}
		out[key] = bytes.Clone(value)
	}
	return out
}

// text returns what a JSON string says, "" for anything else.
func text(value []byte) string {
	if len(value) == 0 || value[0] != '"' {
		return ""
	}
	s, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return ""
	}
	return string(s)
}
