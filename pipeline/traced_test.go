package pipeline_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/pipeline"
)

// slow answers with a token after 300 ms and four more after another 400.
func slow(f *fake, ids []uint32) {
	f.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		time.Sleep(300 * time.Millisecond)
		if !yield(engine.Delta{TokenIDs: ids[:1]}, nil) {
			return
		}
		time.Sleep(400 * time.Millisecond)
		yield(engine.Delta{TokenIDs: ids[1:], Finish: engine.FinishLength, Usage: &engine.Usage{Prompt: len(r.TokenIDs), Output: 5}}, nil)
	}
}

// A trace is told of the prompt and of the course of each choice, and the client of
// nothing more than otherwise.
func TestTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h := newHouse(t, pipeline.Config{}, f)
		slow(f, h.ids(sentence)[:5])
		synctest.Wait()
		plain := gather(t, h.Run(t.Context(), request("Hello")))

		r := request("Hello")
		r.Arrived, r.Notes, r.Traced = time.Now(), new(pipeline.Notes), new(pipeline.Traced)
		time.Sleep(50 * time.Millisecond)
		if d := cmp.Diff(plain, gather(t, h.Run(t.Context(), r))); d != "" {
			t.Errorf("events without a trace, and with one\n%s", d)
		}
		sent := r.Arrived.Add(50 * time.Millisecond)
		want := pipeline.Traced{
			Prompt: f.requests[1].TokenIDs, BlockSize: 16,
			Courses: []pipeline.Course{{
				Sent: sent, First: sent.Add(300 * time.Millisecond), Last: sent.Add(700 * time.Millisecond),
				Placed: true, Prefill: r.Notes.Target, Decode: r.Notes.Target, Finish: engine.FinishLength, Tokens: 5,
			}},
		}
		if d := cmp.Diff(want, *r.Traced); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
		at := r.Traced.Courses[0].Timing(r.Arrived, 5, r.Notes, new(pipeline.Numbers))
		if *at.TTFT != 350 || *at.Total != 750 || *at.AverageITL != 100 || *at.PrefillWait != 50 || *at.QueueDepth != 0 {
			t.Errorf("times %+v", at)
		}
	})
}

// Of a long prompt the router names the blocks, and a trace needs not.
func TestTracedBlocks(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	f.generate = h.say(sentence, 3, engine.FinishEOS)
	r := request(strings.Repeat("Say what is so. ", kv.MemoTokens/4))
	r.Traced = new(pipeline.Traced)
	gather(t, h.Run(t.Context(), r))
	public := kv.PublicScheme(r.Traced.BlockSize, kv.Namespace{})
	if want := public.AppendSeq(nil, public.AppendLocal(nil, r.Traced.Prompt)); len(r.Traced.Prompt) < kv.MemoTokens || !slices.Equal(r.Traced.Blocks, want) {
		t.Errorf("%d blocks of %d tokens, want %d", len(r.Traced.Blocks), len(r.Traced.Prompt), len(want))
	}
}

// Each of several choices has a course of its own.
func TestTracedChoices(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	f.generate = h.say(sentence, 3, engine.FinishEOS)
	r := request("Hello")
	r.Chat.Sampling.N, r.Traced = 3, new(pipeline.Traced)
	gather(t, h.Run(t.Context(), r))
	if len(r.Traced.Courses) != 3 {
		t.Fatalf("%d courses", len(r.Traced.Courses))
	}
	for i, c := range r.Traced.Courses {
		if c.Sent.IsZero() || c.First.IsZero() || c.Last.IsZero() || c.Tokens != len(h.ids(sentence)) || c.Finish != engine.FinishEOS {
			t.Errorf("choice %d: %+v", i, c)
		}
	}
}

// Whoever leaves early is told how far it has come: all tokens that have come count,
// also those that no event has released.
func TestTracedUntilItsClientLeft(t *testing.T) {
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	f.generate = h.say(sentence, 1, engine.FinishEOS)
	r := request("Hello")
	r.Traced = new(pipeline.Traced)
	for e := range h.Run(t.Context(), r) {
		if e.Kind == chat.TextDelta {
			break
		}
	}
	if c := r.Traced.Courses[0]; c.First.IsZero() || !c.Last.IsZero() || c.Tokens == 0 || c.Tokens >= len(h.ids(sentence)) || c.Finish != engine.Running {
		t.Errorf("%+v", c)
	}
}

// A request that nobody can serve has no course that has begun.
func TestTracedOfNobody(t *testing.T) {
	h := newHouse(t, pipeline.Config{}, &fake{})
	r := request("Hello")
	r.Chat.Model, r.Traced = "nobody", new(pipeline.Traced)
	for _, err := range h.Run(t.Context(), r) {
		if err == nil {
			t.Fatal("it is served")
		}
	}
	if slices.ContainsFunc(r.Traced.Courses, func(c pipeline.Course) bool { return !c.Sent.IsZero() }) {
		t.Errorf("%+v", r.Traced)
	}
}
