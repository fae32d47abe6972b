package responses_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai/responses"
)

func named(tools []chat.Tool) string {
	var list []string
	for _, t := range tools {
		list = append(list, fmt.Sprintf("%s %s/%s", t.Kind, t.Namespace, t.Name))
	}
	return strings.Join(list, ", ")
}

func TestTools(t *testing.T) {
	const other = `{"type":"namespace","name":"web","tools":[{"type":"function","name":"read"},{"type":"custom","name":"run"}]}`
	for _, tt := range []struct{ name, tools, want string }{
		{"none", `[]`, ``},
		{"order", `[{"type":"function","name":"z"},{"type":"function","name":"a"}]`, "function /z, function /a"},
		{"hosted", `[{"type":"web_search","external_web_access":false},{"type":"mcp","server_label":"s"},` + read + `,{"type":"file_search","name":7},{"type":"new"}]`, "server /web_search, server /mcp, function /read, server /file_search, server /new"},
		{"a namespace", `[` + group + `]`, "function mcp/read, function mcp/list"},
		{"two namespaces", `[` + group + `,` + other + `]`, "function mcp/read, function mcp/list, function web/read, custom web/run"},
		{"a namespace and a function", `[` + read + `,` + group + `]`, "function /read, function mcp/read, function mcp/list"},
		{"twice the same", `[` + read + `,` + read + `,` + group + `,` + group + `]`, "function /read, function mcp/read, function mcp/list"},
		{"an empty namespace", `[{"type":"namespace","name":"n"}]`, ``},
		{"dots", `[{"type":"function","name":"mcp.fs-read"}]`, `function /mcp.fs-read`},
		{"shells", `[` + shells + `]`, `function /local_shell, function /shell, function /apply_patch`},
		{"a shell elsewhere", `[{"type":"shell","environment":{"type":"container_auto"}}]`, `server /shell`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := decode(t, `"tools":`+tt.tools, responses.Options{})
			if got := named(c.Request.Tools); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			for _, tool := range c.Request.Tools {
				if tool.Schema != nil && !json.Valid(tool.Schema) || tool.Kind == chat.ToolServer && len(tool.Wire) == 0 {
					t.Errorf("%+v", tool)
				}
			}
		})
	}
}

// TestToolBytes holds that a function reaches the model byte for byte, and a
// custom tool as a function with one string.
func TestToolBytes(t *testing.T) {
	const raw = `{"type":"function", "name":"read","description":"Reads","parameters": {"b":1, "a":[1.0,"é<"]},"strict":true}`
	c := decode(t, `"tools":[`+raw+`,`+patch+`,{"type":"custom","name":"free","format":{"type":"text"}}]`, responses.Options{})
	yes := true
	want := []chat.Tool{
		{Kind: chat.ToolFunction, Name: "read", Description: "Reads", Schema: []byte(`{"b":1, "a":[1.0,"é<"]}`), Strict: &yes, Wire: []byte(raw)},
		{
			Kind: chat.ToolCustom, Name: "apply_patch", Description: "Edit files\n\nThe input must follow this lark grammar:\nstart: /.+/",
			Schema:  []byte(`{"type":"object","properties":{"input":{"type":"string","description":"must follow the lark grammar in the description"}},"required":["input"],"additionalProperties":false}`),
			Grammar: &chat.Grammar{Syntax: "lark", Definition: "start: /.+/"},
		},
		{
			Kind: chat.ToolCustom, Name: "free",
			Schema: []byte(`{"type":"object","properties":{"input":{"type":"string","description":"the text to pass to the tool"}},"required":["input"],"additionalProperties":false}`),
		},
	}
	if d := cmp.Diff(want, c.Request.Tools); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestToolChoice(t *testing.T) {
	no := false
	for _, tt := range []struct {
		members string
		want    chat.ToolChoice
	}{
		{``, chat.ToolChoice{}},
		{`"tool_choice":"auto","parallel_tool_calls":false`, chat.ToolChoice{Mode: chat.ToolAuto, Parallel: &no}},
		{`"tool_choice":"none"`, chat.ToolChoice{Mode: chat.ToolNone}},
		{`"tool_choice":"required"`, chat.ToolChoice{Mode: chat.ToolRequired}},
		{`"tool_choice":{"type":"function","name":"read"}`, chat.ToolChoice{Mode: chat.ToolNamed, Names: []string{"read"}}},
		{`"tool_choice":{"type":"function","name":"read","namespace":"mcp"}`, chat.ToolChoice{Mode: chat.ToolNamed, Names: []string{"mcp__read"}}},
		{`"tool_choice":{"type":"function","name":"list"}`, chat.ToolChoice{Mode: chat.ToolNamed, Names: []string{"mcp__list"}}},
		{`"tool_choice":{"type":"custom","name":"apply_patch"}`, chat.ToolChoice{Mode: chat.ToolNamed, Names: []string{"apply_patch"}}},
		{`"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"read"},{"type":"custom","name":"apply_patch"},{"type":"web_search"}]}`, chat.ToolChoice{Mode: chat.ToolRequired, Names: []string{"read", "apply_patch"}}},
		{`"tool_choice":{"type":"allowed_tools","tools":[{"type":"function","name":"read"}]}`, chat.ToolChoice{Mode: chat.ToolAuto, Names: []string{"read"}}},
		{`"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]}`, chat.ToolChoice{Mode: chat.ToolNone}},
		{`"tool_choice":{"type":"web_search_preview"}`, chat.ToolChoice{}},
		{`"tool_choice":{"type":"mcp","server_label":"s"}`, chat.ToolChoice{}},
	} {
		t.Run(tt.members, func(t *testing.T) {
			members := `"tools":[` + read + `,` + group + `,` + patch + `,{"type":"web_search"}]`
			if tt.members != "" {
				members += "," + tt.members
			}
			c := decode(t, members, responses.Options{})
			if d := cmp.Diff(tt.want, c.Request.ToolChoice); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			if len(c.Request.Tools) != 5 {
				t.Errorf("the choice changes the prompt: %s", named(c.Request.Tools))
			}
		})
	}
	if c := decode(t, `"tools":[{"type":"web_search"}],"tool_choice":"required"`, responses.Options{}); c.Request.ToolChoice.Mode != "" {
		t.Errorf("without a tool that can be called the choice is %v", c.Request.ToolChoice)
	}
	if c := decode(t, `"tools":[`+read+`],"tool_choice":"required","text":{"format":{"type":"json_object"}}`, responses.Options{}); c.Request.Output.Kind != "" {
		t.Errorf("a forced call is held to the form %v", c.Request.Output)
	}
}

// TestCallsInHistory holds that a call keeps the namespace that tells it from
// others of its name.
func TestCallsInHistory(t *testing.T) {
	c := decode(t, `"input":[{"type":"function_call","call_id":"a","name":"read","namespace":"mcp","arguments":"{}"},{"type":"function_call","call_id":"b","name":"read","arguments":"{}"}]`, responses.Options{})
	for i, want := range []string{"mcp", ""} {
		if use := c.Request.Turns[0].Blocks[i].Use; use.Namespace != want || use.Name != "read" {
			t.Errorf("call %d is of %s/%s", i, use.Namespace, use.Name)
		}
	}
}

// TestShellsComeBack holds that the call of a shell is put before the model as it
// was made, but for blank space.
func TestShellsComeBack(t *testing.T) {
	for _, tt := range []struct{ name, args string }{
		{"local_shell", `{"command": ["ls"], "timeout_ms": 5}`},
		{"local_shell", `{"command": ["ls"], "env": {"A": "b"}}`},
		{"shell", `{"commands": ["ls"], "max_output_length": 7}`},
		{"apply_patch", `{"type": "delete_file", "path": "a"}`},
	} {
		enc := decode(t, `"tools":[`+shells+`]`, responses.Options{}).Encoder(header)
		for _, e := range answer(chat.FinishToolUse, calls("call_a", tt.name, tt.args)) {
			enc.AppendEvent(nil, e)
		}
		c := decode(t, `"input":[`+string(enc.Items()[0].Wire)+`]`, responses.Options{})
		use := c.Request.Turns[0].Blocks[0].Use
		if got, want := blank.Replace(use.Args), blank.Replace(tt.args); got != want || use.Name != tt.name || use.ID != "call_a" {
			t.Errorf("%s(%s) came back as %s(%s)", tt.name, tt.args, use.Name, use.Args)
		}
	}
}

var blank = strings.NewReplacer(" ", "")

// TestAddedTools holds that tools which come in the course of a conversation
// stand behind those that were there, and change none of them.
func TestAddedTools(t *testing.T) {
	c := decode(t, `"tools":[`+read+`],"input":[{"role":"user","content":"a"},
		{"type":"tool_search_output","call_id":"c","tools":[`+group+`]},
		{"type":"additional_tools","tools":[{"type":"function","name":"late"},`+read+`,{"broken":true}]},
		{"type":"additional_tools","tools":[{"type":"function","name":"later"}]}]`, responses.Options{})
	if got, want := named(c.Request.Tools), "function /read, function mcp/read, function mcp/list, function /late, function /later"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(c.Unknown) != 1 || !strings.Contains(c.Unknown[0], "tools[2]") {
		t.Errorf("a broken tool is listed as %q", c.Unknown)
	}
}

func TestTooManyTools(t *testing.T) {
	many := strings.Repeat(`{"type":"web_search"},`, 1536) + read
	if _, err := responses.Decode([]byte(`{"model":"m","input":"a","tools":[`+many+`]}`), responses.Options{}); err == nil || !strings.Contains(err.Error(), "1537") {
		t.Errorf("got %v", err)
	}
}

// TestMalformedActions holds that a call which is not what its tool asks for is
// one of a function, with what the model wrote: clients run the others.
func TestMalformedActions(t *testing.T) {
	for _, tt := range []struct{ name, args string }{
		{"local_shell", `{"command":"ls"}`},
		{"local_shell", `{"command":[1]}`},
		{"local_shell", `{"command":["ls"]} {}`},
		{"local_shell", `{"command":["ls"]`},
		{"local_shell", `["ls"]`},
		{"local_shell", `ls`},
		{"shell", `{"command":["ls"]}`},
		{"shell", `{"commands":[["ls"]]}`},
		{"apply_patch", `{"type":"delete_file"}`},
		{"apply_patch", `{"type":"delete_file","path":7}`},
		{"apply_patch", `{"type":"update_file","path":"a"}`},
		{"apply_patch", `{"type":"create_file","path":"a","diff":7}`},
		{"apply_patch", `{"type":"rename_file","path":"a","diff":""}`},
		{"apply_patch", `{"path":"a","diff":""}`},
	} {
		enc := decode(t, `"tools":[`+shells+`]`, responses.Options{}).Encoder(header)
		items := mustAccumulate(t, stream(enc, answer(chat.FinishToolUse, calls("call_a", tt.name, tt.args)), nil))["output"].([]any)
		if item := items[0].(object); item["type"] != "function_call" || item["name"] != tt.name || item["arguments"] != tt.args {
			t.Errorf("%s(%s) became %v", tt.name, tt.args, item)
		}
	}
	for _, tt := range []struct{ name, args, kind string }{
		{"apply_patch", `{"type":"create_file","path":"a","diff":""}`, "apply_patch_call"},
		{"apply_patch", `{"type":"delete_file","path":"a"}`, "apply_patch_call"},
		{"shell", `{"commands":[]}`, "shell_call"},
	} {
		enc := decode(t, `"tools":[`+shells+`]`, responses.Options{}).Encoder(header)
		items := mustAccumulate(t, stream(enc, answer(chat.FinishToolUse, calls("call_a", tt.name, tt.args)), nil))["output"].([]any)
		if item := items[0].(object); item["type"] != tt.kind {
			t.Errorf("%s(%s) became %v", tt.name, tt.args, item)
		}
	}
}
