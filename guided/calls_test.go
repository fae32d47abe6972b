package guided_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided"
)

func tool(name, parameters string) chat.Tool {
	t := chat.Tool{Kind: chat.ToolFunction, Name: name}
	if parameters != "" {
		t.Schema = []byte(parameters)
	}
	return t
}

func TestArguments(t *testing.T) {
	with := tool("f", `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`)
	without := tool("g", "")
	for _, c := range []struct {
		tool  *chat.Tool
		text  string
		keeps bool
	}{{&with, `{"a":1}`, true}, {&with, `{}`, false}, {&without, `{}`, true}, {&without, `[]`, false}} {
		format := guided.Arguments(c.tool)
		form, err := guided.Compile(&format)
		if err != nil {
			t.Fatal(err)
		}
		if err := form.Check(c.text); (err == nil) != c.keeps {
			t.Errorf("%s %s: %v", c.tool.Name, c.text, err)
		}
	}
}

func TestCalls(t *testing.T) {
	tools := []chat.Tool{
		tool("open", `{"$defs":{"path":{"type":"string","minLength":1}},"type":"object","properties":{"path":{"$ref":"#/$defs/path"}},"required":["path"]}`),
		tool("copy", `{"type":"object","properties":{"to":{"$ref":"#/$defs/path"}},"$defs":{"path":{"type":"string","minLength":1}},"required":["to"]}`),
		tool("mcp.now<&>", ""),
	}
	for _, c := range []struct {
		text         string
		many, single bool
	}{
		{`[{"name":"open","parameters":{"path":"a"}}]`, true, true},
		{`[{"name":"mcp.now<&>","parameters":{}}]`, true, true},
		{`[{"name":"open","parameters":{"path":"a"}},{"name":"copy","parameters":{"to":"b"}}]`, true, false},
		{`[]`, false, false},
		{`[{"name":"open","parameters":{"path":""}}]`, false, false},
		{`[{"name":"shut","parameters":{}}]`, false, false},
		{`[{"name":"copy","parameters":{"path":"a"}}]`, false, false},
		{`[{"name":"open"}]`, false, false},
		{`{"name":"open","parameters":{"path":"a"}}`, false, false},
	} {
		for single, keeps := range map[bool]bool{false: c.many, true: c.single} {
			format, err := guided.Calls(tools, single)
			if err != nil {
				t.Fatal(err)
			}
			form, err := guided.Compile(&format)
			if err != nil {
				t.Fatalf("%v: %s", err, format.Schema)
			}
			if err := form.Check(c.text); (err == nil) != keeps {
				t.Errorf("single %v: %s: %v", single, c.text, err)
			}
		}
	}
	if got, _ := guided.Calls(tools, false); strings.Contains(string(got.Schema), `\u003c`) {
		t.Errorf("names are escaped for HTML: %s", got.Schema)
	}
	clash := []chat.Tool{tool("a", `{"$defs":{"x":{"type":"string"}}}`), tool("b", `{"$defs":{"x":{"type":"integer"}}}`)}
	if _, err := guided.Calls(clash, false); err == nil || !strings.Contains(err.Error(), `"x"`) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("two definitions of one name: got %v", err)
	}
	if _, err := guided.Calls([]chat.Tool{tool("a", `{"$defs":7}`)}, false); err == nil {
		t.Error("definitions that are a number: got no error")
	}
}

// Whatever calls are written down in the form, it takes them, and nothing that
// names another tool.
func TestCallsTakeCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][\w.-]{0,8}`), 1, 4, rapid.ID).Draw(t, "names")
		var tools []chat.Tool
		for _, n := range names {
			tools = append(tools, tool(n, rapid.SampledFrom([]string{"", `{}`, `{"type":"object","properties":{"a":{"type":"integer"}}}`}).Draw(t, "schema")))
		}
		format, err := guided.Calls(tools, false)
		if err != nil {
			t.Fatal(err)
		}
		form, err := guided.Compile(&format)
		if err != nil {
			t.Fatal(err)
		}
		type call struct {
			Name       string         `json:"name"`
			Parameters map[string]int `json:"parameters"`
		}
		var calls []call
		for range rapid.IntRange(1, 3).Draw(t, "calls") {
			calls = append(calls, call{rapid.SampledFrom(names).Draw(t, "name"), map[string]int{"a": rapid.Int().Draw(t, "a")}})
		}
		text, err := json.Marshal(calls)
		if err != nil {
			t.Fatal(err)
		}
		if err := form.Check(string(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		calls[0].Name += "?"
		text, _ = json.Marshal(calls)
		if form.Check(string(text)) == nil {
			t.Fatalf("%s is taken", text)
		}
	})
}

var update = flag.Bool("update", false, "write the golden files anew")

func TestTags(t *testing.T) {
	yes, no := true, false
	ls := tool("ls", `{"type":"object","properties":{"p":{"type":"string"}}}`)
	cat := tool("cat", "")
	cat.Strict = &yes
	both := []chat.Tool{ls, cat}
	var out strings.Builder
	for _, family := range []string{"hermes", "qwen3_coder", "glm47", "deepseek_v3_2", "deepseek_v4", "kimi_k2", "minimax_m2"} {
		for _, c := range []struct {
			name    string
			tools   []chat.Tool
			choice  chat.ToolChoice
			options guided.TagOptions
			none    bool
		}{
			{"auto without strict tools", both[:1], chat.ToolChoice{}, guided.TagOptions{}, true},
			{"auto with a strict tool", both, chat.ToolChoice{}, guided.TagOptions{}, false},
			{"one call", both[:1], chat.ToolChoice{Parallel: &no}, guided.TagOptions{}, false},
			{"always, all schemas", both[:1], chat.ToolChoice{}, guided.TagOptions{Always: true, Schemas: true}, false},
			{"required in a thought", both, chat.ToolChoice{Mode: chat.ToolRequired}, guided.TagOptions{ThoughtEnd: "</think>"}, false},
			{"named", both[1:], chat.ToolChoice{Mode: chat.ToolNamed}, guided.TagOptions{}, false},
			{"none", both, chat.ToolChoice{Mode: chat.ToolNone}, guided.TagOptions{}, false},
			{"no tools", nil, chat.ToolChoice{Mode: chat.ToolRequired}, guided.TagOptions{}, true},
		} {
			format, ok := guided.Tag(family, c.tools, c.choice, c.options)
			if ok == c.none {
				t.Errorf("%s, %s: got a tag: %v", family, c.name, ok)
			}
			if !ok {
				continue
			}
			if !json.Valid(format.Schema) {
				t.Errorf("%s, %s: no JSON", family, c.name)
			}
			out.WriteString(family + ", " + c.name + "\n" + string(format.Schema) + "\n")
		}
	}
	if _, ok := guided.Tag("llama3_json", both, chat.ToolChoice{Mode: chat.ToolRequired}, guided.TagOptions{}); ok {
		t.Error("a family without markers around calls has a tag")
	}
	path := filepath.Join("testdata", "tags.txt")
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("tags differ from %s (-update writes them anew):\n%s", path, out.String())
	}
}
