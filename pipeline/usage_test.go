package pipeline_test

import (
	"context"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// What is written to the cache is what was computed up to the last mark, by whole
// blocks; without marks there is nothing to tell.
func TestWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		marks  []chat.Breakpoint
		cached *int
		want   func(prompt int) *int
	}{
		"no marks":             {nil, new(16), func(int) *int { return nil }},
		"nothing was cached":   {[]chat.Breakpoint{{Turn: 0}, {Turn: -1}}, new(0), func(n int) *int { return new(n / 16 * 16) }},
		"something was":        {[]chat.Breakpoint{{Turn: -1}, {Turn: 0}}, new(16), func(n int) *int { return new(n/16*16 - 16) }},
		"all was":              {[]chat.Breakpoint{{Turn: 0}}, new(4000), func(n int) *int { return new(0) }},
		"the engine is silent": {[]chat.Breakpoint{{Turn: 0}}, nil, func(n int) *int { return new(n / 16 * 16) }},
	} {
		f := &fake{}
		h := newHouse(t, pipeline.Config{}, f)
		f.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			yield(engine.Delta{TokenIDs: h.ids("Yes"), Finish: engine.FinishEOS, Usage: &engine.Usage{Prompt: len(r.TokenIDs), Cached: tc.cached, Output: 1}}, nil)
		}
		r := request("A question that is long enough for a few blocks of tokens, as many as the letters that it has")
		r.Chat.System, r.Chat.Cache = []chat.Block{say("Be brief.")}, tc.marks
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		// The last mark stands behind the question, before the words of the template.
		settled := 0
		if tc.marks != nil {
			offsets, err := h.model.Offsets(r.Chat, nil, chat.Breakpoint{Turn: 0})
			if err != nil || offsets[0] < 32 {
				t.Fatal(offsets, err)
			}
			settled = offsets[0]
		}
		got, want := answers[0].Usage.Written, tc.want(settled)
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: written %v, want %v", name, got, want)
		}
	}
}

// An answer that ends where the context does says so; one that ends before, by the
// client's limit, does not.
func TestContextWindow(t *testing.T) {
	for limit, want := range map[int]chat.FinishReason{0: chat.FinishContext, 4000: chat.FinishContext, 5: chat.FinishLength} {
		f := &fake{}
		h := newHouseWith(t, short(t, 40), pipeline.Config{}, router.Config{Mode: router.RoundRobin}, f)
		f.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			ids := make([]uint32, r.Stop.MaxTokens)
			for i := range ids {
				ids[i] = h.ids("a")[0]
			}
			yield(engine.Delta{TokenIDs: ids, Finish: engine.FinishLength, Usage: &engine.Usage{Prompt: len(r.TokenIDs), Output: len(ids)}}, nil)
		}
		r := request("Hello")
		if limit > 0 {
			r.Chat.Sampling.MaxTokens = &limit
		}
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil || answers[0].Finish.Reason != want {
			t.Errorf("limit %d: %+v, %v, want %s", limit, answers, err, want)
		}
	}
}
