package mock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
)

// A prefill engine computes the prompt of a request and keeps its blocks until
// the decode engine has come for them. What it hands over says where they lie, and
// carries a seal: who brings back another one, or another prompt, gets nothing. It
// depends on nothing but the two, so that the engines need not know each other.

// Styles of handing over, as cards name them.
const (
	styleSerial     = "nixl"
	styleConcurrent = "bootstrap"
)

// handed is what a prefill engine hands over. Its numbers are larger than a
// float64 holds.
type handed struct {
	Prefill bool   `json:"do_remote_decode,omitzero"` // of the leg that computes
	Decode  bool   `json:"do_remote_prefill,omitzero"`
	ID      string `json:"remote_request_id"`
	Engine  string `json:"remote_engine_id,omitzero"`
	Tokens  int    `json:"remote_tokens,omitzero"`
	Seal    uint64 `json:"seal,omitzero"`
}

// sealed returns what only the hand-off of this prompt under this name carries.
func sealed(id string, prompt []uint32) uint64 {
	d := digest(1)
	for _, b := range []byte(id) {
		d = d.add(uint32(b))
	}
	for _, t := range prompt {
		d = d.add(t)
	}
	return uint64(d) | 1<<62
}

// keeping is the prompts that wait for their decode engines.
type keeping struct {
	mu   sync.Mutex
	next uint64
	kept map[string]*kept
	// coming are the prompts that are being computed; each is closed when its is over.
	coming map[string]chan struct{}
}

type kept struct {
	stream *stream
	until  time.Duration
}

// Prepare implements [engine.Disaggregator]. Where the engine has a place to meet,
// both legs start at once; else the decode leg begins with what the prefill leg's
// last delta hands over.
func (e *Engine) Prepare(_ context.Context, q engine.HandoffQuery) (engine.Handoff, error) {
	if e.cfg.Args.role() != engine.Prefill {
		return engine.Handoff{}, engine.Errorf(engine.Unsupported, "the %s engine was started without \"worker_type\": \"prefill\"", e.cfg.Kind)
	}
	if int(q.Rank) >= len(e.rank) {
		return engine.Handoff{}, engine.Errorf(engine.InvalidArgument, "data-parallel rank %d, want 0 to %d", q.Rank, len(e.rank)-1)
	}
	if e.meeting != nil {
		return e.meeting.prepare(q.Rank, uint32(len(e.rank)))
	}
	e.kept.mu.Lock()
	e.kept.next++
	n := e.kept.next
	e.kept.mu.Unlock()
	id := e.cfg.Name + "/" + strconv.FormatUint(e.Epoch(), 36) + "/" + strconv.FormatUint(n, 10)
	var first any = handed{Prefill: true, ID: id}
	if e.pulls() {
		first = pulled{Version: pullVersion, Handoff: id, Rank: q.Rank}
	}
	text, err := json.Marshal(first)
	return engine.Handoff{ID: id, Prefill: text}, err
}

// Release implements [engine.Disaggregator].
func (e *Engine) Release(_ context.Context, handoff string) error {
	e.letGo(handoff)
	return nil
}

// Kept returns how many prompts wait for a decode engine.
func (e *Engine) Kept() int {
	e.expireKept()
	e.kept.mu.Lock()
	defer e.kept.mu.Unlock()
	return len(e.kept.kept)
}

// keep holds the blocks of a stream that has ended, while its life lasts. One that was
// kept under the same name gives way.
func (e *Engine) keep(id string, s *stream) {
	e.expireKept()
	if old := s.rank.keep(id, s); old != nil {
		old.rank.leave(old)
	}
}

func (r *rank) keep(id string, s *stream) (old *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.core != r.core {
		return nil // the cache is gone, and the blocks with it
	}
	patience := time.Duration(cmp.Or(r.e.cfg.Args.HandoffTimeoutMS, defaultHandoffTimeoutMS)) * time.Millisecond
	old = r.e.kept.put(id, &kept{stream: s, until: r.e.clock.Now() + patience})
	if r.core.waits() {
		r.work() // for as long as this is kept
	}
	return old
}

func (e *Engine) letGo(id string) {
	if k := e.kept.take(id, nil); k != nil {
		k.stream.rank.leave(k.stream)
	}
	e.unmeet(id)
}

// unmeet closes the room of a prompt that is not kept, if there is a place with rooms.
func (e *Engine) unmeet(id string) {
	if e.meeting != nil {
		e.meeting.forget(id)
	}
}

// first returns when the first of them has waited long enough.
func (k *keeping) first() (until time.Duration, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.kept {
		if !ok || one.until < until {
			until, ok = one.until, true
		}
	}
	return until, ok
}

// expireKept lets go of what nobody has come for.
func (e *Engine) expireKept() {
	now := e.clock.Now()
	late := map[string]*kept{}
	e.kept.mu.Lock()
	for id, k := range e.kept.kept {
		if now >= k.until {
			late[id] = k
		}
	}
	e.kept.mu.Unlock()
	for id, k := range late {
		if e.kept.take(id, k) != nil { // and not what was kept under its name since
			k.stream.rank.leave(k.stream)
			e.unmeet(id)
		}
	}
}

// put keeps a prompt, and returns the stream of the one that it replaces, or nil.
func (k *keeping) put(id string, one *kept) (old *stream) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil {
		k.kept = map[string]*kept{}
	}
	if was := k.kept[id]; was != nil {
		old = was.stream
	}
	k.kept[id] = one
	k.settled(id)
	return old
}

// take returns what is kept under a name, if it is that one or one is nil, and keeps it
// no longer.
func (k *keeping) take(id string, one *kept) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	is := k.kept[id]
	if one != nil && is != one {
		return nil
	}
	delete(k.kept, id)
	k.settled(id)
	return is
}

// has says whether something is kept under a name.
func (k *keeping) has(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept[id] != nil
}

// forget drops what is kept on a rank, and returns its names.
func (k *keeping) forget(r *rank) (names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, one := range k.kept {
		if one.stream.rank == r {
			delete(k.kept, id)
			names = append(names, id)
		}
	}
	return names
}

// leg makes a request one of two legs.
func (e *Engine) leg(ctx context.Context, s *stream, q *Request) error {
	d := &s.r.Disagg
	switch d.Phase {
	case engine.PhaseWhole:
		return nil
	case engine.PhasePrefill:
		return e.prefillLeg(s, q)
	case engine.PhaseDecode:
		return e.decodeLeg(ctx, s, q)
	}
	return engine.Errorf(engine.Unsupported, "phase %q is not available on the %s engine", d.Phase, e.cfg.Kind)
}

func (e *Engine) prefillLeg(s *stream, q *Request) error {
	if e.cfg.Args.role() != engine.Prefill {
		return engine.Errorf(engine.Unsupported, "a %s engine of role %q got the prefill leg of a request", e.cfg.Kind, e.cfg.Args.role())
	}
	q.MaxTokens, q.MinTokens = 1, min(q.MinTokens, 1)
	if e.meeting != nil {
		room, err := roomOf(s.r.Disagg.Handoff)
		if err != nil {
			return err
		}
		s.handoff = room.key()
	} else if e.pulls() {
		var h pulled
		if err := json.Unmarshal(s.r.Disagg.Handoff, &h); err != nil || h.Handoff == "" || h.Version != pullVersion {
			return badHandoff("the prefill leg", errors.Join(err, errors.New("want what Prepare made")))
		}
		s.handoff = h.Handoff
		e.kept.expect(s.handoff)
	} else {
		var h handed
		if err := json.Unmarshal(s.r.Disagg.Handoff, &h); err != nil || h.ID == "" || !h.Prefill {
			return badHandoff("the prefill leg", errors.Join(err, errors.New("want what Prepare made")))
		}
		s.handoff = h.ID
	}
	q.Keep = true
	return nil
}

func (e *Engine) decodeLeg(ctx context.Context, s *stream, q *Request) error {
	if r := e.cfg.Args.role(); r != engine.Decode {
		return engine.Errorf(engine.Unsupported, "a %s engine of role %q got the decode leg of a request", e.cfg.Kind, r)
	}
	if e.pulls() {
		return s.fetch(ctx)
	}
	q.Received = len(s.r.TokenIDs)
	if room, err := roomOf(s.r.Disagg.Handoff); err == nil {
		return room.await(ctx)
	}
	var h handed
	if err := json.Unmarshal(s.r.Disagg.Handoff, &h); err != nil {
		return badHandoff("the decode leg", err)
	}
	if !h.Decode || h.Tokens != len(s.r.TokenIDs) || h.Seal != sealed(h.ID, s.r.TokenIDs) {
		return badHandoff("the decode leg", errors.New("it belongs to another prompt"))
	}
	if d := e.cfg.Args.transfer(h.Tokens); d > 0 {
		q.Pace = arriving(q.Pace, d)
	}
	return nil
}

// arriving returns a pace whose first token comes no sooner than its blocks.
func arriving(p []Pace, d time.Duration) []Pace {
	if len(p) == 0 {
		return []Pace{{First: d}}
	}
	p[0].First += d
	return p
}

func badHandoff(leg string, err error) error {
	return &engine.Error{Kind: engine.InvalidArgument, Op: leg, Message: "the hand-off is not valid", Err: err, FromEngine: true}
}

// handOver is what the last delta of a prefill leg carries. A prompt that was
// answered at its first token has nothing to hand over.
func (s *stream) handOver(finish engine.Finish) []byte {
	if s.handoff == "" || finish != engine.FinishLength {
		return nil
	}
	s.keeps = true
	s.e.keep(s.handoff, s)
	if s.e.meeting != nil {
		s.e.meeting.computed(s.handoff)
		if !s.e.kept.has(s.handoff) { // both have met, or the cache is gone
			s.e.meeting.forget(s.handoff)
		}
		return nil
	}
	if s.e.pulls() {
		return s.handOverBlocks()
	}
	text, err := json.Marshal(handed{
		Decode: true, ID: s.handoff, Engine: s.e.cfg.Name, Tokens: len(s.r.TokenIDs), Seal: sealed(s.handoff, s.r.TokenIDs),
	})
	if err != nil {
		panic(fmt.Sprintf("mock: a hand-off cannot be written: %v", err)) // a struct of names and numbers
	}
	return text
}
