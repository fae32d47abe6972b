package frontend

import (
	"net/http"
	"strings"

	"github.com/dynago/dynago/engine"
)

// traceContext returns the W3C trace context of a request, unchanged. What is
// not valid is as if it were not there.
func traceContext(h http.Header) engine.Trace {
	if len(h) == 0 {
		return engine.Trace{}
	}
	parent := h.Get("Traceparent")
	if !validParent(parent) {
		return engine.Trace{}
	}
	state := strings.Join(h.Values("Tracestate"), ",")
	if len(state) > 512 {
		state = "" // longer ones need not be passed on
	}
	return engine.Trace{Parent: parent, State: state}
}

// validParent checks version-traceid-parentid-flags, in lower-case hexadecimal.
// A later version may have more behind it.
func validParent(s string) bool {
	if len(s) < 55 || len(s) > 512 || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	version, trace, span, flags := s[:2], s[3:35], s[36:52], s[53:55]
	if version == "ff" || version == "00" && len(s) != 55 || len(s) > 55 && s[55] != '-' {
		return false
	}
	return hex(version) && hex(trace) && hex(span) && hex(flags) &&
		strings.Trim(trace, "0") != "" && strings.Trim(span, "0") != ""
}

func hex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}
