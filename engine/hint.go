package engine

import (
	"encoding/json"
	"strconv"

	"github.com/dynago/dynago/kv"
)

// Some workers fetch blocks from each other, if they are told from whom. One that does
// says so in its card, and how others fetch from it; a request that is sent to it then
// names the worker that holds more of its prompt.

// HintSource says that a worker takes such hints, and how others fetch from it.
type HintSource struct {
	WorkerType string            // only those of one type fetch from each other
	Endpoints  map[uint32]string // by rank
}

// mostUserData bounds what a worker says of itself in words of its own, in bytes.
const mostUserData = 64 << 10

// hintData is what is read of that.
type hintData struct {
	Hint       bool            `json:"router_hint"`
	WorkerType string          `json:"router_hint_worker_type,omitempty"`
	Endpoints  json.RawMessage `json:"router_hint_source_control_endpoints,omitempty"`
}

// ParseHintSource reads a worker's own words: a JSON object with the members
// router_hint, router_hint_worker_type and router_hint_source_control_endpoints, which
// is an array or has ranks for names. It returns nil where nothing is said of hints.
func ParseHintSource(userData []byte) *HintSource {
	var d hintData
	if len(userData) == 0 || len(userData) > mostUserData || json.Unmarshal(userData, &d) != nil || !d.Hint {
		return nil
	}
	s := &HintSource{WorkerType: d.WorkerType, Endpoints: map[uint32]string{}}
	var list []string
	var named map[string]string
	switch {
	case json.Unmarshal(d.Endpoints, &list) == nil:
		for rank, endpoint := range list {
			s.Endpoints[uint32(rank)] = endpoint
		}
	case json.Unmarshal(d.Endpoints, &named) == nil:
		for name, endpoint := range named {
			if rank, err := strconv.ParseUint(name, 10, 32); err == nil {
				s.Endpoints[uint32(rank)] = endpoint
			}
		}
	}
	return s
}

// UserData returns what a worker says of itself in words of its own; nil of a nil one.
func (s *HintSource) UserData() []byte {
	if s == nil {
		return nil
	}
	named := make(map[string]string, len(s.Endpoints))
	for rank, endpoint := range s.Endpoints {
		named[strconv.FormatUint(uint64(rank), 10)] = endpoint
	}
	endpoints, _ := json.Marshal(named) // texts
	text, _ := json.Marshal(hintData{true, s.WorkerType, endpoints})
	return text
}

// Hint names who holds more of a prompt than the worker that computes it, and what.
type Hint struct {
	Endpoint string       `json:"source_control_endpoint"`
	Blocks   []kv.SeqHash `json:"block_hashes"` // from the root
}

// Params returns the members of a request's Extra by which a hint is told.
func (h *Hint) Params() map[string]any {
	return map[string]any{"kv_transfer_params": map[string]any{"router_hint": h}}
}
