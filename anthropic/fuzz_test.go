package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/anthropic"
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// checkError holds what every refusal has.
func checkError(t *testing.T, err error) {
	t.Helper()
	e, ok := err.(*wire.Error)
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	if e.Status != 400 && e.Status != 404 || e.Message == "" || !utf8.ValidString(e.Message) || len(e.Message) > 4000 {
		t.Fatalf("%d %q", e.Status, e.Message)
	}
	if body := anthropic.AppendError(nil, e, "r"); !json.Valid(body) {
		t.Fatalf("%s", body)
	}
}

// checkRequest holds what every accepted request has: text is UTF-8 without NUL,
// kept JSON is JSON, and marks stand where something is.
func checkRequest(t *testing.T, r *chat.Request) {
	t.Helper()
	text := func(s string) {
		if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
			t.Fatalf("%q is no text", s)
		}
	}
	raw := func(v json.RawMessage) {
		if v != nil && !jsontext.Value(v).IsValid(jsontext.AllowDuplicateNames(true)) {
			t.Fatalf("%q is no JSON", v)
		}
	}
	var blocks func([]chat.Block)
	blocks = func(list []chat.Block) {
		for _, b := range list {
			text(b.Text)
			raw(b.Wire)
			switch {
			case b.Kind == chat.ToolCall:
				text(b.Use.ID + b.Use.Name + b.Use.Args)
				if b.Use.Name == "" {
					t.Fatal("a call has no name")
				}
			case b.Kind == chat.ToolResult:
				text(b.Result.ID)
				blocks(b.Result.Blocks)
			case b.Kind == chat.Image || b.Kind == chat.Document:
				text(b.Media.Data + b.Media.MediaType)
			case b.Kind != chat.Opaque && b.Text == "":
				t.Fatalf("an empty block %+v", b)
			}
		}
	}
	blocks(r.System)
	for _, turn := range r.Turns {
		blocks(turn.Blocks)
	}
	for _, tool := range r.Tools {
		text(tool.Name + tool.Description)
		raw(tool.Schema)
		raw(tool.Wire)
		if tool.Callable() && (tool.Name == "" || tool.Schema == nil) {
			t.Fatalf("tool %+v", tool)
		}
	}
	for _, at := range r.Cache {
		n := len(r.Tools)
		if at.Turn == -1 {
			n = len(r.System)
		} else if at.Turn >= 0 {
			n = len(r.Turns[at.Turn].Blocks)
		}
		if at.Block < 0 || at.Block >= n || at.TTL < 0 {
			t.Fatalf("a mark at %+v", at)
		}
	}
	raw(r.Output.Schema)
	text(r.Model + strings.Join(r.Sampling.Stop, ""))
}

func FuzzDecode(f *testing.F) {
	for _, r := range refusals {
		if len(r.body) < 2000 {
			f.Add([]byte(r.body))
		}
	}
	for _, members := range []string{
		tools + `,"tool_choice":{"type":"tool","name":"ls","disable_parallel_tool_use":true},"system":[{"type":"text","text":"S","cache_control":{"ttl":"1h"}}],"cache_control":{}`,
		`"tools":[{"type":"bash_20250124"},{"type":"text_editor_20250728"},{"type":"computer_20251124","display_width_px":9,"display_height_px":9}],"thinking":{"type":"enabled","budget_tokens":5},"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":{"type":"thinking_turns","value":2}}]}`,
		`"output_config":{"effort":"max","format":{"type":"json_schema","schema":{}}},"metadata":{"user_id":"{}"},"nvext":{"retention":{"ranges":[{"end":4,"priority":3}]}},"betas":["x"]`,
	} {
		f.Add([]byte(ask(members)))
	}
	for _, messages := range []string{
		`{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"` + box.Seal("Hm.", 0) + `"},{"type":"server_tool_use","id":"s","name":"w","input":{}},{"type":"w_tool_result","tool_use_id":"s","content":{"a":[{"text":"x"}]}},{"type":"compaction","content":"c"},{"type":"tool_use","id":"t","name":"f","input":{"__invalid_json":"\ud800"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":[{"type":"tool_reference","tool_name":"z"},{"type":"document","title":"T","source":{"type":"content","content":[{"type":"text","text":"x"}]}}]}]}`,
		`{"role":"user","content":[{"type":"document","source":{"type":"text","data":"d"}},{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"x"}]},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"},"cache_control":{"ttl":5}}]},{"role":"assistant","content":"The"}`,
	} {
		f.Add([]byte(talk(messages)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, o := range []anthropic.Options{{}, {StrictNVExt: true, MarkErrors: true, DefaultModel: "d"}} {
			c, err := anthropic.Decode(body, anthropic.Dialect{}, o)
			if err != nil {
				checkError(t, err)
				continue
			}
			checkRequest(t, c.Request)
			object(t, c.Encoder(header).AppendAnswer(nil, make([]chat.Answer, 1)))
			if _, err := anthropic.DecodeCount(body, o); err != nil {
				t.Fatalf("can be answered, but not counted: %v", err)
			}
		}
	})
}

// FuzzStream holds the grammar of streams, and that of messages, for answers that
// are drawn from the fuzzer's bytes, with text of any bytes.
func FuzzStream(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(rt *rapid.T) {
		drawn := events(rt)
		raw := rapid.SliceOfN(rapid.Byte(), 0, 9)
		for i := range drawn {
			if drawn[i].Text != "" && rapid.Bool().Draw(rt, "raw") {
				drawn[i].Text = string(raw.Draw(rt, "bytes"))
			}
		}
		c, err := anthropic.Decode([]byte(ask(`"stream":true`)), anthropic.Dialect{}, anthropic.Options{})
		if err != nil {
			rt.Fatal(err)
		}
		accumulate(rt, stream(c.Encoder(header), drawn))
	}))
}
