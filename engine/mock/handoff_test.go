package mock_test

import (
	"bytes"
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
)

// ofRole is a configuration of an engine for one leg.
func ofRole(role string) mock.Config {
	args := mock.DefaultArgs()
	args.WorkerType, args.BlockSize, args.NumGPUBlocks, args.SpeedupRatio = role, 4, 64, 0
	return mock.Config{Name: role, Model: "m", Args: args, Source: mock.SourceRandom, Seed: 5}
}

// outcome is what came of a generation.
type outcome struct {
	ids  []uint32
	last engine.Delta
	err  error
}

func generate(ctx context.Context, e *mock.Engine, r *engine.Request) (o outcome) {
	for d, err := range e.Generate(ctx, r) {
		o.ids, o.last, o.err = append(o.ids, d.TokenIDs...), d, err
	}
	return o
}

func legOf(phase engine.Phase, handoff []byte) *engine.Request {
	r := &engine.Request{ID: "r-1", Stop: engine.Stop{MaxTokens: 9}}
	for i := range 21 {
		r.TokenIDs = append(r.TokenIDs, uint32(i))
	}
	r.Disagg = engine.Disagg{Phase: phase, Handoff: handoff}
	return r
}

func used(e *mock.Engine) int64 {
	for l := range e.Load(context.Background()) {
		return l.Ranks[0].UsedBlocks
	}
	return -1
}

func prepare(t *testing.T, e *mock.Engine) engine.Handoff {
	t.Helper()
	h, err := e.Prepare(t.Context(), engine.HandoffQuery{Request: "r"})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Two engines give what one would, the second computes nothing of the prompt, and
// the first keeps the blocks until it is told to let go.
func TestLegsOneAfterTheOther(t *testing.T) {
	whole := generate(t.Context(), open(t, ofRole("aggregated")), legOf(engine.PhaseWhole, nil))
	p, d := open(t, ofRole("prefill")), open(t, ofRole("decode"))
	h := prepare(t, p)
	if h.Concurrent || h.Decode != nil {
		t.Fatalf("%+v", h)
	}
	first := generate(t.Context(), p, legOf(engine.PhasePrefill, h.Prefill))
	if first.err != nil || len(first.ids) != 1 || first.last.Finish != engine.FinishLength || first.last.Handoff == nil {
		t.Fatalf("prefill leg: %+v", first)
	}
	if p.Kept() != 1 || used(p) != 6 {
		t.Errorf("%d prompts kept, %d blocks in use", p.Kept(), used(p))
	}
	second := generate(t.Context(), d, legOf(engine.PhaseDecode, first.last.Handoff))
	if second.err != nil || !slices.Equal(second.ids, whole.ids) || second.last.Handoff != nil {
		t.Errorf("decode leg: %+v, want %v", second, whole.ids)
	}
	for range 2 {
		if err := p.Release(t.Context(), h.ID); err != nil || p.Kept() != 0 || used(p) != 0 {
			t.Errorf("after the release: %d kept, %d blocks, %v", p.Kept(), used(p), err)
		}
	}
}

// What does not belong together is refused.
func TestForeignHandoffs(t *testing.T) {
	p, d, w := open(t, ofRole("prefill")), open(t, ofRole("decode")), open(t, ofRole("aggregated"))
	h := prepare(t, p)
	first := generate(t.Context(), p, legOf(engine.PhasePrefill, h.Prefill))
	other := legOf(engine.PhaseDecode, first.last.Handoff)
	other.TokenIDs[3]++
	longer := legOf(engine.PhaseDecode, first.last.Handoff)
	longer.TokenIDs = append(longer.TokenIDs, 1)
	for name, tc := range map[string]struct {
		e    *mock.Engine
		r    *engine.Request
		want engine.ErrorKind
	}{
		"another prompt":      {d, other, engine.InvalidArgument},
		"a longer prompt":     {d, longer, engine.InvalidArgument},
		"another seal":        {d, legOf(engine.PhaseDecode, bytes.Replace(first.last.Handoff, []byte(`"seal":`), []byte(`"seal":1`), 1)), engine.InvalidArgument},
		"of the wrong leg":    {d, legOf(engine.PhaseDecode, h.Prefill), engine.InvalidArgument},
		"none":                {d, legOf(engine.PhaseDecode, nil), engine.InvalidArgument},
		"none for a prefill":  {p, legOf(engine.PhasePrefill, nil), engine.InvalidArgument},
		"prefill elsewhere":   {d, legOf(engine.PhasePrefill, h.Prefill), engine.Unsupported},
		"decode elsewhere":    {w, legOf(engine.PhaseDecode, first.last.Handoff), engine.Unsupported},
		"a leg nobody knows":  {p, legOf("encode", nil), engine.Unsupported},
		"the whole on either": {d, legOf(engine.PhaseWhole, nil), ""},
	} {
		if o := generate(t.Context(), tc.e, tc.r); tc.want != "" && engine.KindOf(o.err) != tc.want || tc.want == "" && o.err != nil {
			t.Errorf("%s: %v, want %q", name, o.err, tc.want)
		}
	}
	if _, err := d.Prepare(t.Context(), engine.HandoffQuery{}); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("a decode engine prepares: %v", err)
	}
	if _, err := p.Prepare(t.Context(), engine.HandoffQuery{Rank: 1}); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("a rank that is not there: %v", err)
	}
}

// Nothing is kept of a prompt whose answer ended at once, of one that nobody comes
// for, or of an earlier life.
func TestNothingIsKeptForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, ofRole("prefill"))
		run := func(change func(*engine.Request)) outcome {
			r := legOf(engine.PhasePrefill, prepare(t, p).Prefill)
			change(r)
			return generate(t.Context(), p, r)
		}
		as := func(*engine.Request) {}
		first := run(as)
		p.Release(t.Context(), "unknown") //nolint:errcheck // never fails
		if p.Kept() != 1 {
			t.Fatalf("%d kept", p.Kept())
		}
		ended := run(func(r *engine.Request) { r.Stop.Hidden = first.ids })
		if ended.last.Finish != engine.FinishEOS || ended.last.Handoff != nil || p.Kept() != 1 {
			t.Errorf("ended at once: %+v, %d kept", ended, p.Kept())
		}
		time.Sleep(299 * time.Second)
		run(as)
		if p.Kept() != 2 {
			t.Errorf("%d kept before the time is over", p.Kept())
		}
		time.Sleep(time.Second)
		if p.Kept() != 1 {
			t.Errorf("%d kept, one of them too long", p.Kept())
		}
		p.Restart()
		if p.Kept() != 0 || used(p) != 0 {
			t.Errorf("%d kept from another life", p.Kept())
		}
		p.Close()
	})
}

// The way between the engines takes its time.
func TestTransferTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, ofRole("prefill"))
		c := ofRole("decode")
		c.Args.SpeedupRatio, c.Args.TimingModel = 2, "constant"
		c.Args.KVBytesPerToken, c.Args.KVTransferBandwidth = 1e6, 0.021 // 21 tokens take a second, halved
		d := open(t, c)
		o := generate(t.Context(), p, legOf(engine.PhasePrefill, prepare(t, p).Prefill))
		begin := time.Now()
		if o = generate(t.Context(), d, legOf(engine.PhaseDecode, o.last.Handoff)); o.err != nil {
			t.Fatal(o.err)
		}
		if took := time.Since(begin); took != 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		p.Close()
		d.Close()
	})
}

func meetingPlace(t *testing.T) *mock.Engine {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := ofRole("prefill")
	c.Bootstrap, c.Args.DPSize = l, 2
	return open(t, c)
}

// Both legs at once, whichever comes first.
func TestLegsAtOnce(t *testing.T) {
	whole := generate(t.Context(), open(t, ofRole("aggregated")), legOf(engine.PhaseWhole, nil))
	p, d := meetingPlace(t), open(t, ofRole("decode"))
	for _, decodeFirst := range []bool{true, false} {
		h := prepare(t, p)
		if !h.Concurrent || h.Decode == nil {
			t.Fatalf("%+v", h)
		}
		second := make(chan outcome)
		decode := func() { second <- generate(t.Context(), d, legOf(engine.PhaseDecode, h.Decode)) }
		if decodeFirst {
			go decode()
		}
		first := generate(t.Context(), p, legOf(engine.PhasePrefill, h.Prefill))
		if !decodeFirst {
			if p.Kept() != 1 {
				t.Errorf("%d kept", p.Kept())
			}
			go decode()
		}
		if o := <-second; o.err != nil || first.err != nil || !slices.Equal(o.ids, whole.ids) {
			t.Errorf("%+v and %+v, want %v", first, o, whole.ids)
		}
		if p.Kept() != 0 {
			t.Errorf("%d kept after the legs have met", p.Kept())
		}
	}
}

// The room of a prompt is there for as long as the prompt is kept.
func TestRoomsOfKeptPrompts(t *testing.T) {
	p := meetingPlace(t)
	for name, end := range map[string]func(engine.Handoff){
		"released":  func(h engine.Handoff) { p.Release(t.Context(), h.ID) }, //nolint:errcheck // never fails
		"restarted": func(engine.Handoff) { p.Restart() },
	} {
		h := prepare(t, p)
		if o := generate(t.Context(), p, legOf(engine.PhasePrefill, h.Prefill)); o.err != nil {
			t.Fatal(o.err)
		}
		if kept, rooms := p.Kept(), p.Rooms(); kept != 1 || rooms != 1 {
			t.Errorf("%d kept, %d rooms", kept, rooms)
		}
		end(h)
		if kept, rooms := p.Kept(), p.Rooms(); kept != 0 || rooms != 0 {
			t.Errorf("%s: %d kept, %d rooms", name, kept, rooms)
		}
	}
}

// A leg that waits leaves when its client does, and when the other engine dies.
func TestWaitingLegLeaves(t *testing.T) {
	p, d := meetingPlace(t), open(t, ofRole("decode"))
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan outcome)
	go func() { waiting <- generate(ctx, d, legOf(engine.PhaseDecode, prepare(t, p).Decode)) }()
	cancel()
	if o := <-waiting; o.err == nil {
		t.Error("it was answered")
	}
	h := prepare(t, p)
	go func() { waiting <- generate(t.Context(), d, legOf(engine.PhaseDecode, h.Decode)) }()
	p.Close()
	if o := <-waiting; engine.KindOf(o.err) != engine.Unavailable {
		t.Errorf("the other engine has gone: %v", o.err)
	}
}

func TestRolesOfCards(t *testing.T) {
	for _, tc := range []struct {
		e       *mock.Engine
		role    engine.Role
		style   string
		handoff bool
		meets   bool
	}{
		{open(t, ofRole("aggregated")), engine.Aggregated, "", false, false},
		{open(t, ofRole("prefill")), engine.Prefill, "nixl", true, false},
		{open(t, ofRole("decode")), engine.Decode, "", false, false},
		{meetingPlace(t), engine.Prefill, "bootstrap", true, true},
	} {
		for s := range tc.e.Card(t.Context()) {
			c := s.Card
			if c.Role != tc.role || c.Disagg.Style != tc.style || c.Features.Has(engine.FeatureHandoff) != tc.handoff || (c.Disagg.Port != 0) != tc.meets {
				t.Errorf("%+v", c)
			}
			break
		}
	}
	c := ofRole("decode")
	c.Args.BootstrapPort = 9
	if _, err := mock.New(c); err == nil {
		t.Error("a decode engine has a meeting place")
	}
}
