package nvext

import (
	"strconv"
	"strings"
)

// WithHeaders returns e with what the headers of the request say in its place; a
// nil e stays nil if they say nothing. header returns the values of one, whatever
// the case of its name, and none if it is absent. A header that does not parse is
// as good as absent, but it keeps its older names from being looked at. e may be
// changed.
func (e *Ext) WithHeaders(header func(name string) []string) *Ext {
	h := headers{header}
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
	if text, ok := h.text("X-Dynamo-Request-Priority"); ok {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			hints().Priority = new(int32(n))
		}
	}
	if tier, ok := h.number(32, "X-Dynamo-Request-Strict-Priority"); ok {
		hints().StrictPriority = new(uint32(tier))
	}
	if tenant, ok := h.text("X-Tenant-Id"); ok && tenant != "" {
		ext().CacheSalt = tenant
	}
	return out
}

// headers reads values of headers.
type headers struct{ get func(name string) []string }

// text returns the first of these headers that is there.
func (h headers) text(names ...string) (string, bool) {
	for _, name := range names {
		if values := h.get(name); len(values) > 0 {
			return strings.TrimSpace(values[0]), true
		}
	}
	return "", false
}

// number returns what the first of these headers says that is there, if it is a
// number of so many bits.
func (h headers) number(bits int, names ...string) (uint64, bool) {
	text, ok := h.text(names...)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, bits)
	return n, err == nil
}
