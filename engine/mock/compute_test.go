package mock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
)

// gated is a model whose passes begin and end when a test lets them.
type gated struct {
	memory *memory
	begun  chan []mock.Span
	end    chan error
}

// voice is an answer of a gated model.
type voice struct{ teller }

func (*voice) Logprob(int) engine.Logprob       { return engine.Logprob{} }
func (*voice) PromptLogprobs() []engine.Logprob { return nil }

func (g *gated) Card(c *engine.Card) { c.Engine = "gated" }

func (g *gated) Begin(r *engine.Request) (mock.Answer, error) {
	if r.TokenIDs[0] == 0 {
		return nil, engine.Errorf(engine.Unsupported, "nothing begins with 0")
	}
	return &voice{teller{tokens: slices.Clone(r.TokenIDs)}}, nil
}

func (g *gated) Compute(_ uint32, spans []mock.Span) error {
	g.begun <- spans
	if err := <-g.end; err != nil {
		return err
	}
	plain := slices.Clone(spans)
	for i := range plain {
		plain[i].Generator = &plain[i].Generator.(*voice).teller
	}
	return g.memory.compute(plain)
}

// gate makes the passes of a model wait for the test.
func gate(t *testing.T) (*mock.Engine, *gated) {
	t.Helper()
	a := mock.DefaultArgs()
	a.BlockSize, a.NumGPUBlocks, a.PinBudgetG1 = 4, 64, 0.5
	g := &gated{memory: newMemory(a), begun: make(chan []mock.Span), end: make(chan error)}
	return open(t, mock.Config{Args: a, Computer: g, Kind: "gated"}), g
}

// begin lets a request begin, and returns what comes of it.
func begin(ctx context.Context, e *mock.Engine, r *engine.Request) <-chan outcome {
	done := make(chan outcome, 1)
	go func() { done <- generate(ctx, e, r) }()
	return done
}

func counted(first uint32, n int) *engine.Request {
	return &engine.Request{TokenIDs: ids(first, 9), Stop: engine.Stop{MaxTokens: n}}
}

func answerOf(r *engine.Request) (all []uint32) {
	tokens := slices.Clone(r.TokenIDs)
	for range r.Stop.MaxTokens {
		tokens = append(tokens, follows(tokens))
	}
	return tokens[len(r.TokenIDs):]
}

// While a pass is computed requests come and go, and the engine can be restarted: what
// the pass gives then counts for nobody.
func TestWhileItComputes(t *testing.T) {
	e, g := gate(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	left, stays := counted(1, 3), counted(100, 3)
	first := begin(ctx, e, left)
	<-g.begun
	second := begin(t.Context(), e, stays) // it comes while the first is computed
	cancel(engine.ErrClientGone)
	if o := <-first; engine.KindOf(o.err) != engine.Cancelled {
		t.Errorf("left while it was computed: %v", o.err)
	}
	for l := range e.Load(t.Context()) {
		if l.Ranks[0].Running != 0 {
			t.Errorf("%+v, and who ran has left", l.Ranks[0])
		}
		break
	}
	g.end <- nil
	<-g.begun
	e.Restart()
	if o := <-second; engine.KindOf(o.err) != engine.EngineShutdown {
		t.Errorf("restarted while it was computed: %v", o.err)
	}
	third := begin(t.Context(), e, stays)
	g.end <- nil
	for range stays.Stop.MaxTokens {
		<-g.begun
		g.end <- nil
	}
	if o := <-third; o.err != nil || !slices.Equal(o.ids, answerOf(stays)) {
		t.Errorf("%v, %v; want %v", o.ids, o.err, answerOf(stays))
	}
}

// What is asked of the cache is answered between passes: until one is over its blocks
// are not whole.
func TestAskedWhileItComputes(t *testing.T) {
	e, g := gate(t)
	r := counted(1, 1)
	done := begin(t.Context(), e, r)
	<-g.begun
	pinned := make(chan engine.PinResult, 1)
	go func() {
		got, err := e.Pin(context.Background(), engine.PinRequest{TokenIDs: r.TokenIDs, TTL: time.Minute})
		if err != nil {
			t.Error(err)
		}
		pinned <- got
	}()
	select {
	case got := <-pinned:
		t.Fatalf("%+v while it was computed", got)
	case <-time.After(20 * time.Millisecond):
	}
	g.end <- nil
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
	if got := <-pinned; got.Pinned != 2 {
		t.Errorf("%+v, want 2 blocks", got)
	}
}

// A pass that fails ends what runs, and nothing is believed that was cached.
func TestComputationFails(t *testing.T) {
	e, g := gate(t)
	r := counted(1, 2)
	epoch := e.Epoch()
	done := begin(t.Context(), e, r)
	<-g.begun
	g.end <- errors.New("two and two are five")
	if o := <-done; engine.KindOf(o.err) != engine.Internal {
		t.Errorf("%v, want an internal error", o.err)
	}
	done = begin(t.Context(), e, r)
	<-g.begun
	if e.Epoch() == epoch {
		t.Error("the engine lives on as if nothing had happened")
	}
	g.end <- nil
	<-g.begun
	g.end <- nil
	if o := <-done; o.err != nil || !slices.Equal(o.ids, answerOf(r)) {
		t.Errorf("%v, %v; want %v", o.ids, o.err, answerOf(r))
	}
}

func TestModelRefuses(t *testing.T) {
	e, _ := gate(t)
	if o := generate(t.Context(), e, counted(0, 1)); engine.KindOf(o.err) != engine.Unsupported {
		t.Errorf("%v, want unsupported", o.err)
	}
	if c := cardOf(t, e); c.Engine != "gated" {
		t.Errorf("the card is that of %q", c.Engine)
	}
}
