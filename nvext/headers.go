package nvext

import (
	"strconv"
	"strings"
)

// WithHeaders returns e with what the headers of the request say in its place; a
// nil e stays nil if they say nothing. header returns the values of one, whatever
// the case of its name, and none if it is absent. A header that does not parse is
// as good as absent, but it keeps its older names from being looked at; bad lists
// such ones. e may be changed.
func (e *Ext) WithHeaders(header func(name string) []string) (_ *Ext, bad []string) {
	h := &headers{get: header}
	out := e
	ext := func() *Ext {
		if out == nil {
			out = new(Ext)
		}
		return out
	}
	hints := func() *Hints {
		if ext().AgentHints == nil {
			out.AgentHints = new(Hints)
		}
		return out.AgentHints
	}
	if id, ok := h.number(64, "X-Dynamo-Worker-Instance-Id", "X-Worker-Instance-Id"); ok {
		ext().BackendInstanceID, ext().DecodeWorkerID = new(WorkerID(id)), new(WorkerID(id))
	}
	if id, ok := h.number(64, "X-Dynamo-Prefill-Instance-Id", "X-Prefill-Instance-Id"); ok {
		ext().PrefillWorkerID = new(WorkerID(id))
	}
	if rank, ok := h.number(32, "X-Dynamo-Dp-Rank", "X-Dp-Rank", "X-Data-Parallel-Rank"); ok {
		ext().DPRank = new(uint32(rank))
	}
	if rank, ok := h.number(32, "X-Dynamo-Prefill-Dp-Rank", "X-Prefill-Dp-Rank"); ok {
		ext().PrefillDPRank = new(uint32(rank))
	}
	if name, text := h.text("X-Dynamo-Request-Priority"); name != "" {
		if n, err := strconv.ParseInt(text, 10, 32); err != nil {
			h.bad = append(h.bad, name)
		} else {
			hints().Priority = new(int32(n))
		}
	}
	if tier, ok := h.number(32, "X-Dynamo-Request-Strict-Priority"); ok {
		hints().StrictPriority = new(uint32(tier))
	}
	switch name, tenant := h.text("X-Tenant-Id"); {
	case len(tenant) > MaxSalt:
		h.bad = append(h.bad, name)
	case tenant != "":
		ext().CacheSalt = tenant
	}
	return out, h.bad
}

// HasHeaders says whether any header is there that [Ext.WithHeaders] reads.
func HasHeaders(header func(name string) []string) bool {
	there := false
	new(Ext).WithHeaders(func(name string) []string {
		values := header(name)
		there = there || len(values) > 0
		return values
	})
	return there
}

// headers reads values of headers, and notes which of them are bad.
type headers struct {
	get func(name string) []string
	bad []string
}

// text returns the first of these headers that is there; no name if there is none.
func (h *headers) text(names ...string) (name, value string) {
	for _, name := range names {
		if values := h.get(name); len(values) > 0 {
			return name, strings.TrimSpace(values[0])
		}
	}
	return "", ""
}

// number returns what the first of these headers says that is there, if it is a
// number of so many bits.
func (h *headers) number(bits int, names ...string) (uint64, bool) {
	name, text := h.text(names...)
	if name == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		h.bad = append(h.bad, name)
	}
	return n, err == nil
}
