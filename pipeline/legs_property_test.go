package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

// left says what is left of requests that are over; "" for nothing.
func (p *pair) left() string {
	p.Settle()
	for _, l := range p.router.Loads() {
		if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
			return fmt.Sprintf("booked: %+v", l)
		}
	}
	for i, e := range append(slices.Clone(p.prefill), p.decode...) {
		if e.Kept() != 0 || e.open() != 0 {
			return fmt.Sprintf("engine %d keeps %d prompts, and %d hand-offs are open", i, e.Kept(), e.open())
		}
		for l := range e.Load(context.Background()) {
			if r := l.Ranks[0]; r.Running != 0 || r.Waiting != 0 || r.UsedBlocks != 0 {
				return fmt.Sprintf("engine %d still has %+v", i, r)
			}
			break
		}
	}
	return ""
}

// mishaps draws which of an engine's first requests fail, and how.
func mishaps(t *rapid.T, name string) func(int, *engine.Request) *failing {
	list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *failing {
		if rapid.Bool().Draw(t, "fine") {
			return nil
		}
		return &failing{
			after: rapid.IntRange(0, 6).Draw(t, "after"),
			kind: rapid.SampledFrom([]engine.ErrorKind{
				engine.Disconnected, engine.CannotConnect, engine.StreamIncomplete, engine.EngineShutdown, engine.WorkerOverloaded,
				engine.Unavailable, engine.Stale, engine.InvalidArgument, engine.Internal, "",
			}).Draw(t, "kind"),
		}
	}), 0, 3).Draw(t, name)
	return func(call int, _ *engine.Request) *failing {
		if call < len(list) {
			return list[call]
		}
		return nil
	}
}

// Whatever fails in whichever leg: a stream says what it would have said undisturbed,
// or the beginning of that and one error that is documented; no token comes twice,
// none is lost, and nothing is left behind.
func TestAnyFailureOfLegs(t *testing.T) {
	documented := []engine.ErrorKind{
		engine.Disconnected, engine.CannotConnect, engine.StreamIncomplete, engine.EngineShutdown, engine.WorkerOverloaded,
		engine.Unavailable, engine.Stale, engine.InvalidArgument, engine.Internal, engine.ResponseTimeout, engine.ResourceExhausted,
	}
	rapid.Check(t, func(rt *rapid.T) {
		meets := rapid.Bool().Draw(rt, "meets")
		choices := rapid.IntRange(1, 2).Draw(rt, "choices")
		tokens := rapid.IntRange(1, 20).Draw(rt, "tokens")
		leave := rapid.IntRange(0, 40).Draw(rt, "events before the client leaves") // 0: never
		ask := func() *pipeline.Request {
			r := long(tokens)
			r.Chat.Sampling.N = choices
			return r
		}
		want := undisturbed(t, ask())
		p := newPair(t, pipeline.Config{
			MigrationLimit: rapid.IntRange(0, 4).Draw(rt, "limit"),
			Limits:         pipeline.Limits{FirstItem: 100 * time.Millisecond, Inactivity: 100 * time.Millisecond},
		}, rapid.IntRange(1, 2).Draw(rt, "prefill workers"), rapid.IntRange(1, 3).Draw(rt, "decode workers"), meets)
		for i, e := range append(slices.Clone(p.prefill), p.decode...) {
			e.failing = mishaps(rt, fmt.Sprintf("worker %d", i))
		}
		got := make([]strings.Builder, choices)
		finished, events := 0, 0
		var failure error
		for e, err := range p.Run(t.Context(), ask()) {
			if failure != nil {
				rt.Fatalf("%+v, %v behind the error %v", e, err, failure)
			}
			if failure = err; err != nil {
				continue
			}
			switch e.Kind {
			case chat.TextDelta:
				got[e.Choice].WriteString(e.Text)
			case chat.Finished:
				finished++
				w := want[e.Choice]
				if said := got[e.Choice].String(); said != texts(want)[e.Choice] || e.Usage.Output != w.Usage.Output || e.Usage.Prompt != w.Usage.Prompt || e.Finish.Reason != w.Finish.Reason {
					rt.Fatalf("choice %d: %q, %+v, %+v; want %q, %+v", e.Choice, said, e.Usage, e.Finish, texts(want)[e.Choice], w.Usage)
				}
				if c := e.Usage.Cached; c != nil && (*c < 0 || *c > w.Usage.Prompt) {
					rt.Fatalf("%d of %d tokens were cached", *c, w.Usage.Prompt)
				}
			}
			if events++; events == leave {
				break
			}
		}
		for i := range got {
			if said, whole := got[i].String(), texts(want)[i]; !strings.HasPrefix(whole, said) {
				rt.Fatalf("choice %d: %q is no beginning of %q", i, said, whole)
			}
		}
		switch {
		case failure != nil && !slices.Contains(documented, engine.KindOf(failure)):
			rt.Fatalf("error %v", failure)
		case failure == nil && events != leave && finished != choices:
			rt.Fatalf("%d of %d answers have ended", finished, choices)
		}
		if s := p.left(); s != "" {
			rt.Fatal(s)
		}
	})
}
