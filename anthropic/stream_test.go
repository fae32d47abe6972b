package anthropic_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/anthropic"
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

var update = flag.Bool("update", false, "write the transcripts in testdata anew")

var header = anthropic.Header{ID: "1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001", Model: "acme/chat-8b"}

// generation is what a model writes in answer to a request, and how that ends.
type generation struct {
	name    string
	members string // of the request
	text    string
	reason  chat.FinishReason
	stop    string // what the client's stop list matched
	usage   chat.Usage
}

const (
	callA = "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a.go\", \"lines\": [1, 2.0]}}\n</tool_call>"
	callB = "<tool_call>\n{\"name\": \"list\", \"arguments\": {}}\n</tool_call>"

	marked = `"cache_control":{"type":"ephemeral"}`
)

var generations = []generation{
	{name: "text", text: "The Rhine,\nthe \"Elbe\".", usage: chat.Usage{Prompt: 21, Output: 9}},
	{name: "thinking_text", text: "<think>Rivers.\nTwo.</think>\n\nThe Rhine.", usage: chat.Usage{Prompt: 21, Output: 12, Cached: new(16), Reasoning: new(4)}},
	{name: "text_call", text: "I look." + callA, usage: chat.Usage{Prompt: 40, Output: 30}},
	{name: "call_call", text: callA + "\n" + callB, usage: chat.Usage{Prompt: 40, Output: 50}},
	{name: "thinking_call_thinking_call_text", text: "<think>One.</think>" + callA + "<think>Two.</think>" + callB + "Done.", usage: chat.Usage{Prompt: 40, Output: 60, Reasoning: new(6)}},
	{name: "truncated_text", text: "The Rhi", reason: chat.FinishLength, usage: chat.Usage{Prompt: 21, Output: 3}},
	{name: "truncated_call", text: "I look.<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a", reason: chat.FinishLength, usage: chat.Usage{Prompt: 40, Output: 20}},
	{name: "empty", usage: chat.Usage{Prompt: 21, Output: 1}},

	{name: "omitted", members: `"thinking":{"type":"adaptive","display":"omitted"}`, text: "<think>Rivers.\nTwo.</think>\n\nThe Rhine.", usage: chat.Usage{Prompt: 21, Output: 12}},
	{name: "stop_sequence", members: `"stop_sequences":["\n\n"]`, text: "The Rhine.", reason: chat.FinishStopSequence, stop: "\n\n", usage: chat.Usage{Prompt: 21, Output: 4}},
	{name: "refusal", text: "I", reason: chat.FinishContentFilter, usage: chat.Usage{Prompt: 21, Output: 1}},
	{name: "context", members: `"betas":["a","model-context-window-exceeded-2025-08-26"]`, text: "The", reason: chat.FinishContext, usage: chat.Usage{Prompt: 4090, Output: 6}},
	{name: "context_untold", text: "The", reason: chat.FinishContext, usage: chat.Usage{Prompt: 4090, Output: 6}},
	{name: "cache", members: marked, text: "Yes.", usage: chat.Usage{Prompt: 100, Output: 2, Cached: new(48), Written: new(32)}},
	{name: "cache_long", members: `"cache_control":{"type":"ephemeral","ttl":"1h"}`, text: "Yes.", usage: chat.Usage{Prompt: 100, Output: 2, Cached: new(48), Written: new(99)}},
}

// events returns the events of a generation that arrives in these pieces.
func (g *generation) events(pieces []string) []chat.Event {
	id := 0
	p := parser.New(family, parser.Options{
		Tools: []chat.Tool{{Name: "read"}, {Name: "list"}}, ToolsOn: true, ThinkOn: true,
		NewID: func() string { id++; return fmt.Sprintf("call_%024d", id) },
	})
	out := []chat.Event{{Kind: chat.Start, Usage: chat.Usage{Prompt: g.usage.Prompt, Cached: g.usage.Cached, Written: g.usage.Written}}}
	for _, s := range pieces {
		out = p.Push(out, chat.Piece{Text: s})
	}
	reason := g.reason
	if reason == "" {
		reason = chat.FinishStop
	}
	out, reason = p.Finish(out, reason)
	return append(out, chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: reason, StopText: g.stop}, Usage: g.usage})
}

var family = parser.Detect(`… <tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call> … <think>`, nil)

func (g *generation) encoder(t testing.TB) *anthropic.Encoder {
	t.Helper()
	body := ask(`"stream":true`)
	if g.members != "" {
		body = ask(`"stream":true,` + g.members)
	}
	return decode(t, body).Encoder(header)
}

// joined makes one event of neighbouring deltas: how many there are depends on
// how the text arrived, and what they say does not.
func joined(events []chat.Event) []chat.Event {
	var out []chat.Event
	for _, e := range events {
		if n := len(out); n > 0 && chat.TextDelta <= e.Kind && e.Kind <= chat.RefusalDelta && out[n-1].Kind == e.Kind {
			out[n-1].Text += e.Text
			continue
		}
		out = append(out, e)
	}
	return slices.DeleteFunc(out, func(e chat.Event) bool {
		return e.Kind == chat.Dropped || chat.TextDelta <= e.Kind && e.Kind <= chat.RefusalDelta && e.Text == ""
	})
}

// stream returns the bytes of a streamed answer.
func stream(e *anthropic.Encoder, events []chat.Event) string {
	var out []byte
	for _, event := range events {
		frames := e.AppendEvent(nil, event)
		if len(frames) > 0 && out == nil {
			out = e.AppendOpening(out)
		}
		out = append(out, frames...)
	}
	return string(e.AppendEnd(out))
}

func fold(t testing.TB, events []chat.Event) []chat.Answer {
	t.Helper()
	answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// Each generation gives the same stream, and the same message, in whatever
// pieces it arrives.
func TestTranscripts(t *testing.T) {
	for _, g := range generations {
		t.Run(g.name, func(t *testing.T) {
			whole := joined(g.events([]string{g.text}))
			want := stream(g.encoder(t), whole)
			golden(t, g.name+".sse", want)
			unary := string(g.encoder(t).AppendAnswer(nil, fold(t, whole)))
			golden(t, g.name+".json", unary+"\n")
			if a, b := accumulate(t, want), object(t, []byte(unary)); !equal(a, b) {
				t.Errorf("the stream adds up to %v\nbut the message is %v", a, b)
			}

			ways := [][]string{strings.Split(g.text, "")}
			for i := range g.text {
				ways = append(ways, []string{g.text[:i], g.text[i:]})
			}
			for _, pieces := range ways {
				events := g.events(pieces)
				if got := stream(g.encoder(t), joined(events)); got != want {
					t.Fatalf("in pieces %q:\n%s\nwant\n%s", pieces, got, want)
				}
				if got := string(g.encoder(t).AppendAnswer(nil, fold(t, events))); got != unary {
					t.Fatalf("in pieces %q:\n%s\nwant\n%s", pieces, got, unary)
				}
				if got := accumulate(t, stream(g.encoder(t), events)); !equal(got, object(t, []byte(unary))) {
					t.Fatalf("in pieces %q the stream adds up to %v", pieces, got)
				}
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

// A call is closed on the wire before the next one begins, so that a client can
// run it meanwhile.
func TestCallsAreClosedAtOnce(t *testing.T) {
	g := generation{text: callA + callB}
	e := g.encoder(t)
	out := ""
	for _, event := range g.events(strings.Split(g.text, "")) {
		out += string(e.AppendEvent(nil, event))
		if event.Kind == chat.BlockStart && event.Index == 1 {
			if !strings.Contains(out, `{"type":"content_block_stop","index":0}`) {
				t.Errorf("the second call begins after\n%s", out)
			}
			return
		}
	}
	t.Error("there is no second call")
}

// What a stream says before it is known how it goes on.
func TestOpening(t *testing.T) {
	g := generation{}
	e := g.encoder(t)
	message := func() string {
		return `event: message_start` + "\n" + `data: {"type":"message_start","message":{"id":"msg_1b3f0c528a554a8eb1a70a7b6bd0f001","type":"message","role":"assistant","model":"acme/chat-8b","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":0,"cache_read_input_tokens":%d,"cache_creation_input_tokens":0}}}` + "\n\n"
	}()
	if got, want := string(e.AppendOpening(nil)), fmt.Sprintf(message, 0, 0); got != want {
		t.Errorf("before the answer: %s", got)
	}
	e.AppendEvent(nil, chat.Event{Kind: chat.Start, Usage: chat.Usage{Prompt: 21, Output: 7, Cached: new(16)}})
	if got, want := string(e.AppendOpening(nil)), fmt.Sprintf(message, 5, 16); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := string(e.AppendPing(nil)); got != "event: ping\ndata: {\"type\":\"ping\"}\n\n" {
		t.Errorf("ping %q", got)
	}
	if got := e.AppendEnd(nil); len(got) > 0 {
		t.Errorf("an answer without an end ends with %s", got)
	}
}

// Signatures are those of the thoughts they stand behind.
func TestSignatures(t *testing.T) {
	g := generation{text: "<think>One.</think>" + callB + "<think>Two\x00 €.</think>Done."}
	for _, display := range []string{"summarized", "omitted"} {
		g.members = `"thinking":{"type":"enabled","display":"` + display + `"}`
		for _, m := range []map[string]any{
			accumulate(t, stream(g.encoder(t), g.events(strings.Split(g.text, "")))),
			object(t, g.encoder(t).AppendAnswer(nil, fold(t, g.events([]string{g.text})))),
		} {
			n := 0
			for _, b := range m["content"].([]any) {
				b := b.(map[string]any)
				if b["type"] != "thinking" {
					continue
				}
				want := []string{"One.", "Two\uFFFD €."}[n]
				c, ok := box.Open(b["signature"].(string))
				if !ok || !c.Vouches(want) || c.Ordinal != n || c.HasText != (display == "omitted") {
					t.Errorf("%s: thought %d: %+v, %v", display, n, c, ok)
				}
				if hidden := b["thinking"] == ""; hidden != (display == "omitted") {
					t.Errorf("%s: thought %d is shown as %q", display, n, b["thinking"])
				}
				n++
			}
			if n != 2 {
				t.Errorf("%s: %d thoughts", display, n)
			}
		}
	}
}

func TestDialects(t *testing.T) {
	for _, tt := range []struct {
		d     anthropic.Dialect
		tells bool
	}{
		{anthropic.Dialect{}, false},
		{anthropic.Dialect{Version: "2023-06-01"}, false},
		{anthropic.Dialect{Version: "2026-10-21"}, true},
		{anthropic.Dialect{Version: "2027-01-01"}, true},
		{anthropic.Dialect{Version: "latest"}, false},
		{anthropic.Dialect{Betas: []string{"x, model-context-window-exceeded-2025-08-26 ,y"}}, true},
		{anthropic.Dialect{Betas: []string{"x", "model-context-window-exceeded-2025-08-26"}}, true},
		{anthropic.Dialect{Betas: []string{"model-context-window"}}, false},
	} {
		c, err := anthropic.Decode([]byte(ask(tools)), tt.d, anthropic.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := string(c.Encoder(header).AppendEvent(nil, chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishContext}}))
		if strings.Contains(got, `"model_context_window_exceeded"`) != tt.tells || strings.Contains(got, `"max_tokens"`) == tt.tells {
			t.Errorf("%+v: %s", tt.d, got)
		}
	}
}

// A stop list may have matched something that is no text.
func TestStopWithoutText(t *testing.T) {
	for _, f := range []chat.Finish{
		{Reason: chat.FinishStopSequence, StopID: new(uint32(7))},
		{Reason: chat.FinishLength, StopText: "x"},
	} {
		got := string((&generation{}).encoder(t).AppendEvent(nil, chat.Event{Kind: chat.Finished, Finish: f}))
		if !strings.Contains(got, `"stop_sequence":null`) {
			t.Errorf("%+v: %s", f, got)
		}
	}
}

func TestModelList(t *testing.T) {
	list := []anthropic.Model{
		{ID: "acme/chat-8b", Created: time.Date(2026, 9, 21, 16, 0, 0, 0, time.FixedZone("", 7200)), ContextWindow: 32768, MaxOutputTokens: 4096},
		{ID: `a"b`, Created: time.Unix(0, 0)},
	}
	const want = `{"data":[{"type":"model","id":"acme/chat-8b","display_name":"acme/chat-8b","created_at":"2026-09-21T14:00:00Z","max_input_tokens":32768,"max_tokens":4096},` +
		`{"type":"model","id":"a\"b","display_name":"a\"b","created_at":"1970-01-01T00:00:00Z"}],"has_more":false,"first_id":"acme/chat-8b","last_id":"a\"b"}`
	if got := string(anthropic.AppendModels(nil, list)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(anthropic.AppendModels(nil, nil)); got != `{"data":[],"has_more":false,"first_id":null,"last_id":null}` {
		t.Errorf("no models: %s", got)
	}
}

// Arguments that are no object are shown as what they are.
func TestInputs(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   `{}`,
		" \n":                                `{}`,
		`{"b": 1.0,"a":"<&>"}`:               `{"b": 1.0,"a":"<&>"}`,
		` {"a":1,"a":2} `:                    `{"a":1,"a":2}`,
		`{"a":"\ud800\u0000` + "\xff" + `"}`: `{"a":"\ufffd\ufffd` + "\uFFFD" + `"}`,
		`{"a":`:                              `{"__invalid_json":"{\"a\":"}`,
		`{"a":"\ud`:                          `{"__invalid_json":"{\"a\":\"\\ud"}`,
		`[1]`:                                `{"__invalid_json":"[1]"}`,
		`"x"`:                                `{"__invalid_json":"\"x\""}`,
		`{} {}`:                              `{"__invalid_json":"{} {}"}`,
		"\u00a0{}":                           "{\"__invalid_json\":\"\u00a0{}\"}",
	} {
		answers := []chat.Answer{{Blocks: []chat.Block{use("call_1", "f", args)}}}
		got := string((&generation{}).encoder(t).AppendAnswer(nil, answers))
		if !strings.Contains(got, `"content":[{"type":"tool_use","id":"toolu_1","name":"f","input":`+want+`}]`) {
			t.Errorf("%q: %s", args, got)
		}
	}
}

// Ids keep the model's own part, in the API's spelling.
func TestCallIDs(t *testing.T) {
	for id, want := range map[string]string{
		"call_0123456789ABk12": "toolu_0123456789ABk12", "a1B2c3D4e": "a1B2c3D4e", "toolu_x": "toolu_x", "functions.f:0": "functions.f:0",
	} {
		got := string((&generation{}).encoder(t).AppendEvent(nil, chat.Event{Kind: chat.BlockStart, BlockKind: chat.ToolCall, Tool: &chat.ToolUse{ID: id, Name: "f"}}))
		if !strings.Contains(got, `{"type":"tool_use","id":"`+want+`","name":"f","input":{}}`) {
			t.Errorf("%s: %s", id, got)
		}
	}
}
