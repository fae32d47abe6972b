package sglang

import (
	"slices"

	"github.com/go-json-experiment/json"
)

// fields are the members that a server's /generate takes, by its description of
// itself (OpenAPI). Nil is a server that does not tell: it is taken for one of
// those that most people run.
type fields []string

// has says whether the server takes a member, or what is said where it does not
// tell.
func (f fields) has(name string, untold bool) bool {
	if f == nil {
		return untold
	}
	return slices.Contains(f, name)
}

// describe finds them in a description; nil if they are not there.
func describe(document []byte) fields {
	var d struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if json.Unmarshal(document, &d, lenient) != nil {
		return nil
	}
	var f fields
	for name := range d.Components.Schemas["GenerateReqInput"].Properties {
		f = append(f, name)
	}
	return f
}

// rank is the member that names a rank; "": there is none.
func (f fields) rank() string {
	switch {
	case f.has("routed_dp_rank", true):
		return "routed_dp_rank"
	case f.has("data_parallel_rank", true):
		return "data_parallel_rank"
	}
	return ""
}

// salt is the member that keeps the prefixes of tenants apart; "": there is none.
func (f fields) salt() string {
	switch {
	case f.has("cache_salt", false):
		return "cache_salt"
	case f.has("extra_key", true):
		return "extra_key"
	}
	return ""
}
