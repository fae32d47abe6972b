package pipeline_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

// Tools of which none may be called stay in the prompt, so that it begins as the
// others of the session, if the model can be kept from calling them.
func TestToolsThatMayNotBeCalled(t *testing.T) {
	for name, tc := range map[string]struct {
		features engine.Features
		exclude  *bool
		mode     chat.ToolMode
		shown    bool
		banned   bool // by its token
		tagged   bool // by a structural tag
	}{
		"they may":               {engine.Features{engine.FeatureLogitBias}, nil, chat.ToolAuto, true, false, false},
		"the engine bans":        {engine.Features{engine.FeatureLogitBias}, nil, chat.ToolNone, true, true, false},
		"it cannot":              {nil, nil, chat.ToolNone, false, false, false},
		"it knows tags":          {engine.Features{engine.FeatureStructuralTag}, nil, chat.ToolNone, true, false, true},
		"it knows both":          {engine.Features{engine.FeatureStructuralTag, engine.FeatureLogitBias}, nil, chat.ToolNone, true, true, false},
		"it cannot, and shall":   {nil, new(false), chat.ToolNone, true, false, false},
		"it bans, and shall not": {engine.Features{engine.FeatureLogitBias}, new(true), chat.ToolNone, false, false, false},
	} {
		f := &fake{features: tc.features}
		h := newHouse(t, pipeline.Config{ExcludeTools: tc.exclude}, f)
		f.generate = h.say("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", 100, engine.FinishEOS)
		r := request("Hello")
		r.Chat.Tools, r.Chat.ToolChoice.Mode = []chat.Tool{function("", "f")}, tc.mode
		r.Chat.Sampling.LogitBias = map[uint32]float64{7: 1}
		r.Chat.Cache = []chat.Breakpoint{{Turn: -2}}
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sent := f.sent()[0]
		text, _ := h.model.Text(sent.TokenIDs)
		marker, _ := h.model.Tokenizer.ID("<tool_call>")
		if shown := strings.Contains(text, `"name": "f"`); shown != tc.shown {
			t.Errorf("%s: shown %t", name, shown)
		}
		if bias := sent.Sampling.LogitBias; (bias[marker] == -100) != tc.banned || bias[7] != 1 || len(r.Chat.Sampling.LogitBias) != 1 {
			t.Errorf("%s: bias %v", name, bias)
		}
		if f := sent.Format; (f != nil) != tc.tagged || f != nil && !strings.Contains(string(f.Schema), `"exclude_tokens":["<tool_call>"]`) {
			t.Errorf("%s: held to %+v", name, f)
		}
		// Whoever calls all the same is not heard.
		if calls := len(answers[0].Blocks); (calls == 1) != (tc.mode == chat.ToolAuto) {
			t.Errorf("%s: answered %+v", name, answers[0].Blocks)
		}
	}
}

// Tools that only another provider can run are in no prompt: what a model says then
// is no call, and it is kept from saying nothing.
func TestToolsOfOthers(t *testing.T) {
	const text = "<tool_call>\n{\"name\": \"web_search\", \"arguments\": {}}\n</tool_call>"
	for _, mode := range []chat.ToolMode{chat.ToolAuto, chat.ToolNone} {
		f := &fake{features: engine.Features{engine.FeatureLogitBias}}
		h := newHouse(t, pipeline.Config{}, f)
		f.generate = h.say(text, 100, engine.FinishEOS)
		r := request("How is a call written?")
		r.Chat.Tools, r.Chat.ToolChoice.Mode = []chat.Tool{{Kind: chat.ToolServer, Name: "web_search"}, {Kind: chat.ToolServer}}, mode
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		if b := answers[0].Blocks; len(b) != 1 || b[0].Text != text {
			t.Errorf("%s: answered %+v", mode, b)
		}
		if bias := f.sent()[0].Sampling.LogitBias; bias != nil {
			t.Errorf("%s: bias %v", mode, bias)
		}
	}
}
