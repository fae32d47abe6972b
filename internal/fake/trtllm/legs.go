package trtllm

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Transceiver is where the blocks of prompts lie between two legs.
type Transceiver struct {
	mu    sync.Mutex
	next  int64
	held  map[int64]string // what the decode leg must bring, by number
	pairs map[int64]*pair  // those whose legs run at once, by number
}

// pair is two legs that run at once.
type pair struct {
	waits, computed chan struct{} // closed when the decode leg waits, and has the prompt
	inside          int
}

// smallestID is what numbers of pairs begin at; smaller ones are the server's
// own.
const smallestID = 1 << 42

// Held returns how many prompts nobody has fetched, and legs that wait for others.
func (t *Transceiver) Held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held) + len(t.pairs)
}

// Expire lets go of all prompts that nobody has fetched, as their time-outs do.
func (t *Transceiver) Expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.held)
}

// Styles of legs.
const (
	contextFirst    = 0
	generationFirst = 1
)

// leg is what a request says of the pair that it belongs to.
type leg struct {
	Type   string   `json:"request_type"`
	Number int64    `json:"ctx_request_id,omitzero"`
	State  string   `json:"encoded_opaque_state,omitzero"`
	First  []uint32 `json:"first_gen_tokens,omitzero"`

	Pair     int64  `json:"disagg_request_id,omitzero" since:"1.3"`
	Style    int    `json:"schedule_style,omitzero" since:"1.3"`
	Endpoint string `json:"ctx_info_endpoint,omitzero" since:"1.3"`
	Rank     *int64 `json:"ctx_dp_rank,omitzero" since:"1.3"`
}

// legNames lists the members of legs.
func legNames(old bool) []string { return tagged(reflect.TypeFor[leg](), old) }

// leg reads that of a request, and fetches what the other one has left.
func (s *Server) leg(q *request) (*leg, error) {
	if len(q.Disagg) == 0 || q.Disagg.Kind() == 'n' {
		return nil, nil
	}
	t := s.config.Transceiver
	if t == nil {
		return nil, errors.New("disaggregated_params need a cache_transceiver_config")
	}
	var members map[string]jsontext.Value
	l := new(leg)
	if err := errors.Join(json.Unmarshal(q.Disagg, &members), json.Unmarshal(q.Disagg, l)); err != nil {
		return nil, err
	}
	for name := range members {
		if !slices.Contains(legNames(s.config.Old), name) {
			return nil, fmt.Errorf("disaggregated_params.%s: Extra inputs are not permitted", name)
		}
	}
	switch {
	case l.Type == "context_only" && !s.config.Old && l.Pair < smallestID:
		return nil, fmt.Errorf("disagg_request_id %d is a local one", l.Pair)
	case l.Type == "context_only" && q.Stream:
		return nil, errors.New("a context_only request does not stream")
	case l.Type == "context_only":
	case l.Type != "generation_only":
		return nil, fmt.Errorf("request_type %q is none", l.Type)
	case l.Style == generationFirst && (l.Endpoint == "" || l.Pair < smallestID || l.Number != l.Pair):
		return nil, errors.New("a generation_only request that begins at once has to say where the other leg is")
	case l.Style == contextFirst:
		t.mu.Lock()
		defer t.mu.Unlock()
		if state, ok := t.held[l.Number]; !ok || state != l.State {
			return nil, fmt.Errorf("nothing is held for ctx_request_id %d", l.Number)
		}
		delete(t.held, l.Number)
	}
	return l, nil
}

// begin waits until a leg may begin to compute, if the other one runs at the same
// time. over is for its end.
func (l *leg) begin(ctx context.Context, t *Transceiver) (over func(whole bool), err error) {
	if l == nil || l.Style != generationFirst {
		return func(bool) {}, nil
	}
	t.mu.Lock()
	if t.pairs == nil {
		t.pairs = map[int64]*pair{}
	}
	p := t.pairs[l.Pair]
	if p == nil {
		p = &pair{waits: make(chan struct{}), computed: make(chan struct{})}
		t.pairs[l.Pair] = p
	}
	p.inside++
	t.mu.Unlock()
	await := p.waits
	if l.Type == "generation_only" {
		close(p.waits)
		await = p.computed
	}
	over = func(whole bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if whole && l.Type == "context_only" {
			close(p.computed)
		}
		if p.inside--; p.inside == 0 {
			delete(t.pairs, l.Pair)
		}
	}
	select {
	case <-await:
		return over, nil
	case <-ctx.Done():
		over(false)
		return nil, ctx.Err()
	}
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
	if l.Style == contextFirst {
		t.held[number] = state
	}
	params, err := json.Marshal(&leg{Type: l.Type, Pair: l.Pair, Number: number, State: state, First: ids})
	if err != nil {
		panic(err) // a struct of numbers and texts
	}
	a.Choices[0].Params = jsontext.Value(params)
}

// info tells where decode servers meet this one, if it lets them begin at once.
func (s *Server) info(w http.ResponseWriter, _ *http.Request) {
	params := map[string]any{}
	if s.config.ContextEndpoint != "" {
		params["ctx_dp_rank"], params["ctx_info_endpoint"] = 0, []string{s.config.ContextEndpoint}
	}
	write(w, map[string]any{"disaggregated_params": params})
}
