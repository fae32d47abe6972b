package anthropic_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/envelope"
)

var box = new(envelope.Box)

// tb is what the checks below need of a test.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// accumulate reads a stream as the API's clients do, and holds its grammar: one
// message, blocks one after another with indices in order, one signature for each
// thought, and nothing behind the end. It returns the message.
func accumulate(t tb, stream string) map[string]any {
	t.Helper()
	var (
		message map[string]any
		block   map[string]any // that is open
		input   string
		signed  int
		delta   bool // the message has its end
		stopped bool
	)
	frames := strings.Split(stream, "\n\n")
	if frames[len(frames)-1] != "" {
		t.Fatalf("the stream breaks off: %q", frames[len(frames)-1])
	}
	for _, frame := range frames[:len(frames)-1] {
		name, data, ok := strings.Cut(frame, "\ndata: ")
		if !ok || !strings.HasPrefix(name, "event: ") || strings.ContainsAny(data, "\r\n\u2028\u2029") {
			t.Fatalf("a frame is %q", frame)
		}
		e := object(t, []byte(data))
		if e["type"] != strings.TrimPrefix(name, "event: ") {
			t.Fatalf("%s is called %s", e["type"], name)
		}
		if stopped || (message == nil) != (e["type"] == "message_start") {
			t.Fatalf("%s stands where it must not: %s", e["type"], stream)
		}
		switch e["type"] {
		case "message_start":
			message = e["message"].(map[string]any)
			if message["usage"].(map[string]any)["input_tokens"] == nil {
				t.Fatalf("no tokens in %s", data)
			}
		case "content_block_start":
			content := message["content"].([]any)
			if block != nil || delta || e["index"] != float64(len(content)) {
				t.Fatalf("%s begins out of order", data)
			}
			block, input, signed = e["content_block"].(map[string]any), "", 0
			message["content"] = append(content, block)
		case "content_block_delta":
			if block == nil || e["index"] != float64(len(message["content"].([]any))-1) {
				t.Fatalf("%s belongs to no open block", data)
			}
			if signed > 0 {
				t.Fatalf("%s stands behind the signature", data)
			}
			d := e["delta"].(map[string]any)
			kind := block["type"].(string)
			switch {
			case d["type"] == "text_delta" && kind == "text":
				block["text"] = block["text"].(string) + d["text"].(string)
			case d["type"] == "thinking_delta" && kind == "thinking":
				block["thinking"] = block["thinking"].(string) + d["thinking"].(string)
			case d["type"] == "signature_delta" && kind == "thinking":
				block["signature"] = d["signature"]
				signed++
			case d["type"] == "input_json_delta" && kind == "tool_use":
				input += d["partial_json"].(string)
			default:
				t.Fatalf("%s in a block of kind %s", data, kind)
			}
		case "content_block_stop":
			if block == nil || e["index"] != float64(len(message["content"].([]any))-1) {
				t.Fatalf("%s closes no open block", data)
			}
			switch block["type"] {
			case "thinking":
				if signed != 1 || block["signature"] == "" {
					t.Fatalf("%d signatures of %v", signed, block)
				}
			case "tool_use":
				block["input"] = parsed(input)
			}
			block = nil
		case "message_delta":
			if block != nil || delta {
				t.Fatalf("%s stands where it must not", data)
			}
			delta = true
			d := e["delta"].(map[string]any)
			if _, ok := d["stop_sequence"]; !ok || d["stop_reason"] == nil {
				t.Fatalf("%s says too little", data)
			}
			for k, v := range d {
				message[k] = v
			}
			for k, v := range e["usage"].(map[string]any) {
				message["usage"].(map[string]any)[k] = v
			}
		case "message_stop":
			if !delta {
				t.Fatalf("the message stops without an end")
			}
			stopped = true
		default:
			t.Fatalf("clients know no %s", e["type"])
		}
	}
	if !stopped {
		t.Fatalf("the stream does not stop: %s", stream)
	}
	return message
}

// parsed is what a client makes of the text of an input.
func parsed(input string) any {
	trimmed := strings.Trim(input, " \t\r\n")
	if trimmed == "" {
		return map[string]any{}
	}
	var v map[string]any
	if !jsontext.Value(trimmed).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) || json.Unmarshal([]byte(trimmed), &v) != nil {
		return map[string]any{"__invalid_json": strings.ToValidUTF8(input, "\uFFFD")}
	}
	return v
}

func object(t tb, data []byte) map[string]any {
	t.Helper()
	if !json.Valid(data) {
		t.Fatalf("%q is no JSON", data)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return m
}

// equal compares messages, of which the one may leave out what is null in the
// other.
func equal(a, b map[string]any) bool {
	return reflect.DeepEqual(withoutNulls(a), withoutNulls(b))
}

func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range v {
			if v != nil {
				out[k] = withoutNulls(v)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withoutNulls(v[i])
		}
		return out
	}
	return v
}

// texts are whole characters: that is what stages hand on.
var texts = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a", "\n\n", "data: ", "\u2028", "\"\\", "日本", "\x00\x1f", "😀", "event: ping"}))

var deltas = map[chat.Kind]chat.EventKind{chat.Text: chat.TextDelta, chat.Thought: chat.ThinkingDelta, chat.ToolCall: chat.ArgsDelta, chat.Refusal: chat.RefusalDelta}

// events draws the events of any answer that keeps the grammar of package chat.
func events(t *rapid.T) []chat.Event {
	usage := chat.Usage{Prompt: rapid.IntRange(0, 99).Draw(t, "prompt")}
	if rapid.Bool().Draw(t, "cached") {
		usage.Cached = new(rapid.IntRange(0, 120).Draw(t, "cached tokens"))
		usage.Written = new(rapid.IntRange(0, 120).Draw(t, "written tokens"))
	}
	out := []chat.Event{{Kind: chat.Start, Usage: usage}}
	for i := range rapid.IntRange(0, 5).Draw(t, "blocks") {
		kind := rapid.SampledFrom([]chat.Kind{chat.Text, chat.Thought, chat.ToolCall, chat.Refusal, chat.Opaque}).Draw(t, "kind")
		begin := chat.Event{Kind: chat.BlockStart, Index: i, BlockKind: kind}
		pieces := rapid.SliceOfN(texts, 0, 4).Draw(t, "pieces")
		if kind == chat.ToolCall {
			begin.Tool = &chat.ToolUse{ID: rapid.SampledFrom([]string{"call_1", "a1B2c3D4e", "x\"y"}).Draw(t, "id"), Name: texts.Draw(t, "name")}
			if rapid.IntRange(0, 9).Draw(t, "nameless") == 0 {
				begin.Tool = nil
			}
			if rapid.Bool().Draw(t, "valid") {
				pieces = []string{`{"path": `, `"` + rapid.StringMatching(`[a-z]*`).Draw(t, "path") + `", "n":`, ` 1.50}`}
			}
		}
		out = append(out, begin)
		for _, s := range pieces {
			delta := deltas[kind]
			if delta == 0 {
				delta = chat.TextDelta
			}
			out = append(out, chat.Event{Kind: delta, Index: i, Text: s})
			if rapid.IntRange(0, 9).Draw(t, "dropped") == 0 {
				out = append(out, chat.Event{Kind: chat.Dropped, Text: "junk"}, chat.Event{Kind: chat.UsageUpdate, Usage: usage})
			}
		}
		out = append(out, chat.Event{Kind: chat.BlockStop, Index: i})
	}
	if rapid.Bool().Draw(t, "reasoning") {
		usage.Reasoning = new(3)
	}
	usage.Output = rapid.IntRange(0, 99).Draw(t, "output")
	finish := chat.Finish{Reason: rapid.SampledFrom([]chat.FinishReason{
		chat.FinishStop, chat.FinishStopSequence, chat.FinishLength, chat.FinishToolUse, chat.FinishContentFilter, chat.FinishContext,
	}).Draw(t, "reason")}
	if finish.Reason == chat.FinishStopSequence {
		finish.StopText = texts.Draw(t, "stop")
	}
	out = append(out, chat.Event{Kind: chat.Finished, Finish: finish, Usage: usage})
	if rapid.IntRange(0, 9).Draw(t, "choices") == 0 { // which this API has not
		out = slices.Insert(out, 1, chat.Event{Kind: chat.Start, Choice: 1}, chat.Event{Kind: chat.BlockStart, Choice: 1, BlockKind: chat.Text},
			chat.Event{Kind: chat.BlockStop, Choice: 1}, chat.Event{Kind: chat.Finished, Choice: 1})
	}
	return out
}

// A stream adds up to the message that a client receives who does not stream.
func TestStreamIsMessage(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := generation{members: rapid.SampledFrom([]string{"", marked, `"thinking":{"type":"adaptive","display":"omitted"}`}).Draw(rt, "members")}
		drawn := events(rt)
		whole := object(rt, g.encoder(t).AppendAnswer(nil, fold(t, drawn)))
		if got := accumulate(rt, stream(g.encoder(t), drawn)); !equal(got, whole) {
			rt.Fatalf("the stream adds up to %v\nbut the message is %v", got, whole)
		}
		u := whole["usage"].(map[string]any)
		if sum := u["input_tokens"].(float64) + u["cache_read_input_tokens"].(float64) + u["cache_creation_input_tokens"].(float64); sum != float64(drawn[0].Usage.Prompt) {
			rt.Fatalf("the prompt of %d tokens has %v", drawn[0].Usage.Prompt, u)
		}
	})
}

// What a client has put together and sends back is what the model has said, block
// by block.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := generation{members: rapid.SampledFrom([]string{`"stream":true`, `"thinking":{"type":"adaptive","display":"omitted"}`}).Draw(rt, "members")}
		drawn := events(rt)
		said := fold(t, drawn)[0].Blocks
		for _, message := range []map[string]any{
			accumulate(rt, stream(g.encoder(t), drawn)),
			object(rt, g.encoder(t).AppendAnswer(nil, fold(t, drawn))),
		} {
			content, err := json.Marshal(message["content"])
			if err != nil {
				rt.Fatal(err)
			}
			body := talk(`{"role":"user","content":"Hi"},{"role":"assistant","content":` + string(content) + `},{"role":"user","content":"?"}`)
			turns := decode(t, body).Request.Turns
			if got, want := shape(turns[1].Blocks), shape(said); !slices.Equal(got, want) {
				rt.Fatalf("sent back %q\nsaid      %q", got, want)
			}
		}
	})
}

// shape is what blocks say. JSON stands as clients write it, and empty text and
// thoughts are none.
func shape(blocks []chat.Block) []string {
	var out []string
	for _, b := range blocks {
		s := strings.ReplaceAll(b.Text, "\x00", "\uFFFD")
		switch {
		case b.Kind == chat.Opaque, b.Kind == chat.ToolCall && (b.Use == nil || b.Use.Name == ""):
		case b.Use != nil:
			var v any
			args := strings.ReplaceAll(b.Use.Args, "\x00", "\uFFFD")
			if trimmed := strings.Trim(args, " \t\r\n"); trimmed == "" {
				args = "{}"
			} else if json.Unmarshal([]byte(args), &v) == nil && trimmed[0] == '{' {
				normal, _ := json.Marshal(v)
				args = string(normal)
			}
			out = append(out, strings.ReplaceAll(b.Use.Name, "\x00", "\uFFFD")+" "+args)
		case s != "" && b.Kind == chat.Refusal:
			out = append(out, "text "+s)
		case s != "":
			out = append(out, string(b.Kind)+" "+s)
		}
	}
	return out
}
