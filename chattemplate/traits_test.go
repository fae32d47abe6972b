package chattemplate_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/chattemplate/jinja"
)

func TestTraits(t *testing.T) {
	for name, want := range map[string]chattemplate.Traits{
		"turns.jinja":    {ReasoningField: "reasoning_content", ShowsThinking: true, PreservesThinking: true, Calls: true, ParallelCalls: true, Results: true, ArgumentsAsText: true},
		"headers.jinja":  {ShowsThinking: false, KeepsThinking: true, PreservesThinking: true, LateSystem: true, Calls: true, Results: true},
		"brackets.jinja": {KeepsThinking: true, PreservesThinking: true, Calls: true, ParallelCalls: true, Results: true, RendersIDs: true},
		"elements.jinja": {ReasoningField: "reasoning_content", ShowsThinking: true, PreservesThinking: true, LateSystem: true, Calls: true, ParallelCalls: true, Results: true},
		"channels.jinja": {ReasoningField: "reasoning_content", ShowsThinking: true, Calls: true, Results: true},
		"flags.jinja":    {ShowsThinking: true, Calls: true, ParallelCalls: true, Results: true, ArgumentsAsText: true},
		"grounded.jinja": {ShowsThinking: true, KeepsThinking: true, PreservesThinking: true, LateSystem: true, Calls: true, ParallelCalls: true, Results: true},
	} {
		source, err := os.ReadFile(filepath.Join(corpus, "templates", name))
		if err != nil {
			t.Fatal(err)
		}
		tmpl := compile(t, string(source))
		for _, tools := range []bool{false, true} {
			if got := tmpl.Traits(tools); got != want {
				t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
			}
		}
	}
}

// Each of the templates of a model has traits of its own.
func TestTraitsByName(t *testing.T) {
	const shows = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}{% endfor %}{% endfor %}"
	tmpl, err := chattemplate.CompileNamed(map[string]string{"default": "{{ messages[-1].content }}", "tool_use": shows}, chattemplate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if plain, tools := tmpl.Traits(false), tmpl.Traits(true); plain.RendersIDs || !tools.RendersIDs {
		t.Errorf("got %+v and %+v", plain, tools)
	}
	if native := chattemplate.Harmony(chattemplate.Config{}).Traits(true); !native.ParallelCalls || native.RendersIDs {
		t.Errorf("Harmony: got %+v", native)
	}
}

// The ids of some models hold the name of the tool, and their templates show no
// other.
func TestCallsByID(t *testing.T) {
	got := compile(t, "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.arguments | tojson }}]{% endfor %}{% endfor %}").Traits(true)
	want := chattemplate.Traits{KeepsThinking: true, PreservesThinking: true, LateSystem: true, Calls: true, ParallelCalls: true, Results: true, RendersIDs: true, ShowsThinking: true}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// What a template shows must not depend on how busy the machine is: one that takes
// too long is not read, where one that only goes around too often is.
func TestSlowProbe(t *testing.T) {
	const slow = `{% for i in range(40000) %}{{ 'x' in range(99999) }}{% endfor %}`
	var e *jinja.Error
	if err := chattemplate.ProbeWithin(slow, 50*time.Millisecond); !errors.As(err, &e) || e.Kind != jinja.TimeError {
		t.Errorf("a slow template: %v, want a TimeError", err)
	}
	const endless = `{% for i in range(90000) %}{{ i }}{% endfor %}`
	if err := chattemplate.ProbeWithin(endless, time.Minute); err != nil {
		t.Errorf("an endless template: %v", err)
	}
}

// Probes have their time together, since there are dozens of them.
func TestSlowProbes(t *testing.T) {
	const slow = `{% for i in range(40000) %}{% if i == -1 %}{% endif %}{% endfor %}{{ messages }}`
	began := time.Now()
	if err := chattemplate.ProbeWithin(slow, time.Hour); err != nil {
		t.Fatal(err)
	}
	var e *jinja.Error
	if err := chattemplate.ProbeWithin(slow, time.Since(began)/4); !errors.As(err, &e) || e.Kind != jinja.TimeError {
		t.Errorf("%v, want a TimeError", err)
	}
}
