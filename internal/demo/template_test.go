package demo_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"pgregory.net/rapid"
)

func template(t testing.TB) *chattemplate.Template {
	t.Helper()
	tmpl, err := chattemplate.Compile(string(file(t, "chat_template.jinja")), chattemplate.Config{EOS: "<|im_end|>"})
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func text(s string) []chat.Block { return []chat.Block{{Kind: chat.Text, Text: s}} }

var weather = chat.Tool{Kind: chat.ToolFunction, Name: "get_weather", Description: "Weather of a city", Schema: json.RawMessage(`{"type": "object"}`)}

func TestTemplate(t *testing.T) {
	tmpl := template(t)
	call := chat.Turn{Role: chat.RoleAssistant, Blocks: []chat.Block{
		{Kind: chat.Thought, Text: "I need both."},
		{Kind: chat.Text, Text: "One moment."},
		{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "1", Name: "get_weather", Args: `{"city": "Paris"}`}},
		{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "2", Name: "get_weather", Args: `{"city": "Rome"}`}},
	}}
	answer := func(id, s string) chat.Turn {
		return chat.Turn{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: id, Blocks: text(s)}}}}
	}
	r := &chat.Request{
		System: text("Be brief."),
		Turns:  []chat.Turn{{Role: chat.RoleUser, Blocks: text("Paris & Rome?")}, call, answer("1", "18 °C"), answer("2", "21 °C")},
	}
	const want = `<|im_start|>system
Be brief.<|im_end|>
<|im_start|>user
Paris & Rome?<|im_end|>
<|im_start|>assistant
<think>
I need both.
</think>

One moment.
<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris"}}
</tool_call>
<tool_call>
{"name": "get_weather", "arguments": {"city": "Rome"}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
18 °C
</tool_response>
<tool_response>
21 °C
</tool_response><|im_end|>
<|im_start|>assistant
`
	got, err := tmpl.Render(r, chattemplate.Options{AddGenerationPrompt: true})
	if err != nil || got != want {
		t.Errorf("rendered (error %v)\n%s\nwant\n%s", err, got, want)
	}

	r.TemplateArgs = json.RawMessage(`{"enable_thinking": false}`)
	r.Tools = []chat.Tool{weather}
	got, err = tmpl.Render(r, chattemplate.Options{AddGenerationPrompt: true})
	if err != nil || !strings.HasSuffix(got, "<|im_start|>assistant\n<think>\n\n</think>\n\n") {
		t.Errorf("without thinking (error %v):\n%s", err, got)
	}
	if !strings.Contains(got, "<tools>\n{") || !strings.Contains(got, `"name": "get_weather"`) {
		t.Errorf("with tools:\n%s", got)
	}
}

// What is sent for one turn is the beginning of what is sent for the next, so
// long as the client replays all it got: this is what the cache lives on.
func TestNextPromptExtendsLast(t *testing.T) {
	tmpl := template(t)
	words := rapid.SampledFrom([]string{"hello", "two words", "line\nline", "<think>", "ends with newline\n", "é"})
	rapid.Check(t, func(t *rapid.T) {
		r := &chat.Request{}
		if rapid.Bool().Draw(t, "system") {
			r.System = text(words.Draw(t, "system text"))
		}
		if rapid.Bool().Draw(t, "tools") {
			r.Tools = []chat.Tool{weather}
		}
		if rapid.Bool().Draw(t, "quick") {
			r.TemplateArgs = json.RawMessage(`{"enable_thinking": false}`)
		}
		r.Turns = []chat.Turn{{Role: chat.RoleUser, Blocks: text(words.Draw(t, "question"))}}
		last := ""
		for range rapid.IntRange(1, 5).Draw(t, "turns") {
			prompt, err := tmpl.Render(r, chattemplate.Options{AddGenerationPrompt: true})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(prompt, last) {
				t.Fatalf("this prompt does not begin with the last one:\n%s\n---\n%s", prompt, last)
			}
			last = prompt
			var reply []chat.Block
			// With thinking off the prompt has ended the thoughts already.
			if r.TemplateArgs == nil && rapid.Bool().Draw(t, "thinks") {
				reply = append(reply, chat.Block{Kind: chat.Thought, Text: words.Draw(t, "thought")})
			}
			reply = append(reply, chat.Block{Kind: chat.Text, Text: words.Draw(t, "reply")})
			if rapid.Bool().Draw(t, "calls") {
				reply = append(reply, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "1", Name: "get_weather", Args: `{}`}})
				r.Turns = append(r.Turns, chat.Turn{Role: chat.RoleAssistant, Blocks: reply},
					chat.Turn{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: "1", Blocks: text(words.Draw(t, "result"))}}}})
				continue
			}
			r.Turns = append(r.Turns, chat.Turn{Role: chat.RoleAssistant, Blocks: reply}, chat.Turn{Role: chat.RoleUser, Blocks: text(words.Draw(t, "next"))})
		}
	})
}
