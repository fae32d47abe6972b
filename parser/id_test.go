package parser_test

import (
	"regexp"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

func TestIDsOfCalls(t *testing.T) {
	form := regexp.MustCompile(`^call_[0-9A-Za-z]{24}$`)
	seen := map[string]bool{}
	for range 1000 {
		p := parser.New(hermes, parser.Options{ToolsOn: true})
		events := p.Push(nil, chat.Piece{Text: `<tool_call>{"name":"f"}</tool_call>`})
		if len(events) == 0 || events[0].Tool == nil {
			t.Fatalf("no call in %+v", events)
		}
		if id := events[0].Tool.ID; !form.MatchString(id) || seen[id] {
			t.Fatalf("%q, seen %v", id, seen[id])
		}
		seen[events[0].Tool.ID] = true
	}
}

// What the next request brings back of a call is enough to tell the model's id,
// and an index that the model gives twice is given once.
func TestNativeIDsComeBack(t *testing.T) {
	for _, tt := range []struct {
		family, text string
		first        []string // native ids, empty for any
		second       []string // of the same text in the next turn
	}{
		{
			"kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>" +
				"<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
			[]string{"functions.f:0", "functions.g:1"},
			[]string{"functions.f:2", "functions.g:3"},
		},
		{
			"kimi_k3", `<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|close|>call<|sep|><|open|>call tool="g" index="two"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>`,
			[]string{"f:0", "g:two"},
			[]string{"f:1", "g:2"},
		},
		{
			"mistral", "[TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS]{}[TOOL_CALLS]g{}",
			[]string{"a1B2c3D4e", ""},
			[]string{"", ""},
		},
	} {
		f, err := parser.Family{}.With(tt.family, "none")
		if err != nil {
			t.Fatal(err)
		}
		ids := chat.NewNativeIDs(f.IDs())
		var history []*chat.ToolUse
		seen := map[string]bool{}
		for turn, want := range [][]string{tt.first, tt.second} {
			p := parser.New(f, parser.Options{ToolsOn: true, History: history})
			events, _ := p.Finish(p.Push(nil, chat.Piece{Text: tt.text}), chat.FinishStop)
			calls := 0
			for _, e := range events {
				if e.Tool == nil {
					continue
				}
				native := e.Tool.NativeID
				if w := want[calls]; w != "" && native != w || native == "" || seen[native] || seen[e.Tool.ID] {
					t.Errorf("%s: call %d of turn %d has the ids %q and %q, want %q", tt.family, calls, turn, e.Tool.ID, native, w)
				}
				seen[native], seen[e.Tool.ID] = true, true
				echoed := &chat.ToolUse{ID: e.Tool.ID, Name: e.Tool.Name}
				if got := ids.Call(echoed); got != native {
					t.Errorf("%s: %q came back as %q, not as %q", tt.family, e.Tool.ID, got, native)
				}
				history = append(history, echoed)
				calls++
			}
			if calls != len(want) {
				t.Errorf("%s: %d calls in turn %d", tt.family, calls, turn)
			}
		}
	}
}
