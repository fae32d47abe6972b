package chattemplate_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
)

// What a model writes between its words and its calls belongs to the words, and
// the template writes it as well: it stands there once.
func TestGapBeforeCalls(t *testing.T) {
	template := func(content, gap string) string {
		return `{%- for m in messages %}<{{ m.role }}>{% set content = ` + content + ` -%}
			{%- if m.tool_calls %}{{ content }}{% if content %}{{ "` + gap + `" }}{% endif %}
			{%- for c in m.tool_calls %}<call>{{ c.function.name }}{{ c.function.arguments }}</call>{% endfor %}
			{%- else %}{{ content }}{% endif %}</{{ m.role }}>
			{%- endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
	}
	for name, tc := range map[string]struct {
		template string
		said     string // before the call, as the model wrote it
		want     string
	}{
		"none":                     {template("m.content", ""), "Look.\n", "Look.\n"},
		"a line":                   {template("m.content", `\n`), "Look.\n", "Look.\n"},
		"a line, and one of words": {template("m.content", `\n`), "Look.\n\n", "Look.\n\n"},
		"a client that trims":      {template("m.content", `\n`), "Look.", "Look.\n"},
		"two lines":                {template("m.content", `\n\n`), "Look.\n\n", "Look.\n\n"},
		"a template that trims":    {template("m.content | trim", `\n`), "Look.\n", "Look.\n"},
		"no form for calls":        {`{%- for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}`, "Look.\n", "Look.\n"},
		"nothing but the gap":      {template("m.content", `\n`), "\n", "\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &chat.Request{API: chat.APIMessages, Turns: []chat.Turn{
				user("q"),
				turn(chat.RoleAssistant, text(tc.said), use("call_1", "f", "{}")),
				turn(chat.RoleTool, answer("call_1", text("r"))),
				assistant("Done.\n"),
			}}
			out, err := compile(t, tc.template).Render(r, chattemplate.Options{})
			if err != nil {
				t.Fatal(err)
			}
			call := "<call>f{}</call>"
			if !strings.Contains(tc.template, "<call>") {
				call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"
			}
			if want := "<assistant>" + tc.want + call; !strings.Contains(out, want) {
				t.Errorf("%q is not in %q", want, out)
			}
			if !strings.Contains(out, "Done.\n</assistant>") && !strings.Contains(tc.template, "trim") {
				t.Errorf("words without calls were changed: %q", out)
			}
		})
	}
}

// What a template writes before the text of an answer, and not where it asks for
// one, the model has written: it stands there once.
func TestLeadOfAnswers(t *testing.T) {
	const template = `{%- for m in messages %}{{ m.role }}:{{ " " }}{{ m.content }};{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}`
	for said, want := range map[string]string{" Yes": "assistant: Yes;", "Yes": "assistant: Yes;", "  Yes": "assistant:  Yes;", " ": "assistant:  ;", "": "assistant: ;"} {
		r := &chat.Request{API: chat.APIChat, Turns: []chat.Turn{user(" q"), assistant(said)}}
		out, err := compile(t, template).Render(r, chattemplate.Options{})
		if err != nil || out != "user:  q;"+want {
			t.Errorf("said %q: %q, %v, want %q", said, out, err, want)
		}
	}
}
