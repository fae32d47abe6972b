package chattemplate_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/google/go-cmp/cmp"
)

// A short way to write conversations.

func text(s string) chat.Block    { return chat.Block{Kind: chat.Text, Text: s} }
func thought(s string) chat.Block { return chat.Block{Kind: chat.Thought, Text: s} }

func use(id, name, args string) chat.Block {
	return chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: id, Name: name, Kind: chat.ToolFunction, Args: args}}
}

func answer(id string, blocks ...chat.Block) chat.Block {
	return chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: id, Blocks: blocks}}
}

func turn(role chat.Role, blocks ...chat.Block) chat.Turn {
	return chat.Turn{Role: role, Blocks: blocks}
}

func user(s string) chat.Turn      { return turn(chat.RoleUser, text(s)) }
func assistant(s string) chat.Turn { return turn(chat.RoleAssistant, text(s)) }
func system(s string) chat.Turn    { return turn(chat.RoleSystem, text(s)) }

func compile(t testing.TB, source string) *chattemplate.Template {
	t.Helper()
	tmpl, err := chattemplate.Compile(source, chattemplate.Config{BOS: "<s>", EOS: "</s>"})
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func compileFile(t testing.TB, name string) *chattemplate.Template {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return compile(t, string(source))
}

func render(t testing.TB, tmpl *chattemplate.Template, r *chat.Request) string {
	t.Helper()
	out, err := tmpl.Render(r, chattemplate.Options{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// conversations.json holds what Python's Jinja2, set up as in transformers,
// makes of our templates and messages in OpenAI's form.
func TestConversations(t *testing.T) {
	data, err := os.ReadFile("testdata/conversations.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Template, Name, Want string
		Messages             []struct {
			Role, Content    string
			ReasoningContent string `json:"reasoning_content"`
			ToolCallID       string `json:"tool_call_id"`
			ToolCalls        []struct {
				ID       string
				Function struct {
					Name      string
					Arguments json.RawMessage
				}
			} `json:"tool_calls"`
		}
		Tools []json.RawMessage
		Args  json.RawMessage
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Template+"/"+c.Name, func(t *testing.T) {
			r := &chat.Request{API: chat.APIChat, TemplateArgs: c.Args}
			for _, m := range c.Messages {
				turn := chat.Turn{Role: chat.Role(m.Role)}
				if m.ReasoningContent != "" {
					turn.Blocks = append(turn.Blocks, thought(m.ReasoningContent))
				}
				switch {
				case m.Role == "tool":
					turn.Blocks = append(turn.Blocks, answer(m.ToolCallID, text(m.Content)))
				case m.Content != "":
					turn.Blocks = append(turn.Blocks, text(m.Content))
				}
				for _, c := range m.ToolCalls {
					turn.Blocks = append(turn.Blocks, use(c.ID, c.Function.Name, string(c.Function.Arguments)))
				}
				r.Turns = append(r.Turns, turn)
			}
			for _, wire := range c.Tools {
				r.Tools = append(r.Tools, chat.Tool{Kind: chat.ToolFunction, Wire: wire})
			}
			if diff := cmp.Diff(c.Want, render(t, compileFile(t, c.Template), r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	tmpl := compile(t, "{% for m in messages %}\n{{ m.content }}{% if m.content == 'bad' %}{{ raise_exception('No <bad> \"words\".') }}{% endif %}{% endfor %}")
	_, err := tmpl.Render(&chat.Request{Turns: []chat.Turn{user("bad")}}, chattemplate.Options{})
	var refused *chattemplate.TemplateError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want a TemplateError", err)
	}
	if want := (chattemplate.TemplateError{Message: `No <bad> "words".`, Line: 2}); *refused != want {
		t.Errorf("got %+v, want %+v", *refused, want)
	}
	tmpl = compile(t, "{{ messages[0].content }}{{ zz.x if messages[0].content == 'bad' }}")
	_, err = tmpl.Render(&chat.Request{Turns: []chat.Turn{user("bad")}}, chattemplate.Options{})
	if err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), "'zz' is undefined") {
		t.Errorf("got %v, want the undefined name, and no TemplateError", err)
	}
}

func TestNamedTemplates(t *testing.T) {
	r := &chat.Request{Turns: []chat.Turn{user("q")}}
	withTools := &chat.Request{Turns: r.Turns, Tools: []chat.Tool{{Kind: chat.ToolFunction, Name: "f"}}}
	onlyServer := &chat.Request{Turns: r.Turns, Tools: []chat.Tool{{Kind: chat.ToolServer, Name: "search"}}}
	both := map[string]string{"default": "D{{ messages[0].content }}", "tool_use": "T{{ messages[0].content }}{{ tools | length }}", "rag": "{% nonsense"}
	for _, c := range []struct {
		named map[string]string
		r     *chat.Request
		hide  bool
		want  string
	}{
		{both, r, false, "Dq"},
		{both, withTools, false, "Tq1"},
		{both, withTools, true, "Dq"},
		{both, onlyServer, false, "Dq"},
		{map[string]string{"default": both["default"]}, withTools, false, "Dq"},
		{map[string]string{"tool_use": both["tool_use"]}, withTools, false, "Tq1"},
	} {
		tmpl, err := chattemplate.CompileNamed(c.named, chattemplate.Config{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := tmpl.Render(c.r, chattemplate.Options{HideTools: c.hide})
		if got != c.want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, c.want)
		}
	}
	for _, named := range []map[string]string{nil, {"rag": "x"}, {"default": "{% if %}"}, {"default": "x", "tool_use": "{{"}} {
		if _, err := chattemplate.CompileNamed(named, chattemplate.Config{}); err == nil {
			t.Errorf("%v was compiled", named)
		}
	}
}

func TestVariables(t *testing.T) {
	const source = "{{ messages[0].content }}|{{ bos_token }}{{ eos_token }}{{ unk_token }}|{{ tools is none }}|{{ add_generation_prompt }}|" +
		"{{ thinking }}{{ enable_thinking }}{{ thinking_mode }}{{ reasoning_effort }}|{{ extra | tojson }}|{{ strftime_now('%Y-%m-%d') }}"
	tmpl, err := chattemplate.Compile(source, chattemplate.Config{BOS: "<s>", EOS: "</s>", UNK: "?", Now: func() time.Time {
		return time.Date(2026, time.March, 4, 0, 0, 0, 0, time.UTC)
	}})
	if err != nil {
		t.Fatal(err)
	}
	yes, no := true, false
	for _, c := range []struct {
		thinking chat.Thinking
		args     string
		want     string
	}{
		{chat.Thinking{}, `{"extra":{"b":1,"a":12345678901234567890}}`, `q|<s></s>?|True|True||{"b": 1, "a": 12345678901234567890}|2026-03-04`},
		{chat.Thinking{Enabled: &yes, Effort: "high"}, `{"extra":1}`, `q|<s></s>?|True|True|TrueTrueenabledhigh|1|2026-03-04`},
		{chat.Thinking{Enabled: &no}, `{"extra":1}`, `q|<s></s>?|True|True|FalseFalsedisabled|1|2026-03-04`},
		{chat.Thinking{Enabled: &no}, `{"extra":1,"thinking":true,"thinking_mode":"x","bos_token":"B","add_generation_prompt":false}`, `q|B</s>?|True|False|TrueFalsex|1|2026-03-04`},
	} {
		r := &chat.Request{Turns: []chat.Turn{user("q")}, Thinking: c.thinking, TemplateArgs: []byte(c.args)}
		if got := render(t, tmpl, r); got != c.want {
			t.Errorf("%s: got %s, want %s", c.args, got, c.want)
		}
	}
	for _, args := range []string{`[]`, `{`, `"x"`} {
		if out, err := tmpl.Render(&chat.Request{TemplateArgs: []byte(args)}, chattemplate.Options{}); err == nil {
			t.Errorf("arguments %s rendered %q", args, out)
		}
	}
}

func TestTools(t *testing.T) {
	tmpl := compile(t, "{{ messages[0].content }}{% for t in tools %}{{ t | tojson }}{% endfor %}")
	for _, c := range []struct {
		name string
		tool chat.Tool
		want string
	}{
		{
			"whole",
			chat.Tool{Wire: []byte(`{"function":{"parameters":{"properties":{"z":1,"a":2e1},"type":"object"},"description":"<d>","name":"f","strict":true},"type":"function","x":1.0}`)},
			`{"function": {"parameters": {"properties": {"z": 1, "a": 20.0}, "type": "object"}, "description": "<d>", "name": "f", "strict": true}, "type": "function", "x": 1.0}`,
		},
		{
			"absent members come last",
			chat.Tool{Wire: []byte(`{"type":"function","function":{"name":"f","parameters":{"x":1}}}`)},
			`{"type": "function", "function": {"name": "f", "parameters": {"x": 1, "type": "object", "properties": {}}, "description": ""}}`,
		},
		{
			"no parameters",
			chat.Tool{Wire: []byte(`{"type":"function","function":{"name":"f","description":"d"}}`)},
			`{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}`,
		},
		{
			"another API's shape",
			chat.Tool{Name: "f", Description: "d", Schema: []byte(`{"type":"object","$defs":{},"properties":{"b":{},"a":{}}}`), Wire: []byte(`{"name":"f","input_schema":{}}`)},
			`{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "$defs": {}, "properties": {"b": {}, "a": {}}}}}`,
		},
		{
			"free text",
			chat.Tool{Kind: chat.ToolCustom, Name: "sh", Description: "run", Wire: []byte(`{"type":"custom"}`)},
			`{"type": "function", "function": {"name": "sh", "description": "run", "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}}}`,
		},
		{
			"free text, described",
			chat.Tool{Kind: chat.ToolCustom, Name: "sh", Schema: []byte(`{"type":"object","properties":{"input":{"type":"string","description":"a line"}}}`)},
			`{"type": "function", "function": {"name": "sh", "description": "", "parameters": {"type": "object", "properties": {"input": {"type": "string", "description": "a line"}}}}}`,
		},
	} {
		r := &chat.Request{Turns: []chat.Turn{user("q")}, Tools: []chat.Tool{c.tool, {Kind: chat.ToolServer, Name: "web"}}}
		for range 2 { // the second time from memory
			if got, want := render(t, tmpl, r), "q"+c.want; got != want {
				t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, want)
			}
		}
	}
}

// The order of tools is the client's.
func TestToolOrder(t *testing.T) {
	tmpl := compile(t, "{{ messages[0].content }}{% for t in tools %}{{ t.function.name }}{% endfor %}")
	r := &chat.Request{Turns: []chat.Turn{user("")}}
	for _, name := range []string{"z", "a", "m"} {
		r.Tools = append(r.Tools, chat.Tool{Kind: chat.ToolFunction, Name: name})
	}
	if got := render(t, tmpl, r); got != "zam" {
		t.Errorf("got %s", got)
	}
}
