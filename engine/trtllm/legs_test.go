package trtllm_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/trtllm"
	fake "github.com/dynago/dynago/internal/fake/trtllm"
)

// pair is a prefill and a decode server whose legs begin at once.
type pair struct {
	between         fake.Transceiver
	prefill, decode *attached
	handoff         engine.Handoff
	answer          int // tokens
}

const endpoint = "tcp://10.1.0.7:7000"

func steady(a *mock.Args) {
	a.SpeedupRatio, a.TimingModel, a.PrefillMS, a.DecodeMS = 1, "constant", 20, 3
}

// sluggish is steady with prompts that take long enough to be seen being computed.
func sluggish(a *mock.Args) {
	steady(a)
	a.PrefillMS = 500
}

func pairUp(t *testing.T, pace func(*mock.Args)) *pair {
	t.Helper()
	p := &pair{answer: 12}
	p.prefill = attach(t, fake.Config{Transceiver: &p.between, ContextEndpoint: endpoint}, trtllm.Config{Role: engine.Prefill, GenerationFirst: true}, pace)
	p.decode = attach(t, fake.Config{Transceiver: &p.between}, trtllm.Config{Role: engine.Decode}, pace)
	p.prefill.ready(t)
	p.decode.ready(t)
	p.prepare(t)
	return p
}

func (p *pair) prepare(t *testing.T) {
	t.Helper()
	h, err := p.prefill.Prepare(t.Context(), engine.HandoffQuery{})
	if err != nil || !h.Concurrent {
		t.Fatalf("%+v, %v", h, err)
	}
	p.handoff = h
}

func (p *pair) leg(phase engine.Phase) *engine.Request {
	h := p.handoff.Prefill
	if phase == engine.PhaseDecode {
		h = p.handoff.Decode
	}
	return &engine.Request{ID: "u-1", Model: "m", TokenIDs: []uint32{5, 6, 7}, Stop: engine.Stop{MaxTokens: p.answer}, Disagg: engine.Disagg{Phase: phase, Handoff: h}}
}

// result is what a leg gave.
type result struct {
	ids  []uint32
	last engine.Delta
	err  error
}

func (p *pair) run(ctx context.Context, phase engine.Phase) <-chan result {
	e := p.prefill
	if phase == engine.PhaseDecode {
		e = p.decode
	}
	done := make(chan result, 1)
	go func() {
		ids, last, err := collect(ctx, e, p.leg(phase))
		done <- result{ids, last, err}
	}()
	return done
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func (p *pair) over(t *testing.T) {
	t.Helper()
	await(t, "nothing held", func() bool { return p.between.Held() == 0 })
}

// Both legs begin at once and give what one server does.
func TestGenerationFirst(t *testing.T) {
	p := pairUp(t, steady)
	whole := p.leg(engine.PhaseDecode)
	whole.Disagg = engine.Disagg{}
	want, _, err := collect(t.Context(), p.decode, whole)
	if err != nil {
		t.Fatal(err)
	}
	decode, prefill := p.run(t.Context(), engine.PhaseDecode), p.run(t.Context(), engine.PhasePrefill)
	first, got := <-prefill, <-decode
	if first.err != nil || got.err != nil || !slices.Equal(got.ids, want) || len(first.ids) != 1 {
		t.Errorf("%+v and %+v, want %v", first, got, want)
	}
	var sent struct {
		Params map[string]json.RawMessage `json:"disaggregated_params"`
	}
	if err := json.Unmarshal(p.decode.server.Last(), &sent); err != nil || string(sent.Params["ctx_info_endpoint"]) != `"`+endpoint+`"` || string(sent.Params["schedule_style"]) != "1" {
		t.Errorf("decode leg: %s", p.decode.server.Last())
	}
	p.over(t)
}

// A client that leaves is free at once; what was begun comes to where the other
// server does not wait for it any more.
func TestQuirk10LegsOutliveTheirClient(t *testing.T) {
	p := pairUp(t, sluggish)
	p.answer = 3000 // longer than anybody here waits
	ctx, gone := context.WithCancelCause(t.Context())
	decode, prefill := p.run(ctx, engine.PhaseDecode), p.run(ctx, engine.PhasePrefill)
	await(t, "both legs begun", func() bool { return p.decode.server.Running() == 1 && p.prefill.server.Running() == 1 })
	left := time.Now()
	gone(engine.ErrClientGone)
	for _, leg := range []<-chan result{decode, prefill} {
		if r := <-leg; engine.KindOf(r.err) != engine.Cancelled {
			t.Errorf("%v", r.err)
		}
	}
	if d := time.Since(left); d > 2*time.Second {
		t.Errorf("the client was free after %v", d)
	}
	p.over(t)
	await(t, "both servers free", func() bool { return p.prefill.server.Running() == 0 && p.decode.server.Running() == 0 })
}

// What is wrong with one leg ends the other at once.
func TestLegsThatFail(t *testing.T) {
	for _, phase := range []engine.Phase{engine.PhaseDecode, engine.PhasePrefill} {
		p := pairUp(t, steady)
		ctx, cancel := context.WithCancelCause(t.Context())
		leg := p.run(ctx, phase) // the other one never comes
		await(t, "the leg begun", func() bool { return p.between.Held() == 1 })
		why := engine.Errorf(engine.Unavailable, "the other leg has failed")
		cancel(why)
		if r := <-leg; !errors.Is(r.err, why) {
			t.Errorf("%s: %v", phase, r.err)
		}
		p.over(t)
	}
}

// Servers that die under the legs of a request leave nothing behind, and the next
// one is answered.
func TestLegsOfServersThatDie(t *testing.T) {
	for _, phase := range []engine.Phase{engine.PhaseDecode, engine.PhasePrefill} {
		p := pairUp(t, sluggish)
		ctx, cancel := context.WithCancelCause(t.Context())
		legs := map[engine.Phase]<-chan result{engine.PhaseDecode: p.run(ctx, engine.PhaseDecode), engine.PhasePrefill: p.run(ctx, engine.PhasePrefill)}
		await(t, "both legs begun", func() bool { return p.decode.server.Running() == 1 && p.prefill.server.Running() == 1 })
		if phase == engine.PhaseDecode {
			p.decode.server.Restart()
		} else {
			p.prefill.server.Restart()
		}
		r := <-legs[phase]
		if engine.KindOf(r.err).Retry() != engine.RetryMigrate {
			t.Errorf("%s: %v", phase, r.err)
		}
		cancel(r.err)
		p.over(t)
		p.prepare(t)
		decode, prefill := p.run(t.Context(), engine.PhaseDecode), p.run(t.Context(), engine.PhasePrefill)
		if err := errors.Join((<-prefill).err, (<-decode).err); err != nil {
			t.Errorf("%s: the next request: %v", phase, err)
		}
	}
}

// Whoever closes the engine waits for no leg.
func TestCloseEndsLegs(t *testing.T) {
	p := pairUp(t, steady)
	ctx, gone := context.WithCancelCause(t.Context())
	decode := p.run(ctx, engine.PhaseDecode)
	await(t, "the leg begun", func() bool { return p.between.Held() == 1 })
	gone(engine.ErrClientGone)
	<-decode
	closed := make(chan error, 1)
	go func() { closed <- p.decode.Engine.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Close waits for a leg")
	}
	p.over(t)
}

// A prefill server that does not tell where it is met cannot let both legs begin at
// once, which its status says.
func TestGenerationFirstWithoutAPlace(t *testing.T) {
	a := attach(t, fake.Config{Transceiver: new(fake.Transceiver)}, trtllm.Config{Role: engine.Prefill, GenerationFirst: true})
	for s := range a.Card(t.Context()) {
		if s.State != engine.Failed || !strings.Contains(s.Reason, "ctx_info_endpoint") {
			t.Errorf("%+v", s)
		}
		break
	}
	if _, err := a.Prepare(t.Context(), engine.HandoffQuery{}); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("%v", err)
	}
}

// An early server is sent only what its own description has of legs.
func TestQuirk15LegsOfEarlyServers(t *testing.T) {
	between := new(fake.Transceiver)
	prefill := attach(t, fake.Config{Transceiver: between, Old: true, Described: true}, trtllm.Config{Role: engine.Prefill})
	decode := attach(t, fake.Config{Transceiver: between, Old: true, Described: true}, trtllm.Config{Role: engine.Decode})
	prefill.ready(t)
	decode.ready(t)
	h, err := prefill.Prepare(t.Context(), engine.HandoffQuery{})
	if err != nil {
		t.Fatal(err)
	}
	r := engine.Request{Model: "m", TokenIDs: []uint32{5, 6, 7}, Stop: engine.Stop{MaxTokens: 4}}
	r.Disagg = engine.Disagg{Phase: engine.PhasePrefill, Handoff: h.Prefill}
	_, last, err := collect(t.Context(), prefill, &r)
	if err != nil {
		t.Fatal(err)
	}
	r.Disagg = engine.Disagg{Phase: engine.PhaseDecode, Handoff: last.Handoff}
	if ids, _, err := collect(t.Context(), decode, &r); err != nil || len(ids) != 4 {
		t.Errorf("%v, %v", ids, err)
	}
}

// Blocks that a server has let go of are not the client's fault: another pair may
// compute them anew.
func TestHandoffsExpire(t *testing.T) {
	between := new(fake.Transceiver)
	prefill := attach(t, fake.Config{Transceiver: between}, trtllm.Config{Role: engine.Prefill})
	decode := attach(t, fake.Config{Transceiver: between}, trtllm.Config{Role: engine.Decode})
	prefill.ready(t)
	decode.ready(t)
	h, err := prefill.Prepare(t.Context(), engine.HandoffQuery{})
	if err != nil {
		t.Fatal(err)
	}
	r := engine.Request{Model: "m", TokenIDs: []uint32{5, 6, 7}, Stop: engine.Stop{MaxTokens: 4}, Disagg: engine.Disagg{Phase: engine.PhasePrefill, Handoff: h.Prefill}}
	_, last, err := collect(t.Context(), prefill, &r)
	if err != nil {
		t.Fatal(err)
	}
	between.Expire()
	r.Disagg = engine.Disagg{Phase: engine.PhaseDecode, Handoff: last.Handoff}
	if _, _, err := collect(t.Context(), decode, &r); engine.KindOf(err) != engine.Unavailable || between.Held() != 0 {
		t.Errorf("%v, %d held", err, between.Held())
	}
}
