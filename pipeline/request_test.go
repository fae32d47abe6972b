package pipeline_test

import (
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
)

// What beside the prompt reaches the engine, and what stays here because the
// card does not promise it.
func TestEngineRequest(t *testing.T) {
	osl, priority := uint32(123), int32(4)
	hints := func(r *pipeline.Request) {
		r.Ext = &nvext.Ext{AgentHints: &nvext.Hints{OSL: &osl, Priority: &priority}}
	}
	for name, tc := range map[string]struct {
		card   func(*engine.Card)
		change func(*pipeline.Request)
		ok     func(*engine.Request) bool
	}{
		"one rank needs no number": {ok: func(r *engine.Request) bool { return r.DPRank == nil }},
		"one of several": {
			card: func(c *engine.Card) { c.DPStart, c.DPSize = 3, 2 },
			ok:   func(r *engine.Request) bool { return r.DPRank != nil && *r.DPRank == 3 },
		},
		"priority": {
			card: func(c *engine.Card) { c.Features = engine.Features{engine.FeaturePriority} }, change: hints,
			ok: func(r *engine.Request) bool { return r.Priority != nil && *r.Priority == 4 && r.Expected == 123 },
		},
		"priority that the card does not promise": {change: hints, ok: func(r *engine.Request) bool { return r.Priority == nil && r.Expected == 123 }},
		"the conversation, where it is wanted": {
			card: func(c *engine.Card) { c.Features = engine.Features{engine.FeatureWantsChat} },
			ok:   func(r *engine.Request) bool { return r.Chat != nil },
		},
		"and not elsewhere": {ok: func(r *engine.Request) bool { return r.Chat == nil }},
		"the engine's own name for an alias": {
			change: func(r *pipeline.Request) { r.Chat.Model = "alias" },
			ok:     func(r *engine.Request) bool { return r.Model == "test/model" && r.Epoch == 1 },
		},
		"trace and directives": {
			change: func(r *pipeline.Request) { r.Trace.Parent, r.KV.Session.ID = "00-1", "s" },
			ok:     func(r *engine.Request) bool { return r.Trace.Parent == "00-1" && r.KV.Session.ID == "s" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{change: tc.card}
			h := newHouse(t, pipeline.Config{}, f)
			f.generate = h.say(sentence, 1, engine.FinishEOS)
			r := request("Hello")
			if tc.change != nil {
				tc.change(r)
			}
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
				t.Fatal(err)
			}
			if sent := f.sent()[0]; !tc.ok(sent) {
				t.Errorf("sent %+v", sent)
			}
		})
	}
}

func TestRequiredTaints(t *testing.T) {
	plain, tainted := &fake{}, &fake{change: func(c *engine.Card) { c.Taints = []string{"gpu"} }}
	h := newHouse(t, pipeline.Config{}, plain, tainted)
	tainted.generate = h.say(sentence, 1, engine.FinishEOS)
	for range 3 {
		r := request("Hello")
		r.Ext = &nvext.Ext{RoutingConstraints: &nvext.Constraints{RequiredTaints: []string{"gpu"}}}
		if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
			t.Fatal(err)
		}
	}
	if len(plain.sent()) != 0 || len(tainted.sent()) != 3 {
		t.Errorf("%d requests went to the worker without the taint", len(plain.sent()))
	}
}
