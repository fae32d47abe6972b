package pipeline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"pgregory.net/rapid"
)

func function(namespace, name string) chat.Tool {
	return chat.Tool{Kind: chat.ToolFunction, Namespace: namespace, Name: name}
}

// The model knows tools by their own names as long as these are theirs alone, and
// the client is told in its own words.
func TestNames(t *testing.T) {
	hosted := chat.Tool{Kind: chat.ToolServer, Name: "run"}
	for name, tc := range map[string]struct {
		tools []chat.Tool
		shown string
		calls map[string]string // by the name that the model writes
	}{
		"no groups":      {[]chat.Tool{function("", "run"), function("", "read")}, "run read", map[string]string{"run": "/run", "reed": "/reed"}},
		"one of a group": {[]chat.Tool{function("shell", "run")}, "run", map[string]string{"run": "shell/run", "shell__run": "shell/run", "shell.run": "shell/run"}},
		"two groups": {
			[]chat.Tool{function("a", "run"), function("b", "run"), function("b", "read")},
			"a__run b__run read",
			map[string]string{"a__run": "a/run", "b__run": "b/run", "read": "b/read", "run": "/run"},
		},
		"a group and none": {[]chat.Tool{function("a", "run"), function("", "run")}, "a__run run", map[string]string{"run": "/run", "a__run": "a/run"}},
		"the long name is taken": {
			[]chat.Tool{function("a", "run"), function("b", "run"), function("", "a__run")},
			"a__run_ b__run a__run",
			map[string]string{"a__run": "/a__run", "a__run_": "a/run"},
		},
		"one that nobody may call": {[]chat.Tool{hosted, function("a", "run")}, "run", map[string]string{"run": "a/run"}},
	} {
		n := pipeline.NamesOf(tc.tools)
		if got := strings.Join(n.Shown(), " "); got != tc.shown {
			t.Errorf("%s: shown %q, want %q", name, got, tc.shown)
		}
		for called, want := range tc.calls {
			use := n.Tell(&chat.ToolUse{Name: called, Kind: chat.ToolFunction, Args: "{}"})
			if got := use.Namespace + "/" + use.Name; got != want || use.Args != "{}" {
				t.Errorf("%s: %s is told as %s, want %s", name, called, got, want)
			}
		}
	}
}

// Whatever tools there are, no two go by one name, and each name leads back.
func TestNamesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"a", "b", "a__b", "a__b_", "b__a"})
		seen := map[string]bool{}
		var tools []chat.Tool
		for range rapid.IntRange(0, 8).Draw(t, "tools") {
			tool := function(rapid.SampledFrom([]string{"", "a", "b", "a__b"}).Draw(t, "group"), name.Draw(t, "name"))
			if key := tool.Namespace + "/" + tool.Name; !seen[key] {
				seen[key] = true
				tools = append(tools, tool)
			}
		}
		n := pipeline.NamesOf(tools)
		shown := n.Shown()
		for i, s := range shown {
			if slices.Index(shown, s) != i {
				t.Fatalf("two tools of %+v go by %q", tools, s)
			}
			if use := n.Tell(&chat.ToolUse{Name: s}); use.Name != tools[i].Name || use.Namespace != tools[i].Namespace {
				t.Fatalf("%q of %+v is told as %+v", s, tools[i], use)
			}
		}
	})
}

// A call of a tool that shares its name goes out with its group, and comes back
// into the prompt as the model wrote it.
func TestGroupedCalls(t *testing.T) {
	c := newConversation(t, pipeline.Config{})
	c.next.Tools = []chat.Tool{function("a", "run"), function("b", "run"), {Kind: chat.ToolCustom, Namespace: "b", Name: "patch"}}
	for i := range 2 {
		c.next.Tools[i].Wire = []byte(`{"type":"function","name":"run"}`) // as Responses has it, the same in both
	}
	c.next.ToolChoice = chat.ToolChoice{Mode: chat.ToolAuto, Names: []string{"run"}}
	c.ask("<tool_call>\n{\"name\": \"b__run\", \"arguments\": {\"x\": 1}}\n</tool_call>", "s")
	use := c.next.Turns[1].Blocks[0].Use
	if use == nil || use.Name != "run" || use.Namespace != "b" {
		t.Fatalf("told %+v", use)
	}
	text, _ := c.h.model.Text(c.f.sent()[0].TokenIDs)
	for _, want := range []string{`"name": "a__run"`, `"name": "b__run"`, `"name": "patch"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the prompt has no %s", want)
		}
	}
	c.next.Turns = append(c.next.Turns, turnOf(chat.RoleTool, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: use.ID, Blocks: []chat.Block{say("done")}}}))
	u := c.ask("Done.", "s").Reuse
	if u == nil || u.Ratio() != 1 {
		t.Errorf("got %+v", u)
	}
}

// A choice names tools as the client does; where it must be one, it is one.
func TestChosenNames(t *testing.T) {
	tools := []chat.Tool{function("a", "run"), function("b", "run"), function("b", "read"), {Kind: chat.ToolCustom, Name: "patch"}}
	for _, tc := range []struct {
		mode  chat.ToolMode
		names string
		want  string
	}{
		{chat.ToolAuto, "run", "a__run b__run"},
		{chat.ToolAuto, "b__run read", "b__run read"},
		{chat.ToolAuto, "unknown", "unknown"},
		{chat.ToolNamed, "run", "a__run"},
		{chat.ToolNamed, "b__run", "b__run"},
		{chat.ToolNamed, "b__read", "read"},
	} {
		r := &chat.Request{API: chat.APIResponses, Tools: tools, ToolChoice: chat.ToolChoice{Mode: tc.mode, Names: strings.Fields(tc.names)}}
		if got := strings.Join(pipeline.Shown(r, short(t, 0)).ToolChoice.Names, " "); got != tc.want {
			t.Errorf("%s %s: shown %q, want %q", tc.mode, tc.names, got, tc.want)
		}
	}
	// Also where every tool goes by its own name.
	tools = tools[1:]
	for _, mode := range []chat.ToolMode{chat.ToolAuto, chat.ToolNamed} {
		r := &chat.Request{API: chat.APIResponses, Tools: tools, ToolChoice: chat.ToolChoice{Mode: mode, Names: []string{"b__run"}}}
		if got := pipeline.Shown(r, short(t, 0)).ToolChoice.Names; len(got) != 1 || got[0] != "run" || r.ToolChoice.Names[0] != "b__run" {
			t.Errorf("%s: shown %q", mode, got)
		}
	}
	names := pipeline.NamesOf(tools)
	if use := names.Tell(&chat.ToolUse{Name: "patch", Kind: chat.ToolFunction}); use.Kind != chat.ToolCustom {
		t.Errorf("a custom tool is told as %s", use.Kind)
	}
}

// Deferred tools are shown from the result on that refers to them, behind all
// others.
func TestDeferredTools(t *testing.T) {
	later := func(name string) chat.Tool {
		tool := function("", name)
		tool.Deferred = true
		return tool
	}
	refer := func(names ...string) chat.Turn {
		result := &chat.Result{ID: "x"}
		for _, name := range names {
			result.Blocks = append(result.Blocks, chat.Block{Kind: chat.ToolReference, Text: name})
		}
		return turnOf(chat.RoleUser, chat.Block{Kind: chat.ToolResult, Result: result})
	}
	search := chat.Tool{Kind: chat.ToolServer, Name: "tool_search_tool_regex"}
	for name, tc := range map[string]struct {
		tools []chat.Tool
		turns []chat.Turn
		want  string
		named []string
	}{
		"to be called":           {tools: []chat.Tool{later("d"), function("", "a"), search}, want: "a d", named: []string{"d"}},
		"none deferred":          {[]chat.Tool{function("", "a"), search}, nil, "a", nil},
		"not found yet":          {[]chat.Tool{later("d"), function("", "a"), search}, nil, "a", nil},
		"found":                  {[]chat.Tool{later("d"), later("e"), function("", "a"), search}, []chat.Turn{refer("e"), refer("d", "e", "nothing", "a")}, "a e d", nil},
		"nothing to search by":   {[]chat.Tool{later("d"), function("", "a")}, nil, "d a", nil},
		"the agent's own":        {[]chat.Tool{later("d"), function("", "ToolSearch")}, nil, "ToolSearch", nil},
		"the search is deferred": {[]chat.Tool{later("d"), later("ToolSearch")}, nil, "d ToolSearch", nil},
	} {
		f := &fake{}
		h := newHouse(t, pipeline.Config{}, f)
		f.generate = h.say(sentence, 100, engine.FinishEOS)
		r := request("Hello")
		r.Chat.Tools, r.Chat.Turns = tc.tools, append(r.Chat.Turns, tc.turns...)
		if tc.named != nil {
			r.Chat.ToolChoice = chat.ToolChoice{Mode: chat.ToolNamed, Names: tc.named}
		}
		r.Chat.Cache = []chat.Breakpoint{{Turn: -2, Block: len(tc.tools) - 1}}
		if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, _ := h.model.Text(f.sent()[0].TokenIDs)
		var got []string
		for _, s := range strings.Split(text, `{"type": "function", "function": {"name": "`)[1:] {
			got = append(got, s[:strings.IndexByte(s, '"')])
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: shown %q, want %s", name, got, tc.want)
		}
	}
}

// What is not shown is counted by its kind, of which clients cannot invent any.
func TestNotShown(t *testing.T) {
	opaque := func(wire string) chat.Block { return chat.Block{Kind: chat.Opaque, Wire: []byte(wire)} }
	f := &fake{}
	h := newHouse(t, pipeline.Config{}, f)
	f.generate = h.say(sentence, 100, engine.FinishEOS)
	r := request("Hello")
	r.Chat.Tools = []chat.Tool{{Kind: chat.ToolServer, Name: "w", Wire: []byte(`{"name":"w","type":"web_search_20260318"}`)}, {Kind: chat.ToolServer}}
	r.Chat.Turns = append(r.Chat.Turns,
		turnOf(chat.RoleAssistant, opaque(`{"content":{"type":"x"},"type":"fallback"}`), opaque(`{"type":"of my own"}`), opaque(`{"type":1}`), opaque(`[`), opaque(`{"type":"mcp_tool_use"`)),
		turnOf(chat.RoleTool, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{Blocks: []chat.Block{opaque(`{"type":"video_url"}`)}}}),
		turnOf(chat.RoleUser, say("Go on")))
	if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"web_search": 1, "tool": 1, "fallback": 1, "block": 3, "mcp_tool_use": 1, "video_url": 1}
	for kind, n := range r.Notes.NotShown {
		if want[kind] != n {
			t.Errorf("%d times %s, want %d", n, kind, want[kind])
		}
	}
	if len(r.Notes.NotShown) != len(want) {
		t.Errorf("counted %v, want %v", r.Notes.NotShown, want)
	}
}

// Whatever a client sends, its kind is one of the APIs', or none of its making.
func FuzzKind(f *testing.F) {
	for _, wire := range []string{`{"type":"mcp_tool_use"}`, `{"a":[1,{"type":"x"}],"type":"web_search_20260318"}`, `{"type":"___"}`, `{"type":`, `[]`, ``, "{\"type\":\"\xff\"}", `{"type":"1"}`} {
		f.Add([]byte(wire))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		if kind := pipeline.KindOf(wire, "block"); kind != "block" && !pipeline.KnownKind(kind) {
			t.Errorf("%q is of kind %q", wire, kind)
		}
	})
}
