package pipeline_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
)

// An engine that is not known to schedule by priority is not told of any, and people
// are, once for each model and engine.
func TestPriorityUnheard(t *testing.T) {
	for name, tc := range map[string]struct {
		features engine.Features
		ext      *nvext.Ext
		lines    int
	}{
		"an engine that schedules by it": {engine.Features{engine.FeaturePriority}, &nvext.Ext{AgentHints: &nvext.Hints{Priority: new(int32(7))}}, 0},
		"one that does not":              {nil, &nvext.Ext{AgentHints: &nvext.Hints{Priority: new(int32(7))}}, 1},
		"background work":                {nil, &nvext.Ext{AgentHints: &nvext.Hints{Priority: new(nvext.PriorityBackground)}}, 0},
		"no priority":                    {nil, &nvext.Ext{AgentHints: &nvext.Hints{OSL: new(uint32(3))}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			e := &fake{features: tc.features}
			h := newHouse(t, pipeline.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, e)
			e.generate = h.say("Yes.", 1, engine.FinishEOS)
			for range 3 {
				r := asks(tc.ext)
				r.Background = name == "background work"
				run(t, h, r)
			}
			for _, r := range e.sent() {
				if got := r.Priority != nil; got != (tc.features != nil) {
					t.Errorf("the engine is told of %v", r.Priority)
				}
			}
			if n := strings.Count(log.String(), "requests have priorities"); n != tc.lines {
				t.Errorf("%d lines, want %d:\n%s", n, tc.lines, &log)
			}
		})
	}
}
