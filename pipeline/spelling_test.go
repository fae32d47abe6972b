package pipeline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

// Clients parse the arguments of calls and write them anew; the model sees them as
// it wrote them, unless they mean something else.
func TestCallsKeepTheirSpelling(t *testing.T) {
	const args = `{"city": "K\u00f6ln", "days": 1.0, "10": {"2": [], "1": "<>"}}`
	const schema = `{"properties": {"city": true, "hourly": {"type": "boolean", "default": false}, "unit": {"type": "string"}}}`
	for name, tc := range map[string]struct {
		back  string // the arguments as the client sends them back
		kind  chat.ToolKind
		other bool   // under another id
		args  string // as the model wrote them; args if empty
		same  bool   // whether the next prompt begins with the answer
	}{
		"as they were":      {back: args, same: true},
		"by JSON.stringify": {back: `{"10":{"1":"<>","2":[]},"city":"Köln","days":1}`, same: true},
		"by json.dumps":     {back: `{"city": "K\u00f6ln", "days": 1.0, "10": {"2": [], "1": "\u003c>"}}`, same: true},
		"with a default":    {back: `{"10":{"1":"<>","2":[]},"city":"Köln","days":1,"hourly":false}`, same: true},
		"not the default":   {back: `{"10":{"1":"<>","2":[]},"city":"Köln","days":1,"hourly":true}`},
		"without a default": {back: `{"10":{"1":"<>","2":[]},"city":"Köln","days":1,"unit":null}`},
		"changed":           {back: `{"city":"Bonn","days":1,"10":{"1":"<>","2":[]}}`},
		"one is missing":    {back: `{"city":"Köln","days":1}`},
		"not JSON":          {back: `{"city":`},
		"another call's id": {back: `{"10":{"1":"<>","2":[]},"city":"Köln","days":1}`, other: true},
		"free text":         {args: `{"input": "*** Begin\n\ttab \u00e9"}`, back: "*** Begin\n\ttab é", kind: chat.ToolCustom, same: true},
		"other free text":   {args: `{"input": "*** Begin"}`, back: "*** End", kind: chat.ToolCustom},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.args == "" {
				tc.args = args
			}
			if tc.kind == "" {
				tc.kind = chat.ToolFunction
			}
			f := &fake{}
			h := newHouse(t, pipeline.Config{}, f)
			raw := "<think>\nA tool helps.\n</think>\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": " + tc.args + "}\n</tool_call>"
			ask := func(turns ...chat.Turn) []chat.Answer {
				t.Helper()
				f.generate = h.say(raw, 3, engine.FinishEOS)
				r := request("Weather?")
				r.Chat.Tools = []chat.Tool{{Kind: tc.kind, Name: "weather", Schema: []byte(schema), Wire: []byte(`{"type":"function","function":{"name":"weather"}}`)}}
				r.Chat.Turns = append(r.Chat.Turns, turns...)
				answers, err := chat.Fold(h.Run(t.Context(), r))
				if err != nil {
					t.Fatal(err)
				}
				return answers
			}
			answer := ask()[0]
			use := *answer.Blocks[1].Use
			use.Args, use.Kind = tc.back, tc.kind
			if tc.other {
				use.ID = strings.Replace(use.ID, "call_", "call_0", 1)
			}
			// Twice: what has been found out is remembered.
			for range 2 {
				ask(
					chat.Turn{Role: chat.RoleAssistant, Blocks: []chat.Block{answer.Blocks[0], {Kind: chat.ToolCall, Use: &use}}},
					chat.Turn{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: use.ID, Blocks: []chat.Block{{Kind: chat.Text, Text: "rain"}}}}}},
				)
				sent := f.sent()
				before, after := slices.Concat(sent[0].TokenIDs, h.ids(raw)), sent[len(sent)-1].TokenIDs
				if same := len(after) >= len(before) && slices.Equal(after[:len(before)], before); same != tc.same {
					text, err := h.model.Text(after)
					if err != nil {
						t.Fatal(err)
					}
					t.Errorf("the next prompt begins with the answer: %v, want %v:\n%s", same, tc.same, text)
				}
			}
			if use.Args != tc.back || use.Kind != tc.kind {
				t.Errorf("the client's own call was changed: %+v", use)
			}
		})
	}
}
