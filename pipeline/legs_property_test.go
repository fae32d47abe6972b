package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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

// mishaps draws which of an engine's first requests fail, and how. It notes when one
// ends as if it were over.
func mishaps(t *rapid.T, name string, cut *atomic.Bool) func(int, *engine.Request) *failing {
	list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *failing {
		if rapid.Bool().Draw(t, "fine") {
			return nil
		}
		f := &failing{
			after: rapid.OneOf(rapid.IntRange(0, 6), rapid.IntRange(7, 80)).Draw(t, "after"),
			kind: rapid.SampledFrom([]engine.ErrorKind{
				engine.Disconnected, engine.CannotConnect, engine.StreamIncomplete, engine.EngineShutdown, engine.WorkerOverloaded,
				engine.Unavailable, engine.Stale, engine.InvalidArgument, engine.Internal, "",
			}).Draw(t, "kind"),
		}
		if f.kind == engine.StreamIncomplete {
			f.do = func() { cut.Store(true) }
		}
		return f
	}), 0, 3).Draw(t, name)
	return func(call int, _ *engine.Request) *failing {
		if call < len(list) {
			return list[call]
		}
		return nil
	}
}

// tale is an answer as it comes: its blocks and their texts, its tokens, and how
// likely each was.
type tale struct {
	text     strings.Builder
	ids      []uint32
	logprobs []chat.Logprob
	usage    chat.Usage
	reason   chat.FinishReason // "": it has not ended
}

func (a *tale) add(e *chat.Event) {
	a.ids, a.logprobs = append(a.ids, e.IDs...), append(a.logprobs, e.Logprobs...)
	switch e.Kind {
	case chat.BlockStart:
		fmt.Fprintf(&a.text, "[%s ", e.BlockKind)
		if e.Tool != nil {
			a.text.WriteString(e.Tool.Name + " ")
		}
	case chat.BlockStop:
		fmt.Fprintf(&a.text, "]%t", e.Truncated)
	case chat.Finished:
		a.usage, a.reason = e.Usage, e.Finish.Reason
	default:
		a.text.WriteString(e.Text)
	}
}

// tales are what one worker answers alone.
func tales(t testing.TB, r *pipeline.Request) []tale {
	list := make([]tale, r.Chat.Sampling.Choices())
	for e, err := range newHouse(t, pipeline.Config{}, newShaky(t, "aggregated", false)).Run(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		list[e.Choice].add(&e)
	}
	return list
}

// differs says in what a tale is no beginning of another one; "" if it is.
func (a *tale) differs(whole *tale) string {
	n := min(len(a.ids), len(whole.ids))
	switch {
	case len(a.ids) > n || !slices.Equal(a.ids, whole.ids[:n]):
		return fmt.Sprintf("tokens %v, want %v", a.ids, whole.ids)
	case a.reason == "" && !strings.HasPrefix(whole.text.String(), a.text.String()), a.reason != "" && a.text.String() != whole.text.String():
		return fmt.Sprintf("%q, want %q", &a.text, &whole.text)
	}
	return cmp.Diff(whole.logprobs[:min(n, len(whole.logprobs))], a.logprobs, cmpopts.EquateEmpty())
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
		tools := rapid.Bool().Draw(rt, "tools")
		tokens := rapid.OneOf(rapid.IntRange(1, 20), rapid.Just(100)).Draw(rt, "tokens")
		atLeast := rapid.IntRange(0, 3).Draw(rt, "tokens at least")
		logprobs := rapid.SampledFrom([]*int{nil, new(0), new(2)}).Draw(rt, "logprobs")
		leave := rapid.IntRange(0, 40).Draw(rt, "events before the client leaves") // 0: never
		ask := func() *pipeline.Request {
			r := long(tokens)
			s := &r.Chat.Sampling
			s.N, s.Logprobs, s.MinTokens = choices, logprobs, min(atLeast, tokens)
			if tools {
				r.Chat.Tools = []chat.Tool{lookup, stop}
			}
			return r
		}
		want := tales(check{t, rt}, ask())
		p := newPair(check{t, rt}, pipeline.Config{
			MigrationLimit: rapid.IntRange(0, 4).Draw(rt, "limit"),
			Limits:         pipeline.Limits{FirstItem: 100 * time.Millisecond, Inactivity: 100 * time.Millisecond},
		}, rapid.IntRange(1, 2).Draw(rt, "prefill workers"), rapid.IntRange(1, 3).Draw(rt, "decode workers"), meets)
		var cut atomic.Bool
		for i, e := range append(slices.Clone(p.prefill), p.decode...) {
			e.failing = mishaps(rt, fmt.Sprintf("worker %d", i), &cut)
		}
		got := make([]tale, choices)
		events, finished := 0, 0
		var failure error
		for e, err := range p.Run(t.Context(), ask()) {
			if failure != nil {
				rt.Fatalf("%+v, %v behind the error %v", e, err, failure)
			}
			if failure = err; err != nil {
				continue
			}
			a, w := &got[e.Choice], &want[e.Choice]
			a.add(&e)
			if e.Kind == chat.Finished {
				finished++
				if cut.Load() && a.reason == chat.FinishToolUse && a.usage.Output >= len(a.ids) {
					// Calls that are complete are an answer, also of an engine that forgot
					// to say so.
					a.reason = ""
					continue
				}
				if a.usage.Output != w.usage.Output || a.usage.Prompt != w.usage.Prompt || a.reason != w.reason {
					rt.Fatalf("choice %d ends with %s and %+v, want %s and %+v", e.Choice, a.reason, a.usage, w.reason, w.usage)
				}
				if c := a.usage.Cached; c != nil && (*c < 0 || *c > w.usage.Prompt) {
					rt.Fatalf("%d of %d tokens were cached", *c, w.usage.Prompt)
				}
			}
			if events++; events == leave {
				break
			}
		}
		for i := range got {
			if d := got[i].differs(&want[i]); d != "" {
				rt.Fatalf("choice %d: %s", i, d)
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
