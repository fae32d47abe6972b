package chattemplate_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
)

// A template shows the thoughts of as many answers as the client wants, if it can
// show them at all: by a switch of its own, whatever that is called.
func TestKeep(t *testing.T) {
	const (
		always = `{% for m in messages %}[{{ m.reasoning_content }}{{ m.content }}]{% endfor %}`
		never  = `{% for m in messages %}[{{ m.content }}{% if loop.last %}{{ m.reasoning_content }}{% endif %}]{% endfor %}`
	)
	switched := func(condition string) string {
		return `{% for m in messages %}[{% if loop.last or ` + condition + ` %}{{ m.reasoning_content }}{% endif %}{{ m.content }}]{% endfor %}`
	}
	turns := []chat.Turn{
		user("q"), turn(chat.RoleAssistant, thought("one"), use("call_1", "f", "{}")), turn(chat.RoleUser, answer("call_1", text("r"))),
		turn(chat.RoleAssistant, thought("two"), text("a")),
		user("q"), turn(chat.RoleAssistant, thought("three"), text("b")),
		user("q"), turn(chat.RoleAssistant, thought("four"), use("call_2", "f", "{}")), turn(chat.RoleTool, answer("call_2", text("r"))),
	}
	for name, tc := range map[string]struct {
		source   string
		keep     []int // none: the client said nothing
		want     string
		preserve bool
	}{
		"unasked":             {always, nil, "one two three four", true},
		"all":                 {always, []int{chat.KeepAll}, "one two three four", true},
		"none":                {always, []int{0}, "", true},
		"the one under way":   {always, []int{1}, "four", true},
		"two":                 {always, []int{2}, "three four", true},
		"three":               {always, []int{3}, "one two three four", true},
		"more than there are": {always, []int{30}, "one two three four", true},
		"cannot":              {never, []int{chat.KeepAll}, "", false},
		"GLM":                 {switched("(clear_thinking is defined and not clear_thinking)"), []int{chat.KeepAll}, "one two three four", true},
		"GLM, unasked":        {switched("(clear_thinking is defined and not clear_thinking)"), nil, "", true},
		"GLM, one":            {switched("(clear_thinking is defined and not clear_thinking)"), []int{1}, "four", true},
		"Nemotron":            {switched("not (truncate_history_thinking if truncate_history_thinking is defined else True)"), []int{chat.KeepAll}, "one two three four", true},
		"Qwen":                {switched("(preserve_thinking is defined and preserve_thinking is true)"), []int{chat.KeepAll}, "one two three four", true},
		"LFM":                 {switched("keep_past_thinking | default(false)"), []int{chat.KeepAll}, "one two three four", true},
		"DeepSeek":            {switched("(drop_thinking is defined and not drop_thinking)"), []int{chat.KeepAll}, "one two three four", true},
	} {
		tmpl := compile(t, tc.source)
		r := &chat.Request{API: chat.APIMessages, Turns: turns}
		if tc.keep != nil {
			r.Thinking.Keep = &tc.keep[0]
		}
		out, err := tmpl.Render(r, chattemplate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range []string{"one", "two", "three", "four"} {
			if strings.Contains(out, s) {
				got = append(got, s)
			}
		}
		if strings.Join(got, " ") != tc.want || tmpl.Traits(true).PreservesThinking != tc.preserve {
			t.Errorf("%s: shown %q, want %q; traits %+v\n%s", name, got, tc.want, tmpl.Traits(true), out)
		}
	}
	for keep, want := range map[int]string{chat.KeepAll: "one two three four", 0: "", 1: "four", 2: "three four"} {
		r := &chat.Request{API: chat.APIMessages, Turns: turns}
		r.System = []chat.Block{text("s")}
		r.Thinking.Keep = &keep
		out, err := harmonyAt().Render(r, chattemplate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range []string{"one", "two", "three", "four"} {
			if strings.Contains(out, "analysis<|message|>"+s) {
				got = append(got, s)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("Harmony, %d: shown %q, want %q\n%s", keep, got, want, out)
		}
	}
}

// A template that is written for it gets each thought before the call that it led
// to, and any other all of them as one text.
func TestSegments(t *testing.T) {
	const (
		aware = `{% for m in messages %}{% if m.tool_calls %}{% set r = m.reasoning_content %}` +
			`{% for c in m.tool_calls %}{% if r is string %}{% if loop.first %}<{{ r }}>{% endif %}{% elif r %}<{{ r[loop.index0] }}>{% endif %}{{ c.function.name }}{% endfor %}` +
			`{% if r and r is not string %}<{{ r[-1] }}>{% endif %}{% else %}{{ m.reasoning_content }}{{ m.content }}{% endif %}{% endfor %}`
		plain = `{% for m in messages %}{% if m.reasoning_content %}<{{ m.reasoning_content }}>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}`
	)
	r := &chat.Request{API: chat.APIChat, Turns: []chat.Turn{
		user("q"), turn(chat.RoleAssistant, thought("1"), thought("2"), use("a", "f", "{}"), use("b", "g", "{}"), thought("3")),
		turn(chat.RoleTool, answer("a", text("r"))), turn(chat.RoleAssistant, thought("4"), text("end")),
	}}
	for source, want := range map[string]string{aware: "q<1\n2>f<>g<3>r4end", plain: "q<1\n2\n3>fgr<4>end"} {
		got, err := compile(t, source).Render(r, chattemplate.Options{})
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// Adaptive thinking is a mode of those templates that have it.
func TestAdaptive(t *testing.T) {
	const (
		knows = `{{ thinking_mode if thinking_mode == "adaptive" else thinking_mode }} {{ thinking }} {{ enable_thinking }}{{ messages[0].content }}`
		other = `{{ thinking_mode }} {{ thinking }} {{ enable_thinking }}{{ messages[0].content }}`
	)
	on := true
	for source, want := range map[string]string{knows: "adaptive  q", other: "enabled True Trueq"} {
		r := &chat.Request{API: chat.APIMessages, Turns: []chat.Turn{user("q")}, Thinking: chat.Thinking{Enabled: &on, Adaptive: true}}
		got, err := compile(t, source).Render(r, chattemplate.Options{})
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}
