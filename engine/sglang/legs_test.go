package sglang_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/sglang"
	fake "github.com/dynago/dynago/internal/fake/sglang"
)

// pair is a prefill and a decode server, with a request that both share.
type pair struct {
	meet            fake.Bootstrap
	prefill, decode *attached
	handoff         engine.Handoff
}

// pairUp starts them. Each token takes a few milliseconds.
func pairUp(t *testing.T) *pair {
	t.Helper()
	args := mock.DefaultArgs()
	args.TimingModel, args.PrefillMS, args.DecodeMS, args.MaxModelLen = "constant", 30, 5, 4096
	p := new(pair)
	p.prefill = attach(t, fake.Config{Mode: "prefill", Bootstrap: &p.meet, Mock: mock.Config{Args: args}})
	p.decode = attach(t, fake.Config{Mode: "decode", Bootstrap: &p.meet, Mock: mock.Config{Args: args}})
	status(t, p.prefill, engine.Ready)
	status(t, p.decode, engine.Ready)
	p.prepare(t)
	return p
}

func (p *pair) prepare(t *testing.T) {
	t.Helper()
	h, err := p.prefill.Prepare(t.Context(), engine.HandoffQuery{Request: "r-1"})
	if err != nil {
		t.Fatal(err)
	}
	p.handoff = h
}

func (p *pair) leg(phase engine.Phase) *engine.Request {
	h := p.handoff.Prefill
	if phase == engine.PhaseDecode {
		h = p.handoff.Decode
	}
	return &engine.Request{
		ID: "r-1", TokenIDs: []uint32{1, 2, 3}, Sampling: engine.Sampling{Temperature: ptr(0.0)},
		Stop: engine.Stop{MaxTokens: 20, MinTokens: 20}, Disagg: engine.Disagg{Phase: phase, Handoff: h},
	}
}

// run runs a leg in the background.
func (p *pair) run(ctx context.Context, phase engine.Phase) <-chan error {
	e := p.prefill
	if phase == engine.PhaseDecode {
		e = p.decode
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := collect(ctx, e, p.leg(phase))
		done <- err
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

// over waits until both servers are free.
func (p *pair) over(t *testing.T) {
	t.Helper()
	await(t, "both servers free", func() bool {
		return p.meet.Inside() == 0 && p.prefill.fake.Running() == 0 && p.decode.fake.Running() == 0
	})
}

// A client that leaves is free at once. The prefill server computes on, as the
// decode server waits for it, and the decode server is told to stop when it has
// what it waited for: not before.
func TestQuirk10LegsOutliveTheirClient(t *testing.T) {
	p := pairUp(t)
	ctx, gone := context.WithCancelCause(t.Context())
	prefill, decode := p.run(ctx, engine.PhasePrefill), p.run(ctx, engine.PhaseDecode)
	await(t, "both legs begun", func() bool { return p.prefill.fake.Running() == 1 && p.decode.fake.Running() == 1 })
	left := time.Now()
	gone(engine.ErrClientGone)
	for _, leg := range []<-chan error{prefill, decode} {
		if err := <-leg; engine.KindOf(err) != engine.Cancelled || !errors.Is(err, engine.ErrClientGone) {
			t.Errorf("%v, want cancelled by the client", err)
		}
	}
	if d := time.Since(left); d > 2*time.Second {
		t.Errorf("the client was free after %v", d)
	}
	p.over(t)
	if aborted := p.prefill.fake.Aborted(); len(aborted) > 0 {
		t.Errorf("the prefill server was told to forget %q", aborted)
	}
	await(t, "the decode server told", func() bool { return slices.Equal(p.decode.fake.Aborted(), []string{"r-1"}) })
}

// What is wrong with one leg ends the other at once.
func TestLegsThatFail(t *testing.T) {
	t.Run("prefill", func(t *testing.T) {
		p := pairUp(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		decode := p.run(ctx, engine.PhaseDecode)
		await(t, "the decode leg begun", func() bool { return p.decode.fake.Running() == 1 })
		why := engine.Errorf(engine.Unavailable, "the prefill leg has failed")
		cancel(why)
		if err := <-decode; !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
		p.over(t)
	})
	t.Run("decode", func(t *testing.T) {
		p := pairUp(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		prefill := p.run(ctx, engine.PhasePrefill)
		await(t, "the prefill leg begun", func() bool { return p.prefill.fake.Running() == 1 })
		why := engine.Errorf(engine.Internal, "the decode leg has failed")
		cancel(why)
		if err := <-prefill; !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
		p.over(t)
		if aborted := p.prefill.fake.Aborted(); !slices.Equal(aborted, []string{"r-1"}) {
			t.Errorf("aborted %q", aborted)
		}
	})
}

// A prompt that does not come is an error that says from where it was to come, and
// may be mended by another pair.
func TestQuirk09AddressesAreShown(t *testing.T) {
	p := pairUp(t)
	p.meet.Patience = time.Millisecond
	_, _, err := collect(t.Context(), p.decode, p.leg(engine.PhaseDecode))
	if err == nil || !strings.Contains(err.Error(), "10.1.0.7:8998") || !strings.Contains(err.Error(), "KVTransferError") {
		t.Errorf("%v", err)
	}
	p.over(t)
	var log strings.Builder
	e, err := sglang.New(sglang.Config{HTTP: p.prefill.at, Log: textLog(&log)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	status(t, e, engine.Ready)
	if !strings.Contains(log.String(), "10.1.0.7 port 8998") || !strings.Contains(log.String(), "disagg.bootstrap_host") {
		t.Errorf("told an operator: %s", log.String())
	}
}

// Servers that are started anew, or are gone, under the legs of a request leave
// nothing behind.
func TestLegsOfServersThatDie(t *testing.T) {
	for name, dies := range map[string]func(p *pair) *fake.Server{
		"prefill": func(p *pair) *fake.Server { return p.prefill.fake },
		"decode":  func(p *pair) *fake.Server { return p.decode.fake },
	} {
		t.Run(name, func(t *testing.T) {
			p := pairUp(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			legs := map[string]<-chan error{"prefill": p.run(ctx, engine.PhasePrefill), "decode": p.run(ctx, engine.PhaseDecode)}
			await(t, "both legs begun", func() bool { return p.prefill.fake.Running() == 1 && p.decode.fake.Running() == 1 })
			dies(p).Restart()
			err := <-legs[name]
			if engine.KindOf(err).Retry() != engine.RetryMigrate {
				t.Errorf("%v", err)
			}
			cancel(err) // as whoever runs the legs does
			for _, leg := range legs {
				select {
				case <-leg:
				case <-time.After(10 * time.Millisecond): // read already
				}
			}
			p.over(t)
			p.prepare(t)
			prefill, decode := p.run(t.Context(), engine.PhasePrefill), p.run(t.Context(), engine.PhaseDecode)
			if err := errors.Join(<-prefill, <-decode); err != nil {
				t.Errorf("the next request: %v", err)
			}
		})
	}
}

// Whoever closes the engine waits for no leg.
func TestCloseEndsLegs(t *testing.T) {
	p := pairUp(t)
	ctx, gone := context.WithCancelCause(t.Context())
	decode := p.run(ctx, engine.PhaseDecode) // for which no prompt will come
	await(t, "the decode leg begun", func() bool { return p.decode.fake.Running() == 1 })
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

// Both legs send the same bytes of what shapes the prompt and the answer: nothing
// is read and written anew on the way.
func TestQuirk25BytesAreNotWrittenAnew(t *testing.T) {
	schema := `{"type": "object", "properties": {"z": {"type": "integer"}, "a": {}}, "required": ["z", "a"]}`
	bodies := bodiesOf(t, schema)
	for phase, body := range bodies {
		quoted := strings.ReplaceAll(schema, `"`, `\"`)
		if !strings.Contains(body, `"json_schema":"`+quoted+`"`) || !strings.HasPrefix(body, `{"input_ids":[1,2,3],`) {
			t.Errorf("%s: %s", phase, body)
		}
	}
}
