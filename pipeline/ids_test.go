package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

// withIDs is a template that shows the ids of calls, as that of Kimi K2 does.
const withIDs = `{%- for m in messages -%}
<|im_start|>{{ m.role }}
{% if m.content %}{{ m.content }}{% endif %}
{%- if m.tool_calls -%}<|tool_calls_section_begin|>
{%- for c in m.tool_calls -%}<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}<|tool_call_end|>{%- endfor -%}
<|tool_calls_section_end|>{%- endif -%}
{%- if m.tool_call_id %} for {{ m.tool_call_id }}{% endif -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}`

// Whatever becomes of ids at the client, the history has those that the model
// knows.
func TestNativeIDs(t *testing.T) {
	call := func(id, name string) chat.Turn {
		return turnOf(chat.RoleAssistant, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: id, Name: name, Args: `{}`}})
	}
	result := func(id string) chat.Turn {
		return turnOf(chat.RoleTool, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: id, Blocks: []chat.Block{say("done")}}})
	}
	for name, tc := range map[string]struct {
		parser string
		turns  []chat.Turn
		want   []string // what stands in the prompt, in order
	}{
		"ours":            {"kimi_k2", []chat.Turn{call("call_0123456789ABk0", "f"), result("call_0123456789ABk0")}, []string{"begin|>functions.f:0<", "for functions.f:0<"}},
		"the model's own": {"kimi_k2", []chat.Turn{call("functions.f:0", "f"), result("functions.f:0")}, []string{"begin|>functions.f:0<", "for functions.f:0<"}},
		"another's":       {"kimi_k2", []chat.Turn{call("toolu_x", "f"), result("toolu_x"), call("toolu_y", "g"), result("toolu_y")}, []string{"functions.f:0<", "for functions.f:0<", "functions.g:1<", "for functions.g:1<"}},
		"rewritten":       {"kimi_k2", []chat.Turn{call("functions_f_0", "f"), result("functions_f_0")}, []string{"functions.f:0<", "for functions.f:0<"}},
		"no native ids":   {"hermes", []chat.Turn{call("call_0123456789ABk0", "f"), result("call_0123456789ABk0")}, []string{"call_0123456789ABk0<", "for call_0123456789ABk0<"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			model := templated(t, withIDs, prompt.Parsers{Tool: tc.parser})
			h := newHouseWith(t, model, pipeline.Config{}, router.Config{Mode: router.RoundRobin}, f)
			f.generate = h.say(sentence, 100, engine.FinishEOS)
			r := request("Hello")
			r.Chat.Tools = []chat.Tool{function("", "f"), function("", "g")}
			r.Chat.Turns = append(r.Chat.Turns, tc.turns...)
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
				t.Fatal(err)
			}
			text, _ := model.Text(f.sent()[0].TokenIDs)
			rest := text
			for _, want := range tc.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("no %q in order in\n%s", want, text)
				}
				rest = after
			}
			if tc.turns[0].Blocks[0].Use.NativeID != "" {
				t.Error("the client's own call has changed")
			}
		})
	}
}

// A model that counts its calls over the conversation goes on counting where the
// history ends; the client's ids lead back to the model's.
func TestNativeIDsGoOn(t *testing.T) {
	for api, prefix := range map[chat.API]string{chat.APIChat: "call_", chat.APIMessages: "toolu_"} {
		f := &fake{}
		model := templated(t, withIDs, prompt.Parsers{Tool: "kimi_k2"})
		h := newHouseWith(t, model, pipeline.Config{}, router.Config{Mode: router.RoundRobin}, f)
		c := &conversation{t: t, h: h, f: f, next: *request("First question").Chat}
		c.next.API, c.next.Tools = api, []chat.Tool{function("", "f")}
		for i := range 3 {
			const form = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:%d<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
			n := c.ask(fmt.Sprintf(form, i), "s")
			if i > 0 && (n.Reuse == nil || n.Reuse.Ratio() != 1) {
				t.Errorf("turn %d: %+v, %+v", i, n.Reuse, n.Reuse.Difference)
			}
			use := c.next.Turns[len(c.next.Turns)-1].Blocks[0].Use
			if use == nil || !strings.HasPrefix(use.ID, prefix) || !strings.HasSuffix(use.ID, fmt.Sprintf("k%d", i)) {
				t.Fatalf("turn %d: %+v", i, use)
			}
			c.next.Turns = append(c.next.Turns, turnOf(chat.RoleTool, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: use.ID, Blocks: []chat.Block{say("done")}}}))
		}
	}
}
