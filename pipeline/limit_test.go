package pipeline_test

import (
	"context"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

// An engine that heeds no limit is stopped at it, in the middle of a delta if need be.
func TestEngineWithoutLimit(t *testing.T) {
	for _, tt := range []struct{ most, at int }{{1, 1}, {10, 1}, {10, 2}, {10, 3}} {
		e := &fake{}
		h := newHouse(t, pipeline.Config{MigrationLimit: 3}, e)
		word := h.ids(" word")[0]
		e.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			d := engine.Delta{Usage: &engine.Usage{Prompt: len(r.TokenIDs), Cached: new(int)}}
			for range tt.at {
				d.TokenIDs = append(d.TokenIDs, word)
			}
			for yield(d, nil) {
				d.Usage = nil
			}
		}
		r := request("Go on.")
		r.Chat.Sampling.MaxTokens = new(tt.most)
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		if a := answers[0]; a.Finish.Reason != chat.FinishLength || a.Usage.Output != tt.most || a.Usage.Cached == nil {
			t.Errorf("limit %d by %d: ends with %+v after %+v", tt.most, tt.at, a.Finish, a.Usage)
		}
		if e.active() != 0 {
			t.Error("the engine goes on")
		}
		h.released(t)
	}
}
