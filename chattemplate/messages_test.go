package chattemplate_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/google/go-cmp/cmp"
)

// show prints every message that reaches a template.
const show = `{% for m in messages %}
{{ m | tojson }}
{% endfor %}`

// Templates that differ from show in what they refuse or cannot take.
const (
	systemFirst = `{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system must be first') }}{% endif %}{% endfor %}` + show
	noSystem    = `{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% endfor %}` + show
	silent      = "{% for m in messages if m.role in ['user', 'assistant'] %}\n{{ m.role }}: {{ m.content }}\n{% endfor %}"
	alternating = `{% for m in messages if m.role != 'system' %}{% if (m.role == 'user') != loop.index0 is even %}{{ raise_exception('alternate') }}{% endif %}{% endfor %}` + show
	verbatim    = "{% for m in messages %}\n{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.function.name }}>{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}{% endfor %}{{ '\n' }}{% endfor %}"
	thoughtful  = `{# reasoning_content #}` + show
	developers  = `{# developer #}` + show
	onlyNull    = "{% for m in messages %}\n{{ m.role }}:{% if m.content is none %}{{ m.tool_calls | tojson }}{% else %}{{ m.content }}{% endif %}{{ '\n' }}{% endfor %}"
	gathering   = "{% for m in messages if m.role == 'system' %}{{ m.content }};{% endfor %}{% for m in messages if m.role != 'system' %}{{ m.role }}:{{ m.content }};{% endfor %}"
	notation    = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}({% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }} {% endfor %}{% endif %}){% endfor %};{% endfor %}"
	textOnly    = "{% for m in messages %}{{ m.role }}:{% if m.content is none %}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}{% else %}{{ m.content }}{% endif %};{% endfor %}"
	inField     = "{% for m in messages %}\n{{ m.role }}:{{ m.thinking }}:{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}\n{% endfor %}"
)

func TestMessages(t *testing.T) {
	image := chat.Block{Kind: chat.Image, Media: &chat.Media{Source: "base64", MediaType: "image/png", Data: "AAAA"}}
	noType := chat.Block{Kind: chat.Image, Media: &chat.Media{Source: "url", Data: "https://x/y"}}
	custom := chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "c", Name: "sh", Kind: chat.ToolCustom, Args: `ls "a"`}}
	for _, c := range []struct {
		name   string
		source string
		api    chat.API
		system []chat.Block
		turns  []chat.Turn
		want   []string
	}{
		{
			name: "plain", source: show,
			turns: []chat.Turn{system("s"), {Role: chat.RoleUser, Name: "ann", Blocks: []chat.Block{text("q")}}, assistant("a")},
			want:  []string{`{"role": "system", "content": "s"}`, `{"role": "user", "name": "ann", "content": "q"}`, `{"role": "assistant", "content": "a"}`},
		},
		{
			name: "parts of chat are lines", source: show, api: chat.APIChat,
			turns: []chat.Turn{turn(chat.RoleUser, text("a"), text("b"))},
			want:  []string{`{"role": "user", "content": "a\nb"}`},
		},
		{
			name: "parts of messages are joined by nothing, those of system by a line end", source: show, api: chat.APIMessages,
			system: []chat.Block{text("x"), text("y")},
			turns:  []chat.Turn{turn(chat.RoleUser, text("a"), text("b")), turn(chat.RoleSystem, text("c"), text("d"))},
			want:   []string{`{"role": "system", "content": "x\ny"}`, `{"role": "user", "content": "ab"}`, `{"role": "system", "content": "c\nd"}`},
		},
		{
			name: "leading system texts of responses are paragraphs", source: show, api: chat.APIResponses,
			system: []chat.Block{text("x"), text("y")},
			turns:  []chat.Turn{turn(chat.RoleUser, text("a"), text("b"))},
			want:   []string{`{"role": "system", "content": "x\n\ny"}`, `{"role": "user", "content": "ab"}`},
		},
		{
			name: "results of one user turn come first", source: show, api: chat.APIMessages,
			turns: []chat.Turn{
				turn(chat.RoleAssistant, text("look"), use("t1", "f", `{"b":1,"a":[2.50,12345678901234567890]}`), use("t2", "g", "")),
				turn(chat.RoleUser, text("and?"), answer("t1", text("1"), text("2")), answer("t2")),
			},
			want: []string{
				`{"role": "assistant", "content": "look", "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": [2.5, 12345678901234567890]}}}, {"id": "t2", "type": "function", "function": {"name": "g", "arguments": {}}}]}`,
				`{"role": "tool", "name": "f", "tool_call_id": "t1", "content": "12"}`,
				`{"role": "tool", "name": "g", "tool_call_id": "t2", "content": ""}`,
				`{"role": "user", "content": "and?"}`,
			},
		},
		{
			name: "arguments that are no object", source: show,
			turns: []chat.Turn{turn(chat.RoleAssistant, use("1", "f", `{"a": tru`), use("2", "f", `[1]`), use("3", "f", " "), custom)},
			want: []string{`{"role": "assistant", "content": "", "tool_calls": [` +
				`{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"__invalid_json": "{\"a\": tru"}}}, ` +
				`{"id": "2", "type": "function", "function": {"name": "f", "arguments": {}}}, ` +
				`{"id": "3", "type": "function", "function": {"name": "f", "arguments": {}}}, ` +
				`{"id": "c", "type": "function", "function": {"name": "sh", "arguments": {"input": "ls \"a\""}}}]}`},
		},
		{
			name: "arguments stay text where that is shown", source: verbatim,
			turns: []chat.Turn{turn(chat.RoleAssistant, use("1", "f", `{"a":  1.50}`), use("2", "f", `{"a": tru`), use("3", "f", ""), custom)},
			want:  []string{`assistant:<f>{"a":  1.50}<f>{"a": tru<f>{}<sh>{"input": "ls \"a\""}`},
		},
		{
			name: "thoughts in a field", source: thoughtful,
			turns: []chat.Turn{turn(chat.RoleAssistant, thought("one"), text("a"), thought("two"))},
			want:  []string{`{"role": "assistant", "content": "a", "reasoning_content": "one\ntwo"}`},
		},
		{
			name: "thoughts in a field of another name", source: inField,
			turns: []chat.Turn{turn(chat.RoleAssistant, thought("one"), text("a"))},
			want:  []string{`assistant:one:a`},
		},
		{
			name: "thoughts in the text", source: silent,
			turns: []chat.Turn{user("q"), turn(chat.RoleAssistant, thought("\none\n"), thought("two"), text("\n\na"))},
			want:  []string{"user: q", "assistant: <think>\none\n</think><think>two</think>\n\na"},
		},
		{
			name: "media of history", source: show,
			turns: []chat.Turn{turn(chat.RoleUser, text("see"), image, noType), turn(chat.RoleTool, answer("1", image))},
			want:  []string{`{"role": "user", "content": "see\n[image: image/png]\n[image]"}`, `{"role": "tool", "tool_call_id": "1", "content": "[image: image/png]"}`},
		},
		{
			name: "what nobody knows is left out", source: show,
			turns: []chat.Turn{turn(chat.RoleUser, text("a"), chat.Block{Kind: chat.Opaque, Wire: []byte(`{}`)}), turn(chat.RoleAssistant, chat.Block{Kind: chat.Refusal, Text: "no"})},
			want:  []string{`{"role": "user", "content": "a"}`, `{"role": "assistant", "content": "no"}`},
		},
		{
			name: "late system turns stay in place", source: systemFirst,
			turns: []chat.Turn{system("a"), system("b"), user("q"), system("late"), user("r")},
			want:  []string{`{"role": "system", "content": "a\n\nb"}`, `{"role": "user", "content": "q"}`, `{"role": "user", "content": "<system>\nlate\n</system>"}`, `{"role": "user", "content": "r"}`},
		},
		{
			name: "no system turns at all", source: noSystem,
			turns: []chat.Turn{system("a"), user("q")},
			want:  []string{`{"role": "user", "content": "<system>\na\n</system>"}`, `{"role": "user", "content": "q"}`},
		},
		{
			name: "system turns that would vanish", source: silent,
			turns: []chat.Turn{system("a"), user("q")},
			want:  []string{"user: <system>\na\n</system>", "user: q"},
		},
		{
			name: "calls and results that would vanish", source: silent,
			turns: []chat.Turn{user("q"), turn(chat.RoleAssistant, text("look"), use("1", "f", `{"a":1}`)), turn(chat.RoleTool, answer("1", text("res")))},
			want:  []string{"user: q", "assistant: look\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>", "user: <tool_response>\nres\n</tool_response>"},
		},
		{
			name: "developers", source: developers,
			turns: []chat.Turn{turn(chat.RoleDeveloper, text("d")), user("q")},
			want:  []string{`{"role": "developer", "content": "d"}`, `{"role": "user", "content": "q"}`},
		},
		{
			name: "developers that the template does not know", source: show,
			turns: []chat.Turn{turn(chat.RoleDeveloper, text("d")), user("q")},
			want:  []string{`{"role": "system", "content": "d"}`, `{"role": "user", "content": "q"}`},
		},
		{
			name: "turns that must alternate", source: alternating,
			turns: []chat.Turn{user("a"), user("b"), assistant("c"), assistant("d"), user("e")},
			want:  []string{`{"role": "user", "content": "a\n\nb"}`, `{"role": "assistant", "content": "c\n\nd"}`, `{"role": "user", "content": "e"}`},
		},
		{
			name: "calls behind None", source: onlyNull,
			turns: []chat.Turn{user("q"), turn(chat.RoleAssistant, use("1", "f", `{}`))},
			want:  []string{"user:q", `assistant:[{"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}]`},
		},
		{
			name: "late system turns that would move to the front", source: gathering,
			turns: []chat.Turn{system("a"), user("q"), system("late")},
			want:  []string{"a;user:q;user:<system>\nlate\n</system>;"},
		},
		{
			name: "a notation of the template's own", source: notation,
			turns: []chat.Turn{user("q"), turn(chat.RoleAssistant, use("1", "f", `{"a": 1}`))},
			want:  []string{"user:q;assistant:f(a=1 );"},
		},
		{
			name: "calls behind None with arguments that must be text", source: textOnly,
			turns: []chat.Turn{user("q"), turn(chat.RoleAssistant, use("1", "f", `{"a":  1}`))},
			want:  []string{`user:q;assistant:f{"a":  1};`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &chat.Request{API: c.api, System: c.system, Turns: c.turns}
			got := strings.TrimSuffix(render(t, compile(t, c.source), r), "\n")
			if diff := cmp.Diff(strings.Join(c.want, "\n"), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A template that insists on parts, short ids and single calls gets them.
func TestDemandingTemplate(t *testing.T) {
	r := &chat.Request{API: chat.APIMessages, System: []chat.Block{text("s")}, Turns: []chat.Turn{
		user("q"),
		turn(chat.RoleAssistant, text("look"), use("call_1", "f", `{"a": 1}`), use("abcdefgh9", "g", `{"b":2}`)),
		turn(chat.RoleUser, answer("nobodys_1", text("stray")), answer("abcdefgh9", text("two")), answer("call_1", text("one"))),
		user("r"),
	}}
	const want = `[SYSTEM]s
[USER]q
[ASSISTANT]look[CALL rwU906w5h f]{"a": 1}
[RESULT rwU906w5h f]one
[ASSISTANT][CALL abcdefgh9 g]{"b":2}
[RESULT abcdefgh9 g]two
[RESULT EDJnJAI9F ]stray
[USER]r
[ASSISTANT]`
	if diff := cmp.Diff(want, render(t, compileFile(t, "parts.jinja"), r)); diff != "" {
		t.Error(diff)
	}
}
