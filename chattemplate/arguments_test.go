package chattemplate_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
)

// History is never refused for what a model once wrote as arguments. Templates
// that take text get it as it was written, all others an object, whatever the
// kind of template and of arguments.
func TestArgumentsOfEveryKind(t *testing.T) {
	const body = `{% for m in messages %}{{ m.role }}:{{ m.content or '' }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} `
	kinds := map[string]struct {
		source        string
		text          bool
		before, after string
	}{
		"objects as JSON": {source: body + `{{ c.function.arguments | tojson }}]{% endfor %}{% endfor %}`, before: "[f ", after: "]"},
		"text or objects": {source: body + `{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}]{% endfor %}{% endfor %}`, text: true, before: "[f ", after: "]"},
		"text only":       {source: body + `{{ '' + c.function.arguments }}]{% endfor %}{% endfor %}`, text: true, before: "[f ", after: "]"},
		"members": {
			source: body + `{% for k, v in c.function.arguments.items() %}{{ k }}={{ v | tojson }};{% endfor %}]{% endfor %}{% endfor %}`,
			before: "[f ", after: "]",
		},
		"only without content": {
			source: `{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}`,
			before: "[f ", after: "]",
		},
		"no calls at all": {source: `{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}`, text: true, before: `<tool_call>` + "\n" + `{"name": "f", "arguments": `, after: "}\n</tool_call>"},
	}
	deep := strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500)
	for _, args := range []struct{ wrote, object, members string }{
		{`{"a":  1, "b": 12345678901234567890}`, `{"a": 1, "b": 12345678901234567890}`, `a=1;b=12345678901234567890;`},
		{`{"a": 0.1000000000000000055511151231257}`, `{"a": 0.1000000000000000055511151231257}`, `a=0.1000000000000000055511151231257;`},
		{``, `{}`, ``},
		{`{"a": `, `{"__invalid_json": "{\"a\": "}`, `__invalid_json="{\"a\": ";`},
		{`say "hi"`, `{"__invalid_json": "say \"hi\""}`, `__invalid_json="say \"hi\"";`},
		{`{"a": 1} {"b": 2}`, `{"__invalid_json": "{\"a\": 1} {\"b\": 2}"}`, `__invalid_json="{\"a\": 1} {\"b\": 2}";`},
		{`[1, 2]`, `{}`, ``},
		{`"text"`, `{}`, ``},
		{`null`, `{}`, ``},
		{deep, `{"__invalid_json": "` + strings.ReplaceAll(deep, `"`, `\"`) + `"}`, `__invalid_json="` + strings.ReplaceAll(deep, `"`, `\"`) + `";`},
	} {
		for name, kind := range kinds {
			want := args.object
			switch {
			case kind.text && args.wrote == "":
				want = "{}"
			case kind.text:
				want = args.wrote
			case name == "members":
				want = args.members
			}
			r := &chat.Request{API: chat.APIChat, Turns: []chat.Turn{
				user("q"), turn(chat.RoleAssistant, use("call00001", "f", args.wrote)), turn(chat.RoleTool, answer("call00001", text("r"))),
			}}
			tmpl := compile(t, kind.source)
			got := render(t, tmpl, r)
			if !strings.Contains(got, kind.before+want+kind.after) {
				t.Errorf("%s: %.80q became %.200q, want %.200q in it", name, args.wrote, got, kind.before+want+kind.after)
			}
			inert, err := tmpl.RenderInert(r, chattemplate.Options{AddGenerationPrompt: true}, chattemplate.NewControls([]string{"hi"}))
			if err != nil || inert.Text != got {
				t.Errorf("%s: %.80q became %.200q, %v with inert control tokens", name, args.wrote, inert.Text, err)
			}
		}
	}
}

// What is broken in a template is told when it is loaded, with its name and line.
func TestBrokenTemplates(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{% if x %}":              `chat template "tool_use": line 2: TemplateSyntaxError: unexpected end of template`,
		"a\n\n{{ x | nonsense }}":    `chat template "tool_use": line 3: TemplateSyntaxError: no filter named 'nonsense'`,
		"{{ x is nonsense }}":        `chat template "tool_use": line 1: TemplateSyntaxError: no test named 'nonsense'`,
		"{# never ends":              `chat template "tool_use": line 1: TemplateSyntaxError: missing end of comment`,
		"\n{% nonsense %}":           `chat template "tool_use": line 2: TemplateSyntaxError: encountered unknown tag 'nonsense'`,
		"\n\n\n{{ 'a }}":             `chat template "tool_use": line 4: TemplateSyntaxError: unexpected char`,
		strings.Repeat("x", 1<<20+1): `chat template "tool_use": TemplateSyntaxError: template is longer than 1048576 bytes`,
	} {
		_, err := chattemplate.CompileNamed(map[string]string{"default": "x", "tool_use": source}, chattemplate.Config{})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: got %v\nwant %s", source, err, want)
		}
	}
}
