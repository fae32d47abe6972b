package pipeline_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// The prompts of one call wait for room like those of others, and not for each
// other: the first runs while the others are parked behind it.
func TestPromptsOfACallDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		threshold := 0.0 // one prompt at a time
		h := newHouseOf(t, pipeline.Config{}, router.Config{QueueThreshold: &threshold}, f)
		say := h.say("hello", 2, engine.FinishStop)
		f.generate = func(ctx context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			time.Sleep(time.Second) // of prefill
			say(ctx, r, yield)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		requests := []*pipeline.Request{request("one"), request("two"), request("three")}
		answers, err := chat.Fold(h.Run(ctx, requests...))
		if err != nil {
			t.Fatal(err)
		}
		if got := texts(answers); !slices.Equal(got, []string{"hello", "hello", "hello"}) {
			t.Errorf("answers %q", got)
		}
		if n := h.router.Counters().Parked; n != 2 {
			t.Errorf("%d were parked, want 2", n)
		}
		for i, r := range requests {
			if r.Notes.Target.Worker != 1 {
				t.Errorf("request %d: notes %+v", i, r.Notes)
			}
		}
		h.released(t)
	})
}
