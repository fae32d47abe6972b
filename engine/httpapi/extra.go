package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// Lenient are the options with which what engines send is read: their texts may be
// cut within a character, and their objects may say a thing twice.
var Lenient = jsonv2.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// Extra reads the members that somebody adds to the body of a request: an object,
// or nothing. Those on which the adapter itself stands are not for others to set.
func Extra(raw json.RawMessage, own ...string) (map[string]json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, fmt.Errorf("want a JSON object: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if slices.Contains(own, name) {
			return nil, fmt.Errorf("%s is set by the adapter and cannot be given", name)
		}
	}
	return members, nil
}

// Traced returns the headers that carry a trace on.
func Traced(t engine.Trace) http.Header {
	h := http.Header{}
	if t.Parent != "" {
		h.Set("Traceparent", t.Parent)
	}
	if t.State != "" {
		h.Set("Tracestate", t.State)
	}
	return h
}

// InStream is the error that an event of a stream tells of. Its code is the status
// that the answer would have had; without one it is a failure of the engine.
func InStream(data []byte) error {
	status, err := strconv.Atoi(Told(data).Code)
	if err != nil || status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	return ErrorOf(status, http.Header{}, data)
}
