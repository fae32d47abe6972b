package responses_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/envelope"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses"
)

// script shows turns as lines that can be read.
func script(turns []chat.Turn) string {
	var b strings.Builder
	for _, turn := range turns {
		b.WriteString(string(turn.Role))
		if turn.Phase != "" {
			b.WriteString("/" + turn.Phase)
		}
		b.WriteString(":" + blocks(turn.Blocks) + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func blocks(list []chat.Block) string {
	var b strings.Builder
	for _, block := range list {
		switch block.Kind {
		case chat.ToolCall:
			u := block.Use
			fmt.Fprintf(&b, " %s(%s %s %s)", u.Kind, u.ID, u.Name, u.Args)
		case chat.ToolResult:
			r := block.Result
			failed := ""
			if r.IsError {
				failed = " failed"
			}
			fmt.Fprintf(&b, " result(%s%s%s)", r.ID, failed, blocks(r.Blocks))
		case chat.Image, chat.Document:
			m := block.Media
			fmt.Fprintf(&b, " %s(%s %s %s)", block.Kind, m.Source, m.MediaType, m.Data)
		case chat.Opaque:
			fmt.Fprintf(&b, " opaque(%s)", block.Wire)
		default:
			fmt.Fprintf(&b, " %s(%s)", block.Kind, block.Text)
		}
	}
	return b.String()
}

var noKey envelope.Box

func TestConversation(t *testing.T) {
	sealed := noKey.Seal("All I thought.", 0)
	for _, tt := range []struct{ name, input, want string }{
		{"a string", `"Hi"`, `user: text(Hi)`},
		{
			"messages", `[{"role":"system","content":"S"},{"type":"message","role":"developer","content":[{"type":"input_text","text":"D"}]},{"role":"user","content":"U"},{"role":"developer","content":"later"}]`,
			"system: text(S)\ndeveloper: text(D)\nuser: text(U)\ndeveloper: text(later)",
		},
		{
			"parts", `[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"text","text":"b"},{"text":"c","type":"output_text"},"d"]}]`,
			`user: text(a) text(b) text(c) text(d)`,
		},
		{"null members", `[{"type":null,"role":"user","content":"a","id":null,"phase":null,"status":null}]`, `user: text(a)`},
		{"no content", `[{"role":"user","content":null},{"role":"user","content":""},{"role":"user","content":[]}]`, "user:\nuser:\nuser:"},
		{
			"one turn of the model",
			`[{"role":"user","content":"u"},
			{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},
			{"type":"message","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"x","annotations":[]},{"type":"refusal","refusal":"no"}],"id":"msg_1","status":"completed"},
			{"type":"function_call","call_id":"c1","name":"ls","arguments":"{\"a\": 1}","status":"completed","id":"fc_1"},
			{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s1"},{"type":"summary_text","text":"s2"}]},
			{"type":"custom_tool_call","call_id":"c2","name":"apply_patch","input":"*** Begin"},
			{"type":"function_call_output","call_id":"c1","output":"out"},
			{"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"done"}]},
			{"role":"assistant","content":"end"}]`,
			"user: text(u)\nassistant/commentary: thinking(t) text(x) refusal(no) function(c1 ls {\"a\": 1}) thinking(s1\ns2) custom(c2 apply_patch *** Begin)\n" +
				"tool: result(c1 text(out))\ntool: result(c2 text(done))\nassistant: text(end)",
		},
		{
			"phases", `[{"role":"assistant","phase":"commentary","content":"a"},{"role":"assistant","content":"b"},{"role":"assistant","phase":"final_answer","content":"c"}]`,
			`assistant/final_answer: text(a) text(b) text(c)`,
		},
		{
			"broken arguments", `[{"type":"function_call","call_id":"c","name":"f","arguments":"{oops"},{"type":"function_call","call_id":"d","name":"f","arguments":{"b": 1}},{"type":"function_call","call_id":"e","name":"f"}]`,
			`assistant: function(c f {oops) function(d f {"b": 1}) function(e f )`,
		},
		{
			"envelopes", `[{"type":"reasoning","summary":[{"type":"summary_text","text":"short"}],"encrypted_content":"` + sealed + `"},{"type":"reasoning","summary":[{"type":"summary_text","text":"theirs"}],"encrypted_content":"gAAAA"},{"type":"reasoning","summary":[],"encrypted_content":"gAAAA"}]`,
			`assistant: thinking(All I thought.) thinking(theirs)`,
		},
		{
			"nothing but a foreign thought", `[{"role":"user","content":"a"},{"type":"reasoning","summary":[],"encrypted_content":"gAAAA"},{"role":"user","content":"b"}]`,
			"user: text(a)\nuser: text(b)",
		},
		{
			"compaction", `[{"type":"compaction","encrypted_content":"` + sealed + `"},{"type":"compaction","encrypted_content":"gAAAA"},{"role":"user","content":"b"}]`,
			"user: text(All I thought.)\nuser: text(b)",
		},
		{
			"strangers", `[{"role":"user","content":"a"},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search"}},{"role":"assistant","content":"b"},{"type":"mcp_list_tools","tools":[{"name":"x"}]},{"type":"from_the_future","content":7,"output":{}},{"role":"assistant","content":"c"},{"type":"ghost_snapshot"},{"type":"compaction_trigger"}]`,
			"user: text(a) opaque({\"type\":\"web_search_call\",\"id\":\"ws_1\",\"status\":\"completed\",\"action\":{\"type\":\"search\"}})\n" +
				"assistant: text(b) opaque({\"type\":\"mcp_list_tools\",\"tools\":[{\"name\":\"x\"}]}) opaque({\"type\":\"from_the_future\",\"content\":7,\"output\":{}}) text(c)",
		},
		{
			"shells", `[{"type":"local_shell_call","id":"l","call_id":"c1","status":"completed","action":{"type":"exec","command":["ls"]}},
			{"type":"shell_call","call_id":"c2","action":{"commands":["ls"]}},{"type":"apply_patch_call","call_id":"c3","status":"completed","operation":{"type":"delete_file","path":"a"}},
			{"type":"local_shell_call_output","id":"c1","output":"o1"},
			{"type":"shell_call_output","call_id":"c2","output":[{"stdout":"a","stderr":"b\n","outcome":{"type":"exit","exit_code":2}},{"stdout":"","stderr":"","outcome":{"type":"timeout"}},{"stdout":"ok","stderr":"","outcome":{"type":"exit","exit_code":0}}]},
			{"type":"apply_patch_call_output","call_id":"c3","status":"failed","output":"no file"},{"type":"apply_patch_call_output","call_id":"c3","status":"completed"}]`,
			`assistant: function(c1 local_shell {"command": ["ls"]}) function(c2 shell {"commands": ["ls"]}) function(c3 apply_patch {"type":"delete_file","path":"a"})` + "\n" +
				"tool: result(c1 text(o1))\ntool: result(c2 text(a\nb\n[exit code 2]\n[timed out]\nok))\ntool: result(c3 failed text(no file))\ntool: result(c3 text(completed))",
		},
		{
			"images", `[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AAAA","detail":"low"},{"type":"input_image","image_url":{"url":"https://a/b.png"},"detail":null}]},
			{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:image/gif;base64,BB"},{"type":"input_text","text":"t"}]}]`,
			"user: image(base64 image/png AAAA) image(url  https://a/b.png)\ntool: result(c image(base64 image/gif BB) text(t))",
		},
		{"files", `[{"role":"user","content":[{"type":"input_file","filename":"a.txt","file_data":"data:text/plain;charset=utf-8;base64,aGkA/w=="}]}]`, "user: text(a.txt\nhi\uFFFD\uFFFD)"},
		{
			"what cannot be shown, further back", `[{"role":"user","content":[{"type":"input_image","file_id":"f"},{"type":"input_file","file_id":"g"},{"type":"input_audio"},{"type":"video"}]},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]`,
			`user: opaque({"type":"input_image","file_id":"f"}) opaque({"type":"input_file","file_id":"g"}) opaque({"type":"input_audio"}) opaque({"type":"video"})` + "\nassistant: text(b)\nuser: text(c)",
		},
		{"bad units", "[{\"role\":\"user\",\"content\":\"a\\ud800b\\u0000c\xff\nd\"}]", "user: text(a\uFFFDb\uFFFDc\uFFFD\nd)"},
		{"the last member wins", `[{"role":"system","role":"user","content":7,"content":"b"},{"type":"function_call_output","call_id":"c","output":[],"output":"x"}]`, "user: text(b)\ntool: result(c text(x))"},
		{"calls of nothing", `[{"type":"function_call","call_id":"c"},{"type":"function_call","call_id":"d","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"no such tool"}]`, "assistant: opaque({\"type\":\"function_call\",\"call_id\":\"c\"}) function(d f {})\ntool: result(c text(no such tool))"},
		{"results that are no text", `[{"type":"function_call_output","call_id":"c","output":{"a":1}},{"type":"function_call_output","call_id":"d"}]`, "tool: result(c text({\"a\":1}))\ntool: result(d)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := responses.Decode([]byte(`{"model":"m","input":`+tt.input+`}`), responses.Options{})
			if err == nil {
				err = c.Resolve(nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, script(c.Request.Turns)); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

// TestGrowingConversation holds that what a client adds leaves all turns before it
// as they were: the prompt of a turn begins with the one before.
func TestGrowingConversation(t *testing.T) {
	items := strings.Split(`{"role":"developer","content":"d"}|{"role":"user","content":"u"}|{"type":"reasoning","summary":[{"type":"summary_text","text":"t"}]}|`+
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}|{"type":"function_call_output","call_id":"c","output":"o"}|{"role":"developer","content":"more"}|`+
		`{"role":"assistant","content":"a"}|{"role":"user","content":"v"}`, "|")
	before := ""
	for n := 1; n <= len(items); n++ {
		c, err := responses.Decode([]byte(`{"model":"m","input":[`+strings.Join(items[:n], ",")+`]}`), responses.Options{})
		if err == nil {
			err = c.Resolve(nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		got := script(c.Request.Turns)
		if !strings.HasPrefix(got, before) {
			t.Fatalf("%q does not begin with %q", got, before)
		}
		before = got
	}
}

func TestUnknownIsListed(t *testing.T) {
	c, err := responses.Decode([]byte(`{"model":"m","novel":1,"input":[{"type":"new_item"},{"role":"user","content":[{"type":"new_part"}]},{"role":"assistant","content":"a"}],"tools":[{"type":"web_search"},`+read+`],"nvext":{"odd":1}}`), responses.Options{})
	if err == nil {
		err = c.Resolve(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"novel", "tools[0].type=web_search", "nvext.odd", "input[0].type=new_item", "input[1].content.type=new_part"}
	if d := cmp.Diff(want, c.Unknown); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestRequest(t *testing.T) {
	one, all := 1, chat.KeepAll
	yes, no := true, false
	half, zero := 0.5, 0.0
	limit := 99
	schema := []byte(`{"type":"object"}`)
	for _, tt := range []struct {
		members string
		want    func(r *chat.Request)
	}{
		{``, func(*chat.Request) {}},
		{`"temperature":0.5,"top_p":0.5,"presence_penalty":0.5,"frequency_penalty":0,"max_output_tokens":99`, func(r *chat.Request) {
			r.Sampling = chat.Sampling{Temperature: &half, TopP: &half, PresencePenalty: &half, FrequencyPenalty: &zero, MaxTokens: &limit}
		}},
		{`"temperature":null,"top_p":null,"tools":null,"tool_choice":null,"reasoning":null,"text":null,"include":null,"metadata":null,"instructions":null,"truncation":null,"nvext":null`, func(*chat.Request) {}},
		{`"instructions":"Be kind."`, func(r *chat.Request) { r.System = []chat.Block{{Kind: chat.Text, Text: "Be kind."}} }},
		{`"metadata":{"a":"b"}`, func(r *chat.Request) { r.Metadata = map[string]string{"a": "b"} }},
		{`"truncation":"auto"`, func(r *chat.Request) { r.Truncate = true }},
		{`"reasoning":{"effort":"none"}`, func(r *chat.Request) {
			r.Thinking = chat.Thinking{Enabled: &no, Effort: "none"}
			r.TemplateArgs = []byte(`{"thinking":false,"enable_thinking":false,"reasoning_effort":"none"}`)
		}},
		{`"reasoning":{"effort":"high","context":"current_turn"}`, func(r *chat.Request) {
			r.Thinking = chat.Thinking{Enabled: &yes, Effort: "high", Keep: &one}
			r.TemplateArgs = []byte(`{"thinking":true,"enable_thinking":true,"reasoning_effort":"high"}`)
		}},
		{`"reasoning":{"effort":"high"},"reasoning":{"summary":"auto"},"text":{"verbosity":"low"},"text":{},"include":["message.output_text.logprobs"],"include":[],"metadata":{"a":"b"},"metadata":{}`, func(r *chat.Request) {
			r.Metadata = map[string]string{} // the last of repeated members wins
		}},
		{`"reasoning":{"context":"all_turns","summary":"auto"}`, func(r *chat.Request) { r.Thinking.Keep = &all }},
		{`"chat_template_args":{"enable_thinking":false},"text":{"verbosity":"low"}`, func(r *chat.Request) {
			r.Thinking.Enabled = &no
			r.TemplateArgs = []byte(`{"enable_thinking":false,"thinking":false,"verbosity":"low"}`)
		}},
		{`"text":{"verbosity":"low"}`, func(r *chat.Request) { r.TemplateArgs = []byte(`{"verbosity":"low"}`) }},
		{`"chat_template_kwargs":{ },"text":{"verbosity":"low"}`, func(r *chat.Request) { r.TemplateArgs = []byte(`{"verbosity":"low"}`) }},
		{`"text":{"format":{"type":"text"}}`, func(*chat.Request) {}},
		{`"text":{"format":{"type":"json_object"}}`, func(r *chat.Request) {
			r.Output = chat.OutputFormat{Kind: chat.FormatJSONObject, Member: "text.format"}
		}},
		{`"text":{"format":{"type":"json_schema","name":"n","description":"d","schema":{"type":"object"},"strict":true},"other":{}}`, func(r *chat.Request) {
			r.Output = chat.OutputFormat{Kind: chat.FormatJSONSchema, Name: "n", Schema: schema, Strict: &yes, Member: "text.format"}
		}},
		{`"top_logprobs":3`, func(*chat.Request) {}},
		{`"include":["message.output_text.logprobs","what.ever"]`, func(r *chat.Request) { r.Sampling.Logprobs = &one }},
		{`"nvext":{"max_thinking_tokens":99,"greed_sampling":true}`, func(r *chat.Request) {
			r.Thinking.Budget, r.Sampling.Temperature = &limit, &zero
		}},
		{`"input":[{"role":"system","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b","prompt_cache_breakpoint":{"mode":"explicit"}}]}]`, func(r *chat.Request) {
			r.Turns = []chat.Turn{{Role: chat.RoleSystem, Blocks: []chat.Block{{Kind: chat.Text, Text: "a"}, {Kind: chat.Text, Text: "b"}}}}
			r.Cache = []chat.Breakpoint{{Turn: 0, Block: 1, TTL: 300e9}}
		}},
		{`"input":[{"role":"assistant","content":"a"},{"role":"assistant","content":[{"type":"output_text","text":"b","prompt_cache_breakpoint":{"mode":"explicit"}}]}]`, func(r *chat.Request) {
			r.Turns = []chat.Turn{{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.Text, Text: "a"}, {Kind: chat.Text, Text: "b"}}}}
			r.Cache = []chat.Breakpoint{{Turn: 0, Block: 1, TTL: 300e9}}
		}},
	} {
		t.Run(tt.members, func(t *testing.T) {
			c := decode(t, tt.members, responses.Options{})
			want := &chat.Request{API: chat.APIResponses, Model: "m", Turns: []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "Hi"}}}}}
			tt.want(want)
			if d := cmp.Diff(want, c.Request); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

func TestCall(t *testing.T) {
	c, err := responses.Decode([]byte(`{"model":"","input":"a","background":true,"prompt_cache_key":"k","previous_response_id":"resp_1"}`), responses.Options{DefaultModel: "d"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Model != "d" || !c.Store || !c.Background || c.Stream || c.PromptCacheKey != "k" || c.PreviousID != "resp_1" {
		t.Errorf("got %+v", c)
	}
	c, err = responses.Decode([]byte(`{"model":"m","input":"a","stream":true}`), responses.Options{NoStore: true})
	if err != nil || c.Store || !c.Stream {
		t.Errorf("without a store: %+v, %v", c, err)
	}
}

// TestRefused lists what is told to a client that can mend it.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		body, param, code, message string
	}{
		{`{"input":"a"}`, "model", wire.CodeMissing, "Model"},
		{`{"model":"m"}`, "input", wire.CodeMissing, "input is required"},
		{`{"model":"m","input":null}`, "input", wire.CodeMissing, "input is required"},
		{`{"model":"m","input":[]}`, "input", wire.CodeInvalidValue, "empty"},
		{`{"model":"m","input":7}`, "input", wire.CodeInvalidValue, "a string or an array of items"},
		{`{"model":"m","input":[7]}`, "input[0]", wire.CodeInvalidValue, "an item object"},
		{`{"model":"m","input":[{"content":"a"}]}`, "input[0].type", wire.CodeMissing, ""},
		{`{"model":"m","input":[{"type":"message","content":"a"}]}`, "input[0].role", wire.CodeMissing, ""},
		{`{"model":"m","input":[{"role":"king","content":"a"}]}`, "input[0].role", wire.CodeInvalidValue, "king"},
		{`{"model":"m","input":[{"role":"user","content":7}]}`, "input[0].content", wire.CodeInvalidValue, "a string or an array"},
		{`{"model":"m","input":[{"role":"user","content":[7]}]}`, "input[0].content[0]", wire.CodeInvalidValue, "a content part object"},
		{`{"model":"m","input":[{"type":"function_call","name":"f"}]}`, "input[0].call_id", wire.CodeMissing, ""},
		{`{"model":"m","input":["a",{"type":"function_call_output","output":"o"}]}`, "input[0]", wire.CodeInvalidValue, ""},
		{`{"model":"m","input":[{"type":"function_call_output","output":"o"}]}`, "input[0].call_id", wire.CodeMissing, ""},
		{`{"model":"m","input":[{"type":"item_reference"}]}`, "input[0].id", wire.CodeMissing, ""},
		{`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]}`, "input[0].content[0].file_id", wire.CodeUnsupported, "file store"},
		{`{"model":"m","input":[{"role":"user","content":[{"type":"input_image"}]}]}`, "input[0].content[0].image_url", wire.CodeMissing, ""},
		{`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_data":"data:application/pdf;base64,AA"}]}]}`, "input[0].content[0].file_data", wire.CodeUnsupported, "application/pdf"},
		{`{"model":"m","input":[{"role":"user","content":[{"type":"input_file"}]}]}`, "input[0].content[0].file_data", wire.CodeMissing, ""},
		{`{"model":"m","input":[{"role":"user","content":[{"text":"x"}]}]}`, "input[0].content[0].type", wire.CodeMissing, ""},
		{`{"model":"m","input":"a","conversation":"c"}`, "conversation", wire.CodeUnsupported, ""},
		{`{"model":"m","input":"a","conversation":"c","previous_response_id":"r"}`, "conversation", wire.CodeInvalidValue, "together"},
		{`{"model":"m","input":"a","prompt":{"id":"p"}}`, "prompt", wire.CodeUnsupported, ""},
		{`{"model":"m","input":"a","temperature":2.5}`, "temperature", wire.CodeInvalidValue, "2.5"},
		{`{"model":"m","input":"a","temperature":"hot"}`, "temperature", wire.CodeInvalidValue, "a number"},
		{`{"model":"m","input":"a","top_p":0}`, "top_p", wire.CodeInvalidValue, ""},
		{`{"model":"m","input":"a","presence_penalty":3}`, "presence_penalty", wire.CodeInvalidValue, ""},
		{`{"model":"m","input":"a","frequency_penalty":-3}`, "frequency_penalty", wire.CodeInvalidValue, ""},
		{`{"model":"m","input":"a","max_output_tokens":0}`, "max_output_tokens", wire.CodeInvalidValue, "greater than 0"},
		{`{"model":"m","input":"a","top_logprobs":-1}`, "top_logprobs", wire.CodeInvalidValue, ""},
		{`{"model":"m","input":"a","truncation":"middle"}`, "truncation", wire.CodeInvalidValue, "middle"},
		{`{"model":"m","input":"a","background":true,"store":false}`, "background", wire.CodeInvalidValue, ""},
		{`{"model":"m","input":"a","reasoning":{"effort":"heroic"}}`, "reasoning.effort", wire.CodeInvalidValue, "heroic"},
		{`{"model":"m","input":"a","reasoning":{"summary":"long"}}`, "reasoning.summary", wire.CodeInvalidValue, ""},
		{`{"model":"m","input":"a","text":{"verbosity":"loud"}}`, "text.verbosity", wire.CodeInvalidValue, ""},
		{`{"model":"m","input":"a","text":{"format":{"type":"xml"}}}`, "text.format.type", wire.CodeInvalidValue, "xml"},
		{`{"model":"m","input":"a","text":{"format":{}}}`, "text.format.type", wire.CodeMissing, ""},
		{`{"model":"m","input":"a","text":{"format":{"type":"json_schema","schema":{}}}}`, "text.format.name", wire.CodeMissing, ""},
		{`{"model":"m","input":"a","text":{"format":{"type":"json_schema","name":"n"}}}`, "text.format.schema", wire.CodeMissing, ""},
		{`{"model":"m","input":"a","text":{"format":{"type":"json_schema","name":"n","schema":[]}}}`, "text.format.schema", wire.CodeInvalidValue, "object"},
		{`{"model":"m","input":"a","metadata":{"a":1}}`, "metadata.a", wire.CodeInvalidValue, "a"},
		{`{"model":"m","input":"a","metadata":{"a":"` + strings.Repeat("x", 513) + `"}}`, "metadata", wire.CodeInvalidValue, "512"},
		{`{"model":"m","input":"a","metadata":{` + strings.Repeat(`"a":"b",`, 3) + pairs(16) + `}}`, "metadata", wire.CodeInvalidValue, "17"},
		{`{"model":"m","input":"a","tools":{}}`, "tools", wire.CodeInvalidValue, "an array of tools"},
		{`{"model":"m","input":"a","tools":[{"name":"f"}]}`, "tools[0].type", wire.CodeMissing, ""},
		{`{"model":"m","input":"a","tools":[{"type":"function"}]}`, "tools[0].name", wire.CodeMissing, ""},
		{`{"model":"m","input":"a","tools":[{"type":"function","name":"a b"}]}`, "tools[0].name", wire.CodeInvalidValue, "a b"},
		{`{"model":"m","input":"a","tools":[{"type":"function","name":"f","parameters":[]}]}`, "tools[0].parameters", wire.CodeInvalidValue, ""},
		{`{"model":"m","input":"a","tools":[{"type":"namespace","name":"n","tools":[{"type":"function"}]}]}`, "tools[0].tools[0].name", wire.CodeMissing, ""},
		{`{"model":"m","input":"a","tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"bnf","definition":"x"}}]}`, "tools[0].format.syntax", wire.CodeInvalidValue, "bnf"},
		{`{"model":"m","input":"a","tool_choice":"maybe"}`, "tool_choice", wire.CodeInvalidValue, "maybe"},
		{`{"model":"m","input":"a","tool_choice":"required"}`, "tool_choice", wire.CodeInvalidValue, "empty"},
		{`{"model":"m","input":"a","tool_choice":{"type":"function","name":"f"}}`, "tool_choice.name", wire.CodeInvalidValue, `"f"`},
		{`{"model":"m","input":"a","tool_choice":{"type":"function"}}`, "tool_choice.name", wire.CodeMissing, ""},
		{`{"model":"m","input":"a","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}}`, "tool_choice.tools[0].name", wire.CodeInvalidValue, `"f"`},
		{`{"model":"m","input":"a","nvext":{"session_control":7}}`, "nvext.session_control", wire.CodeInvalidValue, ""},
		{`{"model":"m","input":"a","chat_template_args":7}`, "chat_template_args", wire.CodeInvalidValue, "an object"},
		{`{"model":"m","input":"a"`, "", wire.CodeInvalidValue, "ends too early"},
		{`{"model":"m","input":"a"} {}`, "", wire.CodeInvalidValue, "more than one"},
		{`[]`, "", wire.CodeInvalidValue, "an object"},
	} {
		t.Run(tt.body, func(t *testing.T) {
			c, err := responses.Decode([]byte(tt.body), responses.Options{})
			if err == nil {
				err = c.Resolve(nil)
			}
			e, ok := errors.AsType[*wire.Error](err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			if e.Status != 400 || e.Param != tt.param || e.Code != tt.code || !strings.Contains(e.Error(), tt.message) {
				t.Errorf("got %+v", e)
			}
		})
	}
	for _, tt := range []struct {
		members string
		options responses.Options
		param   string
	}{
		{`"background":true`, responses.Options{NoStore: true}, "background"},
		{`"novel":1`, responses.Options{RejectUnknown: true}, "novel"},
		{`"nvext":{"odd":1}`, responses.Options{StrictNVExt: true}, "nvext.odd"},
	} {
		_, err := responses.Decode([]byte(`{"model":"m","input":"a",`+tt.members+`}`), tt.options)
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Param != tt.param {
			t.Errorf("%s with %+v: %v", tt.members, tt.options, err)
		}
	}
	if _, err := responses.Decode([]byte(`{"model":"m","input":"a","nvext":{"session_control":7}}`), responses.Options{DisableNVExt: true}); err != nil {
		t.Errorf("nvext is read although it is off: %v", err)
	}
}

func pairs(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	return strings.Join(list, ",")
}

// A body cannot hold more than there is room for, however short it is: each item,
// part and tool takes much more than its shortest form.
func TestWithoutEnd(t *testing.T) {
	const lots = 1 << 17
	for name, tt := range map[string]struct{ body, path string }{
		"items":   {`{"model":"m","input":[` + strings.Repeat(`{"type":"later"},`, lots) + `5]}`, "input[131071]"},
		"parts":   {`{"model":"m","input":[{"role":"user","content":[` + strings.Repeat(`{},`, lots-1) + `5,5]}]}`, "input[0].content[131070]"},
		"results": {`{"model":"m","input":[{"role":"user","content":[` + strings.Repeat(`{},`, lots-9) + `{}]},{"type":"function_call_output","call_id":"c","output":[` + strings.Repeat(`"",`, 9) + `5]}]}`, "input[1].output[5]"},
		"tools":   {`{"model":"m","input":"q","tools":[` + strings.Repeat(`{"type":"web_search"},`, 1536) + `5,5]}`, "tools"},
		"allowed": {`{"model":"m","input":"q","tool_choice":{"type":"allowed_tools","tools":[` + strings.Repeat(`{"type":"function","name":"f"},`, 1536) + `5,5]}}`, "tool_choice.tools"},
	} {
		_, err := responses.Decode([]byte(tt.body), responses.Options{})
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Param != tt.path {
			t.Errorf("%s: %v, want %q", name, err, tt.path)
		}
	}
}

// Groups of tools in groups are nobody's, however deep they go.
func TestGroupsInGroups(t *testing.T) {
	const depth = 2000
	deep := strings.Repeat(`{"type":"namespace","name":"n","tools":[`, depth) + read + strings.Repeat(`]}`, depth)
	c, err := responses.Decode([]byte(`{"model":"m","input":"q","tools":[`+deep+`,`+read+`]}`), responses.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Resolve(nil); err != nil || len(c.Request.Tools) != 1 || c.Request.Tools[0].Namespace != "" {
		t.Errorf("%v, %v", c.Request.Tools, err)
	}
	if len(c.Unknown) != 1 || c.Unknown[0] != "tools[0].tools[0].type=namespace" {
		t.Errorf("listed %q", c.Unknown)
	}
}
