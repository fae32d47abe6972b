package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/anthropic"
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/envelope"
	"github.com/dynago/dynago/nvext"
)

const tools = `"tools":[{"name":"ls","input_schema":{"type":"object"}}]`

// ask is the body of a request with further members; talk one with messages.
func ask(members string) string {
	return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}],` + members + `}`
}

func talk(messages string) string {
	return `{"model":"m","max_tokens":9,"messages":[` + messages + `]}`
}

// decode decodes a body that must be accepted.
func decode(t testing.TB, body string, o ...anthropic.Options) *anthropic.Call {
	t.Helper()
	var options anthropic.Options
	if len(o) > 0 {
		options = o[0]
	}
	c, err := anthropic.Decode([]byte(body), anthropic.Dialect{}, options)
	if err != nil {
		t.Fatalf("%.300s: %v", body, err)
	}
	return c
}

// same compares, with nil and empty alike.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("%.300s: -want +got\n%s", what, d)
	}
}

func block(s string) chat.Block   { return chat.Block{Kind: chat.Text, Text: s} }
func thought(s string) chat.Block { return chat.Block{Kind: chat.Thought, Text: s} }
func opaque(s string) chat.Block  { return chat.Block{Kind: chat.Opaque, Wire: json.RawMessage(s)} }
func tool(name string) chat.Block { return chat.Block{Kind: chat.ToolReference, Text: name} }
func use(id, name, args string) chat.Block {
	return chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: id, Name: name, Kind: chat.ToolFunction, Args: args}}
}

func served(id, name, args string) chat.Block {
	b := use(id, name, args)
	b.Use.Kind = chat.ToolServer
	return b
}

func result(id string, failed bool, blocks ...chat.Block) chat.Block {
	return chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: id, IsError: failed, Blocks: blocks}}
}

func user(b ...chat.Block) chat.Turn   { return chat.Turn{Role: chat.RoleUser, Blocks: b} }
func model(b ...chat.Block) chat.Turn  { return chat.Turn{Role: chat.RoleAssistant, Blocks: b} }
func system(b ...chat.Block) chat.Turn { return chat.Turn{Role: chat.RoleSystem, Blocks: b} }
func answer(b ...chat.Block) chat.Turn { return chat.Turn{Role: chat.RoleTool, Blocks: b} }

func TestTopLevel(t *testing.T) {
	all := new(chat.KeepAll)
	for members, want := range map[string]chat.Request{
		`"stream":false`: {},
		`"temperature":1,"temperature":null,"top_p":0.5,"top_k":0,"stop_sequences":["a","b"],"service_tier":"auto"`: {
			Sampling: chat.Sampling{TopP: new(0.5), TopK: new(-1), Stop: []string{"a", "b"}},
		},
		`"top_k":40,"temperature":0,"max_tokens":3.2e4,"stop_sequences":[]`: {
			Sampling: chat.Sampling{TopK: new(40), Temperature: new(0.0), MaxTokens: new(32000)},
		},
		`"max_tokens":9007199254740993`: {Sampling: chat.Sampling{MaxTokens: new(1<<31 - 1)}},
		`"system":"Be brief."`:          {System: []chat.Block{block("Be brief.")}},
		`"system":[{"type":"text","text":"A"},{"type":"text","text":""},{"text":"B","type":"text"}]`: {
			System: []chat.Block{block("A"), block("B")},
		},
		`"metadata":{"user_id":"u","other":[1]}`: {Metadata: map[string]string{"user_id": "u"}},
		`"metadata":{"user_id":null}`:            {},

		`"thinking":{"type":"enabled","budget_tokens":2048}`:                                                                                   {Thinking: chat.Thinking{Enabled: new(true), Budget: new(2048)}},
		`"thinking":{"type":"adaptive","display":"omitted","block_binding":"x"}`:                                                               {Thinking: chat.Thinking{Enabled: new(true), Adaptive: true}},
		`"thinking":{"type":"tomorrow"}`:                                                                                                       {Thinking: chat.Thinking{Enabled: new(true)}},
		`"thinking":{"type":"between_tools"}`:                                                                                                  {Thinking: chat.Thinking{Enabled: new(true)}},
		`"thinking":{"type":"disabled","budget_tokens":5}`:                                                                                     {Thinking: chat.Thinking{Enabled: new(false), Keep: new(7)}},
		`"thinking":{"budget_tokens":5,"type":"adaptive"},"thinking":null`:                                                                     {},
		`"output_config":{"effort":"xhigh","task_budget":{"type":"tokens"}}`:                                                                   {Thinking: chat.Thinking{Effort: "xhigh"}},
		`"output_config":{"effort":"enormous"}`:                                                                                                {},
		`"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"},{"type":"clear_tool_uses_20250919"}]}`:                 {},
		`"context_management":{"edits":[{"keep":{"type":"thinking_turns","value":3},"type":"clear_thinking_20251015"}]}`:                       {Thinking: chat.Thinking{Keep: new(3)}},
		`"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":{"type":"all"}}]}`:                                            {},
		`"context_management":{"edits":[{"type":"clear_thinking_20251015"}]}`:                                                                  {Thinking: chat.Thinking{Keep: new(1)}},
		`"context_management":{"edits":[{"type":"compact_20260112","keep":5},7]}`:                                                              {},
		`"output_config":{"format":{"type":"json_schema","schema":{"type": "object"}}}`:                                                        {Output: chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: json.RawMessage(`{"type": "object"}`), Member: "output_config.format"}},
		`"output_format":{"schema":{"b":1,"a":2},"type":"json_schema"}`:                                                                        {Output: chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: json.RawMessage(`{"b":1,"a":2}`), Member: "output_format"}},
		`"output_format":null,"output_config":{"format":null}`:                                                                                 {},
		`"nvext":{"greed_sampling":true,"max_thinking_tokens":99},"temperature":0.5,"top_k":3,"thinking":{"type":"enabled","budget_tokens":5}`: {Sampling: chat.Sampling{Temperature: new(0.0)}, Thinking: chat.Thinking{Enabled: new(true), Budget: new(99)}},

		// What nobody knows is no error, at any level.
		`"container":"c","mcp_servers":[{}],"diagnostics":1,"inference_geo":"eu","speed":"fast","fallbacks":[],"compaction":{},"thread":{"type":"create"},"user_profile_id":"u","workspace_id":"w","billing_policy":{},"betas":["x"],"tomorrow":{"a":[]}`: {},
	} {
		want.API, want.Model = chat.APIMessages, "m"
		want.Turns = []chat.Turn{user(block("Hi"))}
		if want.Sampling.MaxTokens == nil {
			want.Sampling.MaxTokens = new(9)
		}
		switch keep := want.Thinking.Keep; {
		case keep == nil:
			want.Thinking.Keep = all
		case *keep == 7: // nothing is said
			want.Thinking.Keep = nil
		}
		same(t, members, *decode(t, ask(members)).Request, want)
	}
}

// What a client says beside the conversation stays with the call.
func TestCall(t *testing.T) {
	c := decode(t, ask(`"stream":true,"metadata":{"user_id":"{\"session_id\":\"s\"}"},"nvext":{"cache_salt":"x","news":1},"news":2,"service_tier":"auto","tools":[{"type":"web_search_20260318","name":"web_search"}],"cache_control":{"ttl":"soon"}`))
	if !c.Stream || c.UserID != `{"session_id":"s"}` || c.Model != "m" {
		t.Errorf("got %+v", c)
	}
	same(t, "nvext", c.Ext, &nvext.Ext{CacheSalt: "x"})
	same(t, "unknown", c.Unknown, []string{"news", "tools[0].type=web_search_20260318", "cache_control.ttl", "nvext.news"})

	body := strings.Replace(ask(`"nvext":{"news":1}`), `"model":"m"`, `"model":""`, 1)
	c = decode(t, body, anthropic.Options{DefaultModel: "d", DisableNVExt: true, StrictNVExt: true})
	if c.Model != "d" || c.Request.Model != "d" || c.Ext != nil {
		t.Errorf("got %+v", c)
	}
}

// An operator's limit stands in for one that is missing.
func TestDefaultMaxTokens(t *testing.T) {
	for limit, want := range map[string]int{``: 50, `"max_tokens":0,`: 50, `"max_tokens":null,`: 50, `"max_tokens":7,`: 7} {
		c := decode(t, `{`+limit+`"model":"m","messages":[{"role":"user","content":"Hi"}]}`, anthropic.Options{DefaultMaxTokens: 50})
		if got := *c.Request.Sampling.MaxTokens; got != want {
			t.Errorf("%s: %d, want %d", limit, got, want)
		}
	}
	if _, err := anthropic.Decode([]byte(`{"model":"m","max_tokens":-1,"messages":[{"role":"user","content":"Hi"}]}`), anthropic.Dialect{}, anthropic.Options{DefaultMaxTokens: 50}); err == nil {
		t.Error("a negative limit is accepted")
	}
}

// A body with raw control characters in strings, bad UTF-8, lone surrogates and
// NULs is understood, and kept JSON stays JSON.
func TestBadBytes(t *testing.T) {
	c := decode(t, talk(`{"role":"user","content":"a`+"\n\x01\xff"+`\ud800\u0000"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":"\udead\u0000`+"\xc3"+`"}}]}`))
	same(t, "turns", c.Request.Turns, []chat.Turn{
		user(block("a\n\x01\uFFFD\uFFFD\uFFFD")),
		model(use("t", "f", `{"a":"\ufffd\ufffd`+"\uFFFD"+`"}`)),
	})
}

func TestMessages(t *testing.T) {
	media := func(kind chat.Kind, source, mediaType, data, path string) chat.Block {
		return chat.Block{Kind: kind, Media: &chat.Media{Source: source, MediaType: mediaType, Data: data, Path: path}}
	}
	png := func(path string) chat.Block { return media(chat.Image, "base64", "image/png", "AAAA", path) }
	const (
		image    = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"},"transformations":[]}`
		document = `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}}`
	)
	hi := user(block("Hi"))
	box := new(envelope.Box)
	sealed, signed := box.Seal("Two files.", 0), box.Sign(envelope.SumOf("Two files."), 0)
	for messages, want := range map[string][]chat.Turn{
		`{"role":"user","content":"Hi"}`: {hi},
		`{"content":[{"type":"text","text":"a","citations":null},{"text":"b","type":"text","cache_control":{"type":"ephemeral"}},{"type":"text","text":""}],"role":"user","x":1}`: {user(block("a"), block("b"))},
		`{"role":"user","content":[]}`: {user()},
		// Turns of users stay apart, those of one answer are one; system text
		// stays where it is.
		`{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"system","content":"s"},{"role":"assistant","content":"c"},{"role":"assistant","content":[{"type":"text","text":"d"}]},{"role":"system","content":[{"type":"text","text":"t"},{"type":"image"}]},{"role":"user","content":"e"}`: {
			user(block("a")), user(block("b")), system(block("s")), model(block("c"), block("d")), system(block("t"), opaque(`{"type":"image"}`)), user(block("e")),
		},
		`{"role":"user","content":[{"type":"text","text":5}]},{"role":"system","content":[{"type":"text"}]},{"role":"assistant","content":"x"},{"role":"system","content":""},{"role":"user","content":"Hi"}`: {
			user(opaque(`{"type":"text","text":5}`)), system(opaque(`{"type":"text"}`)), model(block("x")), hi,
		},
		// Order and bytes of an answer are kept.
		`{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"A","signature":"` + signed + `"},{"type":"text","text":"I look."},{"type":"thinking","thinking":"B","signature":"erased"},{"type":"tool_use","id":"toolu_1","name":"Read","input":{"b": 1.0, "a":  "x"},"caller":{"type":"direct"}},{"type":"text","text":"And."},{"type":"tool_use","input":{},"id":"toolu_2","name":"ls"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"one"},{"type":"tool_result","tool_use_id":"toolu_2","is_error":true,"content":[{"type":"text","text":"two"},` + image + `]},{"type":"text","text":"Well?"}]}`: {
			hi,
			model(thought("A"), block("I look."), thought("B"), use("toolu_1", "Read", `{"b": 1.0, "a":  "x"}`), block("And."), use("toolu_2", "ls", `{}`)),
			user(result("toolu_1", false, block("one")), result("toolu_2", true, block("two"), png("messages[2].content[1].content[1]")), block("Well?")),
		},
		// Thoughts that the client did not see are in the envelope; what another
		// server has sealed is kept without effect.
		`{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"` + sealed + `"},{"type":"redacted_thinking","data":"` + sealed + `"},{"type":"thinking","thinking":"","signature":"abc"},{"type":"redacted_thinking","data":"abc"},{"type":"thinking","thinking":"no signature"}]},{"role":"user","content":"?"}`: {
			hi,
			model(thought("Two files."), thought("Two files."), opaque(`{"type":"thinking","thinking":"","signature":"abc"}`), opaque(`{"type":"redacted_thinking","data":"abc"}`), thought("no signature")),
			user(block("?")),
		},
		// Arguments that are no object are history like any other, and what stood
		// in for them is taken back.
		`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":"{broken"},{"type":"tool_use","id":"b","name":"g"},{"type":"tool_use","id":"c","name":"h","input":[1, 2]},{"type":"tool_use","id":"d","name":"i","input":{"__invalid_json":"{\"a\":"}},{"type":"tool_use","id":"e","name":"j","input":{"__invalid_json":"x","y":1}},{"type":"tool_use","id":"f","name":"k","input":{"__invalid_json":1}},{"type":"tool_use","id":"g","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"none","content":"orphan"},{"type":"tool_result","tool_use_id":"a"},{"type":"tool_result"},{"type":"tool_result","tool_use_id":"b","content":{"x": 1}}]}`: {
			model(use("a", "f", "{broken"), use("b", "g", ""), use("c", "h", "[1, 2]"), use("d", "i", `{"a":`), use("e", "j", `{"__invalid_json":"x","y":1}`), use("f", "k", `{"__invalid_json":1}`), opaque(`{"type":"tool_use","id":"g","input":{}}`)),
			user(result("none", false, block("orphan")), result("a", false), result("", false), result("b", false, block(`{"x": 1}`))),
		},
		// Images and documents.
		`{"role":"user","content":[` + image + `,{"type":"image","source":{"type":"url","url":"https://x/y.png"}},` + document + `]}`: {
			user(png("messages[0].content[0]"), media(chat.Image, "url", "", "https://x/y.png", "messages[0].content[1]"), media(chat.Document, "base64", "application/pdf", "AAAA", "messages[0].content[2]")),
		},
		`{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f_1"}},{"type":"image"},{"type":"document","source":5}]},{"role":"assistant","content":"I see."},{"role":"user","content":"What?"}`: {
			user(media(chat.Image, "file", "", "f_1", "messages[0].content[0]"), opaque(`{"type":"image"}`), opaque(`{"type":"document","source":5}`)), model(block("I see.")), user(block("What?")),
		},
		`{"role":"user","content":[{"type":"document","title":"T","context":"C","source":{"type":"text","media_type":"text/plain","data":"line"}},{"type":"document","source":{"type":"text","data":"whole\n"}},{"type":"document","source":{"type":"content","content":"plain\n"}},{"type":"document","title":"U","source":{"type":"content","content":[{"type":"text","text":"x"},` + image + `]}}]}`: {
			user(block("T\nC\nline\n"), block("whole\n"), block("plain\n"), block("\n"), block("U\n"), block("x"), png("messages[0].content[3].source.content[1]"), block("\n")),
		},
		`{"role":"user","content":[{"type":"search_result","source":"https://s","title":"S","content":[{"type":"text","text":"found"},{"type":"text","text":"more"}]}]}`: {user(block("S\nhttps://s\nfound\nmore\n"))},
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"tool_reference","tool_name":"mcp.x"},{"type":"tool_reference"},{"type":"later","y":1}]}]}`: {
			user(result("t", false, tool("mcp.x"), opaque(`{"type":"tool_reference"}`), opaque(`{"type":"later","y":1}`))),
		},
		// Tools of the provider are calls with results, where both are there.
		`{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"text","text":"I search."},{"type":"server_tool_use","id":"srv1","name":"web_search","input":{"query":"go"}},{"type":"mcp_tool_use","id":"srv2","name":"echo","server_name":"s","input":{}},{"type":"web_search_tool_result","tool_use_id":"srv1","content":[{"type":"web_search_result","title":"Go","url":"https://go.dev","encrypted_content":"zzz"}]},{"type":"mcp_tool_result","tool_use_id":"srv2","is_error":true,"content":[{"type":"text","text":"no"}]},{"type":"text","text":"Done."},{"type":"server_tool_use","id":"srv3","name":"code_execution","input":{}}]},{"role":"user","content":"?"}`: {
			hi,
			model(block("I search."), served("srv1", "web_search", `{"query":"go"}`), served("srv2", "echo", `{}`)),
			answer(result("srv1", false, block("Go\nhttps://go.dev")), result("srv2", true, block("no"))),
			model(block("Done."), opaque(`{"type":"server_tool_use","id":"srv3","name":"code_execution","input":{}}`)),
			user(block("?")),
		},
		`{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"tool_search_tool_regex","input":{}},{"type":"tool_search_tool_result","tool_use_id":"s","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"a"},{"type":"tool_reference","tool_name":"b"}]}}]},{"role":"assistant","content":[{"type":"bash_code_execution_tool_result","tool_use_id":"other","content":{"stdout":"x"}},{"type":"text","text":"Done."}]},{"role":"user","content":"?"}`: {
			model(served("s", "tool_search_tool_regex", `{}`)), answer(result("s", false, tool("a"), tool("b"))),
			model(opaque(`{"type":"bash_code_execution_tool_result","tool_use_id":"other","content":{"stdout":"x"}}`), block("Done.")), user(block("?")),
		},
		`{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"code_execution","input":{}},{"type":"code_execution_tool_result","tool_use_id":"s","content":{"type":"code_execution_result","stdout":"out","stderr":"err","return_code":0,"content":[]}}]},{"role":"user","content":"?"}`: {
			model(served("s", "code_execution", `{}`)), answer(result("s", false, block("out\nerr"))), user(block("?")),
		},
		`{"role":"assistant","content":[{"type":"server_tool_use","id":"n"},{"type":"x_tool_result","tool_use_id":"n"}]},{"role":"user","content":"?"}`: {
			model(opaque(`{"type":"server_tool_use","id":"n"}`), opaque(`{"type":"x_tool_result","tool_use_id":"n"}`)), user(block("?")),
		},
		// A summary takes the place of what it sums up.
		`{"role":"user","content":"long"},{"role":"assistant","content":[{"type":"text","text":"ago"},{"type":"compaction","content":"We spoke.","encrypted_content":"z"},{"type":"text","text":"Now."}]},{"role":"user","content":"?"}`: {user(block("We spoke.")), model(block("Now.")), user(block("?"))},
		`{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"compaction","content":null}]},{"role":"user","content":"b"}`:                                                                                              {user(block("a")), model(opaque(`{"type":"compaction","content":null}`)), user(block("b"))},
		`{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"compaction","content":"We spoke."}]},{"role":"user","content":"b"}`:                                                                                       {user(block("We spoke.")), user(block("b"))},
		// What no one knows.
		`{"role":"user","content":[{"type":"container_upload","file_id":"f"},{"type":"later","text":5,"content":[1,{"type":"later"}],"id":[]},{"type":"text","text":"Hi"}]}`: {
			user(opaque(`{"type":"container_upload","file_id":"f"}`), opaque(`{"type":"later","text":5,"content":[1,{"type":"later"}],"id":[]}`), block("Hi")),
		},
		`{"role":"assistant","content":[{"x":1},5,"text"]},{"role":"user","content":"Hi"}`: {model(opaque(`{"x":1}`), opaque(`5`), block("text")), hi},
		`{"role":"assistant"},{"role":"user","content":"Hi"}`:                              {model(), hi},
	} {
		same(t, messages, decode(t, talk(messages)).Request.Turns, want)
	}
}

// Whatever blocks are in what was said before, a conversation goes on.
func TestHistoryIsNotRefused(t *testing.T) {
	names := rapid.SampledFrom([]string{"type", "text", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "content", "is_error", "source", "title", "tool_name", "cache_control", "aura"})
	words := rapid.SampledFrom([]any{
		"text", "image", "document", "search_result", "thinking", "redacted_thinking", "tool_use", "tool_result", "server_tool_use", "mcp_tool_use",
		"web_search_tool_result", "tool_reference", "compaction", "aura", "base64", "url", "content", "x", "", nil, true, 7, -1.5,
	})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return words
		}
		return rapid.OneOf(words, words,
			rapid.Custom(func(t *rapid.T) any { return rapid.SliceOfN(value(depth-1), 0, 3).Draw(t, "array") }),
			rapid.Custom(func(t *rapid.T) any { return rapid.MapOfN(names, value(depth-1), 0, 6).Draw(t, "object") }))
	}
	blocks := rapid.SliceOfN(rapid.OneOf(rapid.Custom(func(t *rapid.T) any {
		b := rapid.MapOfN(names, value(3), 0, 8).Draw(t, "block")
		b["type"] = words.Draw(t, "type")
		return b
	}), value(2)), 0, 4)
	rapid.Check(t, func(rt *rapid.T) {
		var messages []any
		for range rapid.IntRange(1, 4).Draw(rt, "messages") {
			messages = append(messages, map[string]any{
				"role":    rapid.SampledFrom([]string{"user", "assistant", "system"}).Draw(rt, "role"),
				"content": blocks.Draw(rt, "content"),
			})
		}
		messages = append(messages, map[string]any{"role": "assistant", "content": "So."}, map[string]any{"role": "user", "content": "Go on."})
		body, err := json.Marshal(map[string]any{"model": "m", "max_tokens": 1, "messages": messages})
		if err != nil {
			rt.Fatal(err)
		}
		c, err := anthropic.Decode(body, anthropic.Dialect{}, anthropic.Options{})
		if err != nil {
			rt.Fatalf("%s: %v", body, err)
		}
		checkRequest(t, c.Request)
	})
}

// An answer that the client has begun is gone on with, if it ends in text.
func TestPrefill(t *testing.T) {
	const hi = `{"role":"user","content":"Hi"},`
	for messages, want := range map[string]bool{
		hi + `{"role":"assistant","content":"The answer is"}`:                                                            true,
		hi + `{"role":"assistant","content":[{"type":"thinking","thinking":"x"},{"type":"text","text":"The"}]}`:          true,
		hi + `{"role":"assistant","content":[{"type":"text","text":"I"},{"type":"tool_use","id":"i","name":"f"}]}`:       false,
		hi + `{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}`:                                       false,
		hi + `{"role":"assistant","content":""}`:                                                                         false,
		hi + `{"role":"assistant","content":"The answer is"},{"role":"user","content":"?"}`:                              false,
		hi + `{"role":"assistant","content":"The answer is"},{"role":"system","content":"Go on."}`:                       false,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"},{"type":"text","text":"Hi"}]}`: false,
	} {
		r := decode(t, talk(messages)).Request
		if got := string(r.TemplateArgs) == `{"continue_final_message":true}`; got != want || !want && r.TemplateArgs != nil {
			t.Errorf("%s: template arguments %s", messages, r.TemplateArgs)
		}
		if last := r.Turns[len(r.Turns)-1]; len(last.Blocks) == 0 {
			t.Errorf("%s: the last turn is empty", messages)
		}
	}
}

func TestTools(t *testing.T) {
	list := `[
		{"name":"mcp.fs-read","description":"Reads.","input_schema":{"$schema":"x", "type":"object","properties":{"b":{},"a":{}}},"cache_control":{"type":"ephemeral"},"eager_input_streaming":true,"input_examples":[{}],"allowed_callers":["direct"]},
		{"type":"custom","name":"b","input_schema":{},"strict":true},
		{"type":null,"name":"c","input_schema":{},"strict":null,"description":null,"defer_loading":true},
		{"type":"web_search_20260318","name":"web_search","max_uses":3},
		{"type":"mcp_toolset","mcp_server_name":"s"},
		{"type":"computer_toolset_20260801","name":"computer"},
		{"type":"tomorrow_20301231","name":"d","input_schema":{"type":"object"}},
		{"type":"bash_20250124","name":"bash"},
		{"type":"text_editor_20250728","name":"str_replace_based_edit_tool","max_characters":5},
		{"type":"text_editor_20250124","name":"str_replace_editor"},
		{"type":"memory_20250818","name":"memory","description":"Mine."},
		{"type":"computer_20251124","name":"computer","display_width_px":1024,"display_height_px":768}
	]`
	got := decode(t, ask(`"tools":`+list)).Request.Tools
	var wires []json.RawMessage
	if err := json.Unmarshal([]byte(list), &wires); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(wires) {
		t.Fatalf("got %d tools", len(got))
	}
	for i, want := range []chat.Tool{
		{Kind: chat.ToolFunction, Name: "mcp.fs-read", Description: "Reads.", Schema: json.RawMessage(`{"$schema":"x", "type":"object","properties":{"b":{},"a":{}}}`)},
		{Kind: chat.ToolFunction, Name: "b", Schema: json.RawMessage(`{}`), Strict: new(true)},
		{Kind: chat.ToolFunction, Name: "c", Schema: json.RawMessage(`{}`), Deferred: true},
		{Kind: chat.ToolServer, Name: "web_search"},
		{Kind: chat.ToolServer},
		{Kind: chat.ToolServer, Name: "computer"},
		{Kind: chat.ToolFunction, Name: "d", Schema: json.RawMessage(`{"type":"object"}`)},
	} {
		want.Wire = wires[i]
		same(t, string(wires[i]), got[i], want)
	}
	for i, want := range map[int][]string{ // name, and members of the schema
		7:  {"bash", "command", "restart"},
		8:  {"str_replace_based_edit_tool", "command", "path", "file_text", "old_str", "new_str", "insert_line", "insert_text", "view_range"},
		9:  {"str_replace_editor", "command", "path"},
		10: {"memory", "command", "path", "old_path", "new_path"},
		11: {"computer", "action", "coordinate", "text"},
	} {
		var schema struct {
			Type       string
			Properties map[string]struct{ Enum []string }
		}
		if err := json.Unmarshal(got[i].Schema, &schema); err != nil || schema.Type != "object" {
			t.Errorf("%s: schema %s: %v", want[0], got[i].Schema, err)
		}
		for _, member := range want[1:] {
			if _, ok := schema.Properties[member]; !ok {
				t.Errorf("%s takes no %s", want[0], member)
			}
		}
		if got[i].Kind != chat.ToolFunction || got[i].Name != want[0] || got[i].Description == "" {
			t.Errorf("got %+v", got[i])
		}
		undo := strings.Contains(string(got[i].Schema), "undo_edit")
		if undo != (i == 9) {
			t.Errorf("%s: undo_edit %v", want[0], undo)
		}
	}
	if got[10].Description != "Mine." || !strings.Contains(got[11].Description, "1024 x 768") {
		t.Errorf("descriptions %q and %q", got[10].Description, got[11].Description)
	}
}

func TestToolChoice(t *testing.T) {
	for choice, want := range map[string]chat.ToolChoice{
		`null`:            {},
		`{"type":"auto"}`: {},
		`{"type":"auto","disable_parallel_tool_use":true}`:  {Parallel: new(false)},
		`{"type":"auto","disable_parallel_tool_use":false}`: {Parallel: new(true)},
		`{"type":"any","disable_parallel_tool_use":null}`:   {Mode: chat.ToolRequired},
		`{"type":"none"}`: {Mode: chat.ToolNone},
		`{"name":"ls","type":"tool","disable_parallel_tool_use":true}`: {Mode: chat.ToolNamed, Names: []string{"ls"}, Parallel: new(false)},
	} {
		r := decode(t, ask(tools+`,"tool_choice":`+choice+`,"output_format":{"type":"json_schema","schema":{}}`)).Request
		same(t, choice, r.ToolChoice, want)
		forced := want.Mode == chat.ToolRequired || want.Mode == chat.ToolNamed
		if (r.Output.Kind == "") != forced {
			t.Errorf("%s: output %+v", choice, r.Output)
		}
	}
}

func TestCacheMarks(t *testing.T) {
	at := func(turn, block int, ttl time.Duration) chat.Breakpoint {
		return chat.Breakpoint{Turn: turn, Block: block, TTL: ttl}
	}
	const m = `"cache_control":{"type":"ephemeral"}`
	body := `{"model":"m","max_tokens":1,"cache_control":{"type":"ephemeral","ttl":"1h"},
		"tools":[{"name":"a","input_schema":{},` + m + `},{"name":"b","input_schema":{}}],
		"system":[{"type":"text","text":""},{"type":"text","text":"S",` + m + `},{"type":"text","text":"",` + m + `}],
		"messages":[
			{"role":"user","content":[{"type":"text","text":"","cache_control":{"ttl":60}},{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral","ttl":"2m"}},{"type":"text","text":"","cache_control":{"ttl":"1m"}}]},
			{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"a","input":{},"cache_control":{"type":"eternal"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x",` + m + `}]},{"type":"text","text":"c","cache_control":{"ttl":"0m"}}]}]}`
	same(t, "marks", decode(t, body).Request.Cache, []chat.Breakpoint{
		at(-2, 0, 5*time.Minute), at(-1, 0, 5*time.Minute), at(0, 1, 2*time.Minute), at(2, 0, 5*time.Minute), at(2, 1, time.Hour),
	})

	for ttl, want := range map[string]time.Duration{
		`"5m"`: 5 * time.Minute, `"1h"`: time.Hour, `"300"`: 300 * time.Second, `"7s"`: 7 * time.Second, `90`: 90 * time.Second, `1e2`: 100 * time.Second, `null`: 5 * time.Minute,
		// Every zero is the wish to let go.
		`"0s"`: 0, `"0m"`: 0, `"0h"`: 0, `"0"`: 0, `0`: 0, `"000m"`: 0,
		// What cannot be read is the default.
		`""`: 5 * time.Minute, `"m"`: 5 * time.Minute, `"-1"`: 5 * time.Minute, `-60`: 5 * time.Minute, `"1.5h"`: 5 * time.Minute, `"5 m"`: 5 * time.Minute, `"5d"`: 5 * time.Minute, `2.5`: 5 * time.Minute, `[]`: 5 * time.Minute, `{"a":1}`: 5 * time.Minute, `true`: 5 * time.Minute,
		`"99999999999999999999h"`: 1<<63 - 1, `9223372036854775807`: 1<<63 - 1,
	} {
		same(t, ttl, decode(t, ask(`"cache_control":{"ttl":`+ttl+`}`)).Request.Cache, []chat.Breakpoint{at(0, 0, want)})
	}

	// The last marks are the longest prefixes.
	many := strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"x",`+m+`},`, 20), ",")
	r := decode(t, talk(`{"role":"user","content":[`+many+`]}`)).Request
	if n := len(r.Cache); n != 8 || r.Cache[0].Block != 12 || r.Cache[7].Block != 19 {
		t.Errorf("got %v", r.Cache)
	}
	// A mark of an answer that has moved moves along.
	r = decode(t, talk(`{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"w","input":{}},{"type":"w_tool_result","tool_use_id":"s","content":"x"},{"type":"text","text":"y",`+m+`}]},{"role":"user","content":"b"}`)).Request
	same(t, "server tools", r.Cache, []chat.Breakpoint{at(3, 0, 5*time.Minute)})
	r = decode(t, talk(`{"role":"user","content":[{"type":"text","text":"a",`+m+`}]},{"role":"assistant","content":[{"type":"compaction","content":"s",`+m+`},{"type":"text","text":"y"}]}`)).Request
	same(t, "compaction", r.Cache, []chat.Breakpoint{at(0, 0, 5*time.Minute)})
}

func TestMarkErrors(t *testing.T) {
	for content, want := range map[string][]chat.Block{
		`"no such file"`:                  {block("[error] no such file")},
		`"Error: no such file"`:           {block("Error: no such file")},
		`"the command failed"`:            {block("the command failed")},
		`[]`:                              {block("[error] ")},
		`[{"type":"text","text":"gone"}]`: {block("[error] gone")},
	} {
		body := func(failed string) string {
			return talk(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_error":` + failed + `,"content":` + content + `}]}`)
		}
		got := decode(t, body("true"), anthropic.Options{MarkErrors: true}).Request.Turns[0].Blocks[0].Result
		same(t, content, got.Blocks, want)
		plain := decode(t, body("true")).Request.Turns[0].Blocks[0].Result
		good := decode(t, body("false"), anthropic.Options{MarkErrors: true}).Request.Turns[0].Blocks[0].Result
		same(t, content, good.Blocks, plain.Blocks)
		if !plain.IsError || good.IsError {
			t.Errorf("%s: is_error is lost", content)
		}
	}
}

// A count asks for no answer, and so for nothing that says how it is to be.
func TestCount(t *testing.T) {
	const conversation = `"system":"S","messages":[{"role":"user","content":"Hi"}],` + tools + `,"thinking":{"type":"disabled"},"tool_choice":{"type":"none"}}`
	counted, err := anthropic.DecodeCount([]byte(`{"model":"m","max_tokens":0,"stream":true,"temperature":9,`+conversation), anthropic.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := decode(t, `{"model":"m","max_tokens":9,`+conversation).Request
	want.Sampling = chat.Sampling{}
	same(t, "count", counted, want)
	if _, err := anthropic.DecodeCount([]byte(`{"model":"m","nvext":{"agent_hints":7},"cache_salt":"`+strings.Repeat("s", 2000)+`",`+conversation), anthropic.Options{StrictNVExt: true}); err != nil {
		t.Errorf("what is no part of the prompt is refused: %v", err)
	}
}
