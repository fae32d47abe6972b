package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai"
)

var nan = math.NaN()

// TestUnaryIsTheFoldedStream holds that whoever adds up the chunks as SDKs do
// has what a client that does not stream receives, member for member.
func TestUnaryIsTheFoldedStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prompts := 1
		n := rapid.IntRange(1, 3).Draw(t, "n")
		completion := rapid.Bool().Draw(t, "completion")
		logprobs := rapid.Bool().Draw(t, "logprobs")
		members := fmt.Sprintf(`"model":"m","stream":true,"n":%d,"return_tokens_as_token_ids":%v,"stream_options":{"include_usage":true,"continuous_usage_stats":%v}`,
			n, rapid.Bool().Draw(t, "ids"), rapid.Bool().Draw(t, "continuous"))
		decode := openai.DecodeChat
		if completion {
			decode = openai.DecodeCompletion
			prompts = rapid.IntRange(1, 2).Draw(t, "prompts")
			members += `,"prompt":["a"` + strings.Repeat(`,"b"`, prompts-1) + `]`
			if logprobs {
				members += `,"logprobs":2`
			}
		} else {
			members += `,"messages":[{"role":"user","content":"a"}]`
			if logprobs {
				members += `,"logprobs":true,"top_logprobs":2`
			}
		}
		call, err := decode([]byte("{"+members+"}"), openai.Options{})
		if err != nil {
			t.Fatal(err)
		}
		events := answer(t, call.Choices(), n, logprobs, completion)

		enc := call.Encoder(header)
		var stream []byte
		for _, e := range events {
			before := len(stream)
			stream = enc.AppendEvent(stream, e)
			if chunk := stream[before:]; len(chunk) > 0 && (!bytes.HasPrefix(chunk, []byte("data: {")) || !bytes.HasSuffix(chunk, []byte("}\n\n"))) {
				t.Fatalf("%q is not whole frames", chunk)
			}
		}
		stream = enc.AppendEnd(stream)
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
		var unary map[string]any
		body := call.Encoder(header).AppendAnswer(nil, answers)
		if err := json.Unmarshal(body, &unary); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if d := cmp.Diff(unary, accumulate(t, stream, completion)); d != "" {
			t.Fatalf("-unary +folded\n%s\nstream:\n%s", d, stream)
		}
	})
}

// accumulate adds up a stream as a client does. It knows the wire alone.
func accumulate(t *rapid.T, stream []byte, completion bool) map[string]any {
	frames := strings.Split(strings.TrimSuffix(string(stream), "\n\n"), "\n\n")
	if frames[len(frames)-1] != "data: [DONE]" {
		t.Fatalf("the stream ends with %q", frames[len(frames)-1])
	}
	var all map[string]any
	var choices []any
	finished := map[int]bool{}
	for _, frame := range frames[:len(frames)-1] {
		data, ok := strings.CutPrefix(frame, "data: ")
		if !ok || strings.ContainsAny(data, "\r\n\u2028\u2029") {
			t.Fatalf("%q is not one line of data", frame)
		}
		var chunk map[string]any
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		list := chunk["choices"].([]any)
		if len(list) == 0 {
			// Nothing but usage follows the finishes.
			all = chunk
			continue
		}
		if all != nil {
			t.Fatalf("%s comes after the usage", data)
		}
		for _, v := range list {
			c := v.(map[string]any)
			i := int(c["index"].(float64))
			for i >= len(choices) {
				choices = append(choices, map[string]any{"index": float64(len(choices)), "logprobs": nil})
			}
			if finished[i] {
				t.Fatalf("choice %d goes on after its finish: %s", i, data)
			}
			sum := choices[i].(map[string]any)
			if completion {
				sum["text"] = text(sum["text"]) + text(c["text"])
			} else {
				addDelta(t, sum, c["delta"].(map[string]any))
			}
			if c["finish_reason"] != nil {
				sum["finish_reason"], finished[i] = c["finish_reason"], true
			}
			if l, ok := c["logprobs"].(map[string]any); ok {
				sum["logprobs"] = addLists(sum["logprobs"], l)
			}
		}
	}
	all["choices"] = choices
	if !completion {
		all["object"] = "chat.completion"
	}
	return all
}

func addDelta(t *rapid.T, sum, delta map[string]any) {
	m, ok := sum["message"].(map[string]any)
	if !ok {
		m = map[string]any{"content": nil}
		sum["message"] = m
	}
	if _, has := delta["role"]; has == ok {
		t.Fatalf("the role stands in %v, after %v", delta, m)
	}
	for key, v := range delta {
		switch key {
		case "role":
			m[key] = v
		case "tool_calls":
			for _, v := range v.([]any) {
				addCall(t, m, v.(map[string]any))
			}
		default:
			m[key] = text(m[key]) + v.(string)
		}
	}
}

func addCall(t *rapid.T, m, call map[string]any) {
	calls, _ := m["tool_calls"].([]any)
	i := int(call["index"].(float64))
	delete(call, "index")
	switch {
	case i == len(calls):
		if call["id"] == "" || call["type"] != "function" {
			t.Fatalf("a call begins with %v", call)
		}
		m["tool_calls"] = append(calls, call)
	case i == len(calls)-1:
		if len(call) != 1 {
			t.Fatalf("a call goes on with %v", call)
		}
		f := calls[i].(map[string]any)["function"].(map[string]any)
		f["arguments"] = text(f["arguments"]) + call["function"].(map[string]any)["arguments"].(string)
	default:
		t.Fatalf("call %d comes after %d calls", i, len(calls))
	}
}

// addLists appends list to list, member by member.
func addLists(sum any, more map[string]any) any {
	s, ok := sum.(map[string]any)
	if !ok {
		return more
	}
	for key, v := range more {
		if list, ok := v.([]any); ok {
			s[key] = append(s[key].([]any), list...)
		}
	}
	return s
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// answer draws the events of a valid answer of several choices, interleaved. n
// of them belong to each prompt.
func answer(t *rapid.T, choices, n int, logprobs, completion bool) []chat.Event {
	queues := make([][]chat.Event, choices)
	for i := range queues {
		queues[i] = oneChoice(t, i, i%n == 0, logprobs, completion)
	}
	var events []chat.Event
	for left := choices; left > 0; {
		i := rapid.IntRange(0, choices-1).Draw(t, "turn")
		if len(queues[i]) == 0 {
			continue
		}
		events = append(events, queues[i][0])
		if queues[i] = queues[i][1:]; len(queues[i]) == 0 {
			left--
		}
	}
	return events
}

var (
	pieces = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a", "\n\n", "data: ", "\u2028", "\xff", "\"\\", "日本", "\x00\x1f", "😀"}))
	kinds  = []chat.Kind{chat.Text, chat.Thought, chat.ToolCall, chat.Refusal}
	deltas = map[chat.Kind]chat.EventKind{chat.Text: chat.TextDelta, chat.Thought: chat.ThinkingDelta, chat.ToolCall: chat.ArgsDelta, chat.Refusal: chat.RefusalDelta}
)

func oneChoice(t *rapid.T, choice int, first, logprobs, completion bool) []chat.Event {
	usage := chat.Usage{}
	if first {
		usage.Prompt = 20
		if rapid.Bool().Draw(t, "cached") {
			usage.Cached = p(16)
		}
	}
	events := []chat.Event{{Kind: chat.Start, Usage: chat.Usage{Prompt: 20, Cached: usage.Cached}}}
	for i := range rapid.IntRange(0, 4).Draw(t, "blocks") {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		if completion {
			kind = chat.Text
		}
		begin := chat.Event{Kind: chat.BlockStart, Index: i, BlockKind: kind}
		if kind == chat.ToolCall {
			begin.Tool = &chat.ToolUse{ID: fmt.Sprintf("call_%d", i), Name: pieces.Draw(t, "name")}
		}
		events = append(events, begin)
		for range rapid.IntRange(0, 4).Draw(t, "deltas") {
			events = append(events, chat.Event{Kind: deltas[kind], Index: i, Text: pieces.Draw(t, "text")})
		}
		events = append(events, chat.Event{Kind: chat.BlockStop, Index: i})
		if rapid.Bool().Draw(t, "dropped") {
			events = append(events, chat.Event{Kind: chat.Dropped, Text: "junk"})
		}
	}
	if rapid.Bool().Draw(t, "reasoning") {
		usage.Reasoning = p(3)
	}
	events = append(events, chat.Event{Kind: chat.Finished, Finish: chat.Finish{
		Reason: rapid.SampledFrom([]chat.FinishReason{chat.FinishStop, chat.FinishStopSequence, chat.FinishLength, chat.FinishToolUse, chat.FinishContentFilter}).Draw(t, "reason"),
	}})
	for i := range events {
		e := &events[i]
		e.Choice = choice
		for range rapid.IntRange(0, 2).Draw(t, "tokens") {
			usage.Output++
			e.IDs = append(e.IDs, uint32(usage.Output))
			if logprobs {
				e.Logprobs = append(e.Logprobs, logprob(t, 2))
			}
		}
	}
	events[len(events)-1].Usage = usage
	return events
}

func logprob(t *rapid.T, depth int) chat.Logprob {
	l := chat.Logprob{
		ID: rapid.Uint32Range(0, 9).Draw(t, "id"), Text: pieces.Draw(t, "token"),
		Logprob: rapid.SampledFrom([]float64{0, -1.5, -1e-9, -4e20, math.Inf(-1), nan}).Draw(t, "logprob"),
	}
	if rapid.Bool().Draw(t, "bytes") {
		l.Bytes = []byte(l.Text)
	}
	if depth > 1 {
		for range rapid.IntRange(0, 3).Draw(t, "top") {
			l.Top = append(l.Top, logprob(t, depth-1))
		}
	}
	return l
}

// TestStrings holds that a string survives our escaping and unescaping as it
// does that of the JSON library, on both ways.
func TestStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(pieces, rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		checkString(t, s)
	})
}
