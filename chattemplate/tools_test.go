package chattemplate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
)

const showTools = "{{ messages[0].content }}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"

// A schema that no template could print is refused by name. None is shown
// without its parameters.
func TestDeepSchema(t *testing.T) {
	schema := func(depth int) string {
		return strings.Repeat(`{"properties":{"x":`, depth) + `{"type":"string"}` + strings.Repeat("}}", depth)
	}
	tmpl := compile(t, showTools)
	for name, tool := range map[string]func(string) chat.Tool{
		"the chat API": func(schema string) chat.Tool {
			return chat.Tool{Name: "deep", Wire: []byte(`{"type":"function","function":{"name":"deep","parameters":` + schema + `}}`)}
		},
		"another API": func(schema string) chat.Tool {
			return chat.Tool{Name: "deep", Schema: []byte(schema), Wire: []byte(`{"name":"deep","input_schema":` + schema + `}`)}
		},
	} {
		r := &chat.Request{Turns: []chat.Turn{user("q")}, Tools: []chat.Tool{{Name: "flat"}, tool(schema(200))}}
		if out := render(t, tmpl, r); strings.Count(out, `"x": `) != 200 {
			t.Errorf("%s: 200 levels became %.200s", name, out)
		}
		for range 2 {
			r.Tools[1] = tool(schema(500))
			out, err := tmpl.Render(r, chattemplate.Options{})
			var failed *chattemplate.ToolError
			if !errors.As(err, &failed) || failed.Index != 1 || failed.Name != "deep" || !strings.Contains(err.Error(), "450 levels") {
				t.Errorf("%s: 500 levels: %.200q, %v; want an error of tools[1]", name, out, err)
			}
		}
		if _, err := tmpl.Render(r, chattemplate.Options{HideTools: true}); err != nil {
			t.Errorf("%s: tools that are hidden: %v", name, err)
		}
	}
}

func TestToolCache(t *testing.T) {
	tmpl := compile(t, showTools)
	tool := func(i, size int) chat.Tool {
		return chat.Tool{Wire: fmt.Appendf(nil, `{"type":"function","function":{"name":"f%d","description":"%s"}}`, i, strings.Repeat("d", size))}
	}
	show := func(tools ...chat.Tool) {
		t.Helper()
		out := render(t, tmpl, &chat.Request{Turns: []chat.Turn{user("")}, Tools: tools})
		if want := strings.Count(out, `"type": "function"`); want != len(tools) {
			t.Errorf("%d tools shown, want %d", want, len(tools))
		}
	}
	a, b := tool(1, 10), tool(2, 10)
	show(a, b)
	show(b, a, a)
	show(chat.Tool{Name: "not from the wire"})
	want := chattemplate.ToolCache{Tools: 2, Bytes: len(a.Wire) + len(b.Wire), Hits: 3, Misses: 2}
	if got := tmpl.ToolCache(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	const size = 1 << 20
	for i := range 10 {
		show(tool(10+i, size))
		if got := tmpl.ToolCache(); got.Bytes > 4<<20 || got.Tools > 5 {
			t.Errorf("after %d large tools: %+v", i+1, got)
		}
	}
	if got := tmpl.ToolCache(); got.Resets != 3 || got.Misses != 12 {
		t.Errorf("after ten large tools: %+v", got)
	}
	show(tool(99, 5<<20)) // too large to be remembered
	if got := tmpl.ToolCache(); got.Bytes > 4<<20 {
		t.Errorf("after a tool that is too large: %+v", got)
	}
}
