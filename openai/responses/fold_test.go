package responses_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses"
)

var (
	pieces = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"", "a", "\n\n", "data: ", "\u2028", "\u0085", "\"\\", "日本", "\x00\x1f", "😀", "{", `"input"`, `{"input":"`, `{"input": "a\`, `nb\u00`, `e9\ud83d`, `\ude00"`, `"}`, " ",
	}))
	kinds = []chat.Kind{chat.Text, chat.Thought, chat.ToolCall, chat.Refusal}
	ends  = []chat.FinishReason{chat.FinishStop, chat.FinishStopSequence, chat.FinishLength, chat.FinishToolUse, chat.FinishContentFilter, chat.FinishContext}
)

// anyCall draws a request for which an answer can have every form.
func anyCall(t *rapid.T) *responses.Call {
	members := []string{`"tools":[` + read + `,` + group + `,` + patch + `,{"type":"shell"}]`}
	for _, m := range []string{`"reasoning":{"summary":"auto"}`, `"include":["reasoning.encrypted_content","message.output_text.logprobs"],"top_logprobs":1`, `"background":true`} {
		if rapid.Bool().Draw(t, "member") {
			members = append(members, m)
		}
	}
	raw := rapid.SampledFrom([]responses.RawReasoning{"", responses.RawOff, responses.RawOpenAI, responses.RawOpenResponses}).Draw(t, "raw")
	body := `{"model":"m","input":"Hi",` + strings.Join(members, ",") + `}`
	c, err := responses.Decode([]byte(body), responses.Options{RawReasoning: raw})
	if err == nil {
		err = c.Resolve(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// anyAnswer draws the blocks of an answer.
func anyAnswer(t *rapid.T) []block {
	var blocks []block
	for i := range rapid.IntRange(0, 5).Draw(t, "blocks") {
		b := block{kind: rapid.SampledFrom(kinds).Draw(t, "kind"), pieces: rapid.SliceOfN(pieces, 0, 5).Draw(t, "pieces")}
		if b.kind == chat.ToolCall {
			name := rapid.SampledFrom([]string{"read", "mcp/read", "mcp/list", "apply_patch", "unknown", "shell"}).Draw(t, "name")
			b.tool = calls(fmt.Sprint("call_", i), name).tool
			b.truncated = rapid.Bool().Draw(t, "truncated")
			if name == "shell" && rapid.Bool().Draw(t, "well") {
				b.pieces = []string{`{"commands":`, `["ls"]}`}
			}
		}
		blocks = append(blocks, b)
	}
	return blocks
}

func withLogprobs(t *rapid.T, events []chat.Event) []chat.Event {
	for i := range events {
		for range rapid.IntRange(0, 2).Draw(t, "tokens") {
			l := chat.Logprob{ID: 1, Text: pieces.Draw(t, "token"), Logprob: rapid.SampledFrom([]float64{0, -1.5, math.Inf(-1), math.NaN()}).Draw(t, "logprob")}
			l.Top = []chat.Logprob{{Text: "x", Logprob: -1}, {Text: "y", Bytes: []byte{0xff}, Logprob: -2}}[:rapid.IntRange(0, 2).Draw(t, "top")]
			events[i].Logprobs = append(events[i].Logprobs, l)
		}
	}
	return events
}

// TestUnaryIsTheFoldedStream holds that whoever adds up the events as clients do
// has what a client that does not stream receives, member for member.
func TestUnaryIsTheFoldedStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		call := anyCall(t)
		events := append([]chat.Event{start(21)}, said(anyAnswer(t)...)...)
		events = withLogprobs(t, append(events, finish(rapid.SampledFrom(ends).Draw(t, "reason"), 30)))
		out := stream(call.Encoder(header), events, nil)
		got, err := accumulate(out)
		if err != nil {
			t.Fatal(err)
		}
		var want object
		body := unary(call.Encoder(header), events)
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("-unary +folded\n%s", d)
		}
	})
}

// TestItemsSayTheBlocks holds that there is one item for each block, in their
// order, and that it says what the block says.
func TestItemsSayTheBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		call, blocks := anyCall(t), anyAnswer(t)
		var o object
		if err := json.Unmarshal(unary(call.Encoder(header), answer(chat.FinishStop, blocks...)), &o); err != nil {
			t.Fatal(err)
		}
		items := o["output"].([]any)
		if len(items) != len(blocks) {
			t.Fatalf("%d items for %d blocks", len(items), len(blocks))
		}
		for i, b := range blocks {
			item, text := items[i].(object), strings.Join(b.pieces, "")
			if action, ok := item["action"]; ok {
				if d := cmp.Diff(object{"commands": []any{"ls"}, "timeout_ms": nil, "max_output_length": nil}, action); d != "" || b.truncated || text != `{"commands":["ls"]}` {
					t.Fatalf("%s became %s", text, action)
				}
				continue
			}
			if got := textOf(item); got != naive(b, text) {
				t.Fatalf("item %d says %q, block says %q", i, got, naive(b, text))
			}
		}
	})
}

// textOf returns what an item says, wherever that stands.
func textOf(item object) string {
	for _, name := range []string{"arguments", "input"} {
		if s, ok := item[name].(string); ok {
			return s
		}
	}
	parts := append(anys(item["content"]), anys(item["summary"])...)
	part := parts[0].(object)
	if s, ok := part["refusal"].(string); ok {
		return s
	}
	return part["text"].(string)
}

// naive returns what a block says, from its whole text.
func naive(b block, text string) string {
	switch {
	case b.kind == chat.ToolCall && b.tool.Name == "apply_patch":
		return naiveInput(text)
	case b.kind == chat.ToolCall && text == "" && !b.truncated:
		return "{}"
	}
	return text
}

// naiveInput is the unwrapping of a custom tool's arguments for those that are
// whole JSON, or nothing like it.
func naiveInput(args string) string {
	trimmed := strings.TrimLeft(args, " \t\r\n")
	rest, ok := cutTokens(trimmed, "{", `"input"`, ":", `"`)
	if !ok {
		return args
	}
	end := 0
	for end < len(rest) && rest[end] != '"' {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	return naiveUnescape(rest[:min(end, len(rest))], end < len(rest))
}

func cutTokens(s string, tokens ...string) (string, bool) {
	for _, token := range tokens {
		s = strings.TrimLeft(s, " \t\r\n")
		var ok bool
		if s, ok = strings.CutPrefix(s, token); !ok {
			return "", false
		}
	}
	return s, true
}

// naiveUnescape looks at the whole text at once. In one that was not closed, the
// beginning of an escape sequence at its end is nothing yet.
func naiveUnescape(s string, closed bool) string {
	var b strings.Builder
	for len(s) > 0 {
		if s[0] != '\\' {
			r, size := utf8.DecodeRuneInString(s)
			b.WriteRune(r)
			s = s[size:]
			continue
		}
		var text string
		for _, n := range []int{12, 6, 2} {
			if len(s) < n || n > 2 && (s[1] != 'u' || n == 12 && (s[6] != '\\' || s[7] != 'u')) {
				continue
			}
			if json.Unmarshal([]byte(`"`+s[:n]+`"`), &text) == nil && (n != 12 || utf8.RuneCountInString(text) == 1) {
				s = s[n:]
				break
			}
			text = ""
		}
		switch {
		case text == "\x00":
			b.WriteRune(utf8.RuneError)
		case text != "":
			b.WriteString(text)
		case !closed && (len(s) == 1 || s[1] == 'u' && len(s) < 6 && allHex(s[2:])):
			return b.String()
		default:
			b.WriteByte('\\')
			s = s[1:]
		}
	}
	return b.String()
}

func allHex(s string) bool { return strings.Trim(s, "0123456789abcdefABCDEF") == "" }

// TestEveryChunking holds that an answer is the same however its text is cut.
func TestEveryChunking(t *testing.T) {
	for _, tr := range transcripts {
		if tr.err != nil || tr.name == "logprobs" {
			continue
		}
		call := decode(t, tr.members, tr.options)
		want := unary(call.Encoder(header), tr.events)
		for _, size := range []int{1, 2, 3, 1 << 20} {
			events := rechunk(tr.events, size)
			if d := differ(t, want, mustAccumulate(t, stream(call.Encoder(header), events, nil))); d != "" {
				t.Errorf("%s, in pieces of %d: -want +got\n%s", tr.name, size, d)
			}
		}
	}
}

// rechunk cuts the text of each block into pieces of so many characters.
func rechunk(events []chat.Event, size int) []chat.Event {
	var out []chat.Event
	text := []rune{}
	for i, e := range events {
		if e.Kind != chat.TextDelta && e.Kind != chat.ThinkingDelta && e.Kind != chat.ArgsDelta && e.Kind != chat.RefusalDelta {
			out = append(out, e)
			continue
		}
		text = append(text, []rune(e.Text)...)
		if events[i+1].Kind == e.Kind {
			continue
		}
		for len(text) > 0 {
			n := min(size, len(text))
			e.Text = string(text[:n])
			out, text = append(out, e), text[n:]
		}
	}
	return out
}

func mustAccumulate(t testing.TB, stream []byte) object {
	t.Helper()
	o, err := accumulate(stream)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestFailures holds that a stream that fails anywhere ends well, with what was
// finished.
func TestFailures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		call := anyCall(t)
		events := answer(chat.FinishStop, anyAnswer(t)...)
		events = events[:rapid.IntRange(0, len(events)-1).Draw(t, "until")]
		o, err := accumulate(stream(call.Encoder(header), events, &engine.Error{Kind: engine.DeadlineExceeded}))
		if err != nil {
			t.Fatal(err)
		}
		if fault := o["error"].(object); fault["code"] != wire.CodeTimeout || fault["message"] == "" {
			t.Fatalf("error %v", fault)
		}
	})
}

// TestObjectAtAnyMoment holds that the object can be asked for between any two
// events, and then shows what has come so far.
func TestObjectAtAnyMoment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		call := anyCall(t)
		enc, stopped := call.Encoder(header), 0
		for _, e := range answer(chat.FinishStop, anyAnswer(t)...) {
			enc.AppendEvent(nil, e)
			var o object
			body := enc.AppendResponse(nil)
			if err := json.Unmarshal(body, &o); err != nil {
				t.Fatalf("%v in %s", err, body)
			}
			if err := check("response", "response", o); err != nil {
				t.Fatal(err)
			}
			if e.Kind == chat.BlockStop {
				stopped++
			}
			items := o["output"].([]any)
			for i, v := range items {
				item := v.(object)
				if err := check("item", item["type"].(string), item); err != nil {
					t.Fatal(err)
				}
				if want := map[bool]string{true: "completed", false: "in_progress"}[i < stopped]; item["status"] != want {
					t.Fatalf("item %d has status %v, want %s", i, item["status"], want)
				}
			}
			if len(items) < stopped {
				t.Fatalf("%d items after %d blocks", len(items), stopped)
			}
		}
	})
}
