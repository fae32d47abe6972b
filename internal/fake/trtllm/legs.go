package trtllm

import (
	"encoding/base64"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Transceiver is where the blocks of prompts lie between two legs.
type Transceiver struct {
	mu   sync.Mutex
	next int64
	held map[int64]string // what the decode leg must bring, by number
}

// smallestID is what numbers of pairs begin at; smaller ones are the server's
// own.
const smallestID = 1 << 42

// Held returns how many prompts nobody has fetched.
func (t *Transceiver) Held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held)
}

// leg is what a request says of the pair that it belongs to.
type leg struct {
	Type   string   `json:"request_type"`
	Pair   int64    `json:"disagg_request_id"`
	Number int64    `json:"ctx_request_id"`
	State  string   `json:"encoded_opaque_state"`
	First  []uint32 `json:"first_gen_tokens"`
}

// leg reads that of a request, and fetches what the other one has left.
func (s *Server) leg(q *request) (*leg, error) {
	if len(q.Disagg) == 0 || q.Disagg.Kind() == 'n' {
		return nil, nil
	}
	t := s.config.Transceiver
	if t == nil {
		return nil, fmt.Errorf("disaggregated_params need a cache_transceiver_config")
	}
	l := new(leg)
	if err := json.Unmarshal(q.Disagg, l, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	switch l.Type {
	case "context_only":
		if l.Pair < smallestID {
			return nil, fmt.Errorf("disagg_request_id %d is a local one", l.Pair)
		}
		if q.Stream {
			return nil, fmt.Errorf("a context_only request does not stream")
		}
	case "generation_only":
		t.mu.Lock()
		defer t.mu.Unlock()
		if state, ok := t.held[l.Number]; !ok || state != l.State {
			return nil, fmt.Errorf("nothing is held for ctx_request_id %d", l.Number)
		}
		delete(t.held, l.Number)
	default:
		return nil, fmt.Errorf("request_type %q is none", l.Type)
	}
	return l, nil
}

// prefilled leaves the blocks of a prompt for the other leg, if there will be
// one, and says where.
func (l *leg) prefilled(t *Transceiver, a *answer, q *request, ids []uint32) {
	if l.Type != "context_only" {
		return
	}
	a.Prompt = [][]uint32{q.Prompt}
	if *a.Choices[0].Finish != "length" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held == nil {
		t.held = map[int64]string{}
	}
	t.next++
	number := 1<<53 + 2*t.next - 1 // odd, so that no float64 holds it
	state := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "blocks of %d", number))
	t.held[number] = state
	params, err := json.Marshal(&leg{Type: l.Type, Pair: l.Pair, Number: number, State: state, First: ids})
	if err != nil {
		panic(err) // a struct of numbers and texts
	}
	a.Choices[0].Params = jsontext.Value(params)
}
