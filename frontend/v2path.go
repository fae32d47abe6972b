package frontend

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const v2Models = v2Prefix + "/models/"

// v2Verb is what a path below [v2Models] ends with. That of a model's own description
// is empty.
type v2Verb string

const (
	v2ModelReady     v2Verb = "ready"
	v2Config         v2Verb = "config"
	v2Stats          v2Verb = "stats"
	v2Infer          v2Verb = "infer"
	v2Generate       v2Verb = "generate"
	v2GenerateStream v2Verb = "generate_stream"
)

var v2Verbs = []v2Verb{v2ModelReady, v2Config, v2Stats, v2Infer, v2Generate, v2GenerateStream}

// v2Path is what a path below [v2Models] names.
type v2Path struct {
	model, version string // as the client spells them, decoded
	verb           v2Verb
}

// method returns the one by which a path can be asked for.
func (p v2Path) method() string {
	switch p.verb {
	case v2Infer, v2Generate, v2GenerateStream:
		return http.MethodPost
	}
	return http.MethodGet
}

// v2PathOf reads a path as it came, so that a slash of a name that is encoded is none
// of the path. Where slashes are not encoded a name goes as far as the verb, or as the
// version before that; one that ends like a verb is that of a model that has it.
func v2PathOf(escaped string, known func(model string) bool) (p v2Path, ok bool) {
	rest, ok := strings.CutPrefix(escaped, v2Models)
	if !ok {
		return p, false
	}
	parts := strings.Split(rest, "/")
	whole, ok := unescape(parts)
	if !ok {
		return p, false
	}
	if verb := v2Verb(parts[len(parts)-1]); slices.Contains(v2Verbs, verb) && !known(whole) {
		p.verb, parts = verb, parts[:len(parts)-1]
	}
	if n := len(parts); n > 2 && parts[n-2] == "versions" {
		p.version, _ = unescape(parts[n-1:])
		parts = parts[:n-2]
	}
	p.model, _ = unescape(parts)
	return p, p.model != "" || p.verb == v2Stats
}

// unescape joins parts of a path to a name, which is text for whoever gets it.
func unescape(parts []string) (name string, ok bool) {
	name, err := url.PathUnescape(strings.Join(parts, "/"))
	return strings.ToValidUTF8(name, "\uFFFD"), err == nil
}
