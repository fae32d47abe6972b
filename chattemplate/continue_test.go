package chattemplate_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
)

func TestContinueFinalMessage(t *testing.T) {
	const (
		plain   = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant: {% endif %}"
		trims   = "{% for m in messages %}<s>{{ m.role }}: {{ m.content | trim }}</s>{% endfor %}"
		shadow  = "{% for m in messages %}<s>{{ m.role }}</s>{% endfor %}"
		inParts = "{% for m in messages %}<s>{{ m.role }}: {% for p in m.content %}{{ p.text }}{% endfor %}</s>{% endfor %}"
	)
	for name, tc := range map[string]struct {
		source string
		turns  []chat.Turn
		args   string
		want   string
		err    string
	}{
		"in the middle":         {source: plain, turns: []chat.Turn{user("q"), assistant("The answer is ")}, want: "<s>user: q</s><s>assistant: The answer is "},
		"the same text before":  {source: plain, turns: []chat.Turn{user("x"), assistant("x")}, want: "<s>user: x</s><s>assistant: x"},
		"a template that trims": {source: trims, turns: []chat.Turn{user("q"), assistant(" So \n")}, want: "<s>user: q</s><s>assistant: So"},
		"content in parts":      {source: inParts, turns: []chat.Turn{user("q"), turn(chat.RoleAssistant, text("a"), text("b"))}, want: "<s>user: q</s><s>assistant: ab"},
		"the question itself":   {source: plain, turns: []chat.Turn{user("Once upon")}, want: "<s>user: Once upon"},
		"control tokens":        {source: plain, turns: []chat.Turn{user("𐌲 <s>"), assistant("</s><")}, want: "<s>user: 𐌲 <s></s><s>assistant: </s><"},
		"said to be off":        {source: plain, turns: []chat.Turn{assistant("a")}, args: `{"continue_final_message":false}`, want: "<s>assistant: a</s><s>assistant: "},
		"no other prompt":       {source: plain, turns: []chat.Turn{assistant("a")}, args: `{"continue_final_message":true,"add_generation_prompt":false}`, want: "<s>assistant: a"},
		"two wishes":            {source: plain, turns: []chat.Turn{assistant("a")}, args: `{"continue_final_message":true,"add_generation_prompt":true}`, err: "exclude each other"},
		"no text":               {source: plain, turns: []chat.Turn{turn(chat.RoleAssistant)}, err: "needs a last turn with text"},
		"no turn":               {source: plain, err: "needs a last turn with text"},
		"a text that is hidden": {source: shadow, turns: []chat.Turn{assistant("a")}, err: "does not show"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &chat.Request{API: chat.APIMessages, Turns: tc.turns, TemplateArgs: []byte(tc.args)}
			if tc.args == "" {
				r.TemplateArgs = []byte(`{"continue_final_message":true}`)
			}
			tmpl := compile(t, tc.source)
			o := chattemplate.Options{AddGenerationPrompt: true}
			got, err := tmpl.Render(r, o)
			if got != tc.want || (tc.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q, %v; want %q, %q", got, err, tc.want, tc.err)
			}
			if out, _ := tmpl.RenderInert(r, o, controls); out.Text != tc.want {
				t.Errorf("with inert tokens %q, want %q", out.Text, tc.want)
			}
		})
	}
}

// What else clients may set of a template's variables.
func TestDocuments(t *testing.T) {
	tmpl := compile(t, "{% for d in documents or [] %}[{{ d.title }}: {{ d.text }}]{% endfor %}{{ messages[0].content }}{% if add_generation_prompt %}!{% endif %}")
	for args, want := range map[string]string{
		"": "q!",
		`{"documents":[{"title":"A","text":"a"},{"title":"B","text":"</s>"}]}`: "[A: a][B: </s>]q!",
		`{"add_generation_prompt":false}`:                                      "q",
	} {
		out := renderInert(t, tmpl, &chat.Request{Turns: []chat.Turn{user("q")}, TemplateArgs: []byte(args)})
		if out.Text != want || len(structure(out)) != 0 {
			t.Errorf("%s: %q with %q, want %q", args, out.Text, structure(out), want)
		}
	}
}
