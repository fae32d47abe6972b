package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// legs are two engines of which one computes prompts for the other.
type legs struct {
	prefill, decode engine.Engine
	meet            engine.Disaggregator
}

func startLegs(t *testing.T, start func(*testing.T) (prefill, decode engine.Engine)) legs {
	t.Helper()
	l := legs{}
	l.prefill, l.decode = start(t)
	p, d := ready(t, l.prefill).Card, ready(t, l.decode).Card
	if p.Role != engine.Prefill || d.Role != engine.Decode || p.Disagg.Style == "" || !p.Features.Has(engine.FeatureHandoff) {
		t.Fatalf("the cards say %q with style %q and features %v, and %q", p.Role, p.Disagg.Style, p.Features, d.Role)
	}
	var ok bool
	if l.meet, ok = engine.As[engine.Disaggregator](l.prefill); !ok {
		t.Fatal("the prefill engine's card says that it hands over, and it does not")
	}
	return l
}

func (l *legs) prepare(t *testing.T, r *engine.Request) engine.Handoff {
	t.Helper()
	h, err := l.meet.Prepare(t.Context(), engine.HandoffQuery{Request: r.ID, Decode: kv.Target{Worker: 1}})
	if err != nil || h.ID == "" {
		t.Fatalf("prepare: %+v, %v", h, err)
	}
	return h
}

// leg returns one leg of a request.
func leg(r *engine.Request, phase engine.Phase, handoff json.RawMessage) *engine.Request {
	c := *r
	c.Disagg = engine.Disagg{Phase: phase, Handoff: handoff}
	if phase == engine.PhasePrefill {
		c.Stop.MaxTokens = 1
	}
	return &c
}

// compute runs the prefill leg, and returns what the decode leg is to get.
func (l *legs) compute(t *testing.T, r *engine.Request, h engine.Handoff) json.RawMessage {
	t.Helper()
	a := generate(t, l.prefill, leg(r, engine.PhasePrefill, h.Prefill))
	if len(a.ids) > 1 {
		t.Errorf("the prefill leg made %d tokens", len(a.ids))
	}
	for _, d := range a.deltas[:len(a.deltas)-1] {
		if d.Handoff != nil {
			t.Errorf("a hand-off before the end: %+v", d)
		}
	}
	if a.last.Handoff == nil || !json.Valid(a.last.Handoff) {
		t.Fatalf("the prefill leg hands over %q", a.last.Handoff)
	}
	return a.last.Handoff
}

func twoLegs(t *testing.T, s *Subject) {
	whole := s.New(t)
	ready(t, whole)
	l := startLegs(t, s.Legs)
	for _, n := range []int{1, 15, 64, 200} {
		r := s.request(uint64(n), n, 20)
		want := generate(t, whole, r).ids
		h := l.prepare(t, r)
		if h.Concurrent {
			t.Fatal("both legs are to start at once, where they were to follow each other")
		}
		got := generate(t, l.decode, leg(r, engine.PhaseDecode, l.compute(t, r, h)))
		if !slices.Equal(got.ids, want) {
			t.Errorf("prompt of %d: two legs gave %v, one %v", n, got.ids, want)
		}
		if err := l.meet.Release(t.Context(), h.ID); err != nil {
			t.Errorf("release: %v", err)
		}
	}
}

// used waits until a prefill engine holds as many blocks as it did.
func (l *legs) used(t *testing.T, what string, want int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var last int64
	for r, err := range l.prefill.Load(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		last = 0
		for _, rank := range r.Ranks {
			last += rank.UsedBlocks
		}
		if last == want {
			return
		}
	}
	t.Errorf("%s: %d blocks in use, want %d", what, last, want)
}

func handoff(t *testing.T, s *Subject) {
	l := startLegs(t, s.Legs)
	l.used(t, "at first", 0)
	r := s.request(7, 100, 12)
	first, second := l.prepare(t, r), l.prepare(t, r)
	if first.ID == second.ID {
		t.Errorf("two hand-offs have one name, %q", first.ID)
	}
	h := l.compute(t, r, first)
	got := generate(t, l.decode, leg(r, engine.PhaseDecode, h)).ids
	// What comes back is what went out, byte for byte: a space more is the same JSON.
	spaced := append(bytes.Clone(h[:len(h)-1]), ' ', '}')
	if again := generate(t, l.decode, leg(r, engine.PhaseDecode, spaced)).ids; !slices.Equal(again, got) {
		t.Errorf("the same hand-off gave %v, then %v", got, again)
	}
	for range 2 { // the second time there is nothing left to let go of
		if err := l.meet.Release(t.Context(), first.ID); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	if err := l.meet.Release(t.Context(), "never heard of"); err != nil {
		t.Errorf("release of an unknown hand-off: %v", err)
	}
	l.used(t, "after the release", 0)
	// Blocks that are gone are computed: an answer never depends on them.
	if late := generate(t, l.decode, leg(r, engine.PhaseDecode, h)).ids; !slices.Equal(late, got) {
		t.Errorf("after the release the hand-off gave %v, before %v", late, got)
	}
}

// A decode leg whose blocks do not come is left at once.
func goneWhileWaiting(t *testing.T, s *Subject) {
	l := startLegs(t, s.Meeting)
	r := s.request(3, 40, 5)
	h := l.prepare(t, r)
	if !h.Concurrent || h.Decode == nil {
		t.Fatalf("%+v, want both legs to start at once", h)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	end := make(chan error, 1)
	go func() { end <- collect(ctx, t, l.decode, leg(r, engine.PhaseDecode, h.Decode)).err }()
	select {
	case err := <-end:
		t.Fatalf("the decode leg did not wait for the prompt: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	at := time.Now()
	cancel(engine.ErrClientGone)
	err := <-end
	s.soon(t, "leaving a leg that waits", at)
	if engine.KindOf(err) != engine.Cancelled {
		t.Errorf("%v, want the kind of the context", err)
	}
	if err := l.meet.Release(t.Context(), h.ID); err != nil {
		t.Errorf("release: %v", err)
	}
	// And the engines serve as before.
	h = l.prepare(t, r)
	prefilled := make(chan answer, 1)
	go func() { prefilled <- collect(t.Context(), t, l.prefill, leg(r, engine.PhasePrefill, h.Prefill)) }()
	if got := generate(t, l.decode, leg(r, engine.PhaseDecode, h.Decode)); len(got.ids) != 5 {
		t.Errorf("%d tokens of 5", len(got.ids))
	}
	if a := <-prefilled; a.err != nil || len(a.ids) > 1 {
		t.Errorf("the prefill leg: %v %v", a.ids, a.err)
	}
}
