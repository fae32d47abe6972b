package openai_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai"
)

var update = flag.Bool("update", false, "write the transcripts in testdata anew")

var header = openai.Header{ID: "1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001", Model: "acme/chat-8b", Created: 1790000001}

// Short forms of events.
func start(choice, prompt int) chat.Event {
	return chat.Event{Kind: chat.Start, Choice: choice, Usage: chat.Usage{Prompt: prompt}}
}

func open(choice, index int, kind chat.Kind) chat.Event {
	return chat.Event{Kind: chat.BlockStart, Choice: choice, Index: index, BlockKind: kind}
}

func openTool(choice, index int, id, name string) chat.Event {
	e := open(choice, index, chat.ToolCall)
	e.Tool = &chat.ToolUse{ID: id, Name: name}
	return e
}

func delta(kind chat.EventKind, choice, index int, text string, logprobs ...chat.Logprob) chat.Event {
	e := chat.Event{Kind: kind, Choice: choice, Index: index, Text: text, Logprobs: logprobs}
	e.IDs = make([]uint32, max(1, len(logprobs)))
	for i, l := range logprobs {
		e.IDs[i] = l.ID
	}
	return e
}

func stop(choice, index int) chat.Event {
	return chat.Event{Kind: chat.BlockStop, Choice: choice, Index: index}
}

func finish(choice int, reason chat.FinishReason, usage chat.Usage) chat.Event {
	return chat.Event{Kind: chat.Finished, Choice: choice, Finish: chat.Finish{Reason: reason}, Usage: usage}
}

func token(id uint32, text string, logprob float64, top ...chat.Logprob) chat.Logprob {
	return chat.Logprob{ID: id, Text: text, Bytes: []byte(text), Logprob: logprob, Top: top}
}

// transcript is one answer as it goes over the wire.
type transcript struct {
	name       string
	completion bool
	members    string // of the request
	options    openai.Options
	events     []chat.Event
	err        error // ends the stream instead of a finish
}

var (
	plain = []chat.Event{
		start(0, 21), open(0, 0, chat.Text), delta(chat.TextDelta, 0, 0, "Rhi"), delta(chat.TextDelta, 0, 0, ""),
		delta(chat.TextDelta, 0, 0, "ne"), stop(0, 0), finish(0, chat.FinishStop, chat.Usage{Prompt: 21, Output: 3}),
	}
	likely = []chat.Event{
		start(0, 21), open(0, 0, chat.Text),
		delta(chat.TextDelta, 0, 0, "Rh", token(5, "Rh", -0.5, token(5, "Rh", -0.5), token(6, "El", -1.25))),
		delta(chat.TextDelta, 0, 0, "ein ü", token(7, "ein", -3, token(8, "ine", -0.125), token(9, "ode", -4)),
			chat.Logprob{ID: 10, Text: "\uFFFD", Bytes: []byte{' ', 0xc3}, Logprob: -1},
			chat.Logprob{ID: 11, Text: "\uFFFD", Bytes: []byte{0xbc}, Logprob: -2}),
		stop(0, 0),
		{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}, Usage: chat.Usage{Prompt: 21, Output: 5}, IDs: []uint32{2}, Logprobs: []chat.Logprob{token(2, "<|end|>", -0.01)}},
	}
	agentic = []chat.Event{
		start(0, 21), open(0, 0, chat.Thought), delta(chat.ThinkingDelta, 0, 0, "Two\n"), delta(chat.ThinkingDelta, 0, 0, "files."), stop(0, 0),
		open(0, 1, chat.Text), delta(chat.TextDelta, 0, 1, "I look."), stop(0, 1),
		openTool(0, 2, "call_a", "read"), delta(chat.ArgsDelta, 0, 2, `{"path":`), delta(chat.ArgsDelta, 0, 2, `"a"}`), stop(0, 2),
		{Kind: chat.Dropped, Text: "</junk>", Reason: "no block", IDs: []uint32{4}},
		openTool(0, 3, "call_b", "list"), stop(0, 3),
		finish(0, chat.FinishToolUse, chat.Usage{Prompt: 21, Output: 30, Cached: p(16), Reasoning: p(4)}),
	}
	tool = []chat.Event{
		start(0, 21), openTool(0, 0, "call_a", "read"), delta(chat.ArgsDelta, 0, 0, "{}"), stop(0, 0),
		finish(0, chat.FinishToolUse, chat.Usage{Prompt: 21, Output: 9}),
	}
)

const named = `"tools":[{"type":"function","function":{"name":"read"}}],"tool_choice":{"type":"function","function":{"name":"read"}}`

var transcripts = []transcript{
	{name: "chat_plain", events: plain},
	{name: "chat_usage", members: `"stream_options":{"include_usage":true}`, events: plain},
	{name: "chat_continuous_usage", members: `"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, events: agentic},
	{name: "chat_fingerprint", options: openai.Options{SystemFingerprint: "fp_1"}, events: plain},
	{name: "chat_empty", events: []chat.Event{start(0, 3), finish(0, chat.FinishLength, chat.Usage{Prompt: 3, Output: 1})}},
	{name: "chat_n2", members: `"n":2,"stream_options":{"include_usage":true}`, events: []chat.Event{
		start(0, 21), start(1, 21), open(1, 0, chat.Text), delta(chat.TextDelta, 1, 0, "B"), open(0, 0, chat.Text),
		delta(chat.TextDelta, 0, 0, "A"), stop(1, 0), finish(1, chat.FinishLength, chat.Usage{Output: 1}),
		delta(chat.TextDelta, 0, 0, "a"), stop(0, 0), finish(0, chat.FinishStopSequence, chat.Usage{Prompt: 21, Output: 2, Cached: p(16)}),
	}},
	{name: "chat_n2_continuous_usage", members: `"n":2,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, events: []chat.Event{
		start(1, 21), open(1, 0, chat.Text), delta(chat.TextDelta, 1, 0, "B"), start(0, 21), open(0, 0, chat.Text),
		delta(chat.TextDelta, 0, 0, "A"), stop(0, 0), finish(0, chat.FinishLength, chat.Usage{Prompt: 21, Output: 1}),
		stop(1, 0), finish(1, chat.FinishLength, chat.Usage{Output: 1}),
	}},
	{name: "chat_agentic", members: `"stream_options":{"include_usage":true}`, events: agentic},
	{name: "chat_reasoning_field", options: openai.Options{ReasoningField: "reasoning"}, events: agentic},
	{name: "chat_tool_first", events: tool},
	{name: "chat_named_tool", members: named, events: tool},
	{name: "chat_named_tool_stop", members: named, options: openai.Options{NamedToolStop: true}, events: tool},
	{name: "chat_dispatch", options: openai.Options{ToolDispatch: true, ReasoningDispatch: true}, events: agentic},
	{name: "chat_dispatch_asked", members: `"n":2,"nvext":{"extra_fields":["tool_call_dispatch"]}`, events: []chat.Event{
		start(0, 21), start(1, 21), open(1, 0, chat.Thought), delta(chat.ThinkingDelta, 1, 0, "A"), openTool(0, 0, "call_a", "read"), stop(1, 0),
		delta(chat.ArgsDelta, 0, 0, `{"a":"<b>"`), openTool(1, 1, "call_b", "list"), delta(chat.ArgsDelta, 1, 1, "{}"), delta(chat.ArgsDelta, 0, 0, "}"),
		stop(0, 0), finish(0, chat.FinishToolUse, chat.Usage{Prompt: 21, Output: 9}),
		{Kind: chat.BlockStop, Choice: 1, Index: 1, Truncated: true},
		finish(1, chat.FinishContext, chat.Usage{Output: 9}),
	}},
	{name: "chat_texts", events: []chat.Event{
		start(0, 21), open(0, 0, chat.Text), delta(chat.TextDelta, 0, 0, "I"), delta(chat.TextDelta, 0, 0, " look."), stop(0, 0),
		open(0, 1, chat.Text), stop(0, 1), open(0, 2, chat.Text), delta(chat.TextDelta, 0, 2, "Done"), delta(chat.TextDelta, 0, 2, "."), stop(0, 2),
		finish(0, chat.FinishStop, chat.Usage{Prompt: 21, Output: 9}),
	}},
	{name: "chat_refusal", events: []chat.Event{
		start(0, 3), open(0, 0, chat.Refusal), delta(chat.RefusalDelta, 0, 0, "No."), stop(0, 0), finish(0, chat.FinishContentFilter, chat.Usage{Prompt: 3, Output: 2}),
	}},
	{name: "chat_logprobs", members: `"logprobs":true,"top_logprobs":1`, events: likely},
	{name: "chat_logprobs_alone", members: `"logprobs":true`, events: likely},
	{name: "chat_logprobs_token_ids", members: `"logprobs":true,"top_logprobs":2,"return_tokens_as_token_ids":true`, events: likely},
	{name: "chat_logprobs_unasked", events: likely},
	{name: "chat_error", events: plain[:5], err: engine.Errorf(engine.Disconnected, "worker 7 at 10.0.0.7 is gone")},
	{name: "completion_plain", completion: true, members: `"stream_options":{"include_usage":true}`, events: plain},
	{name: "completion_echo", completion: true, members: `"echo":true,"logprobs":1`, events: []chat.Event{
		start(0, 2), open(0, 0, chat.Text),
		delta(chat.TextDelta, 0, 0, "Once", token(1, "On", nan), token(3, "ce", -2, token(4, "ly", -1))),
		delta(chat.TextDelta, 0, 0, " up", token(2, " up", -0.5, token(2, " up", -0.5))),
		stop(0, 0), finish(0, chat.FinishLength, chat.Usage{Prompt: 2, Output: 1}),
	}},
	{name: "completion_logprobs", completion: true, members: `"logprobs":2`, events: likely},
	{name: "completion_logprobs_token_ids", completion: true, members: `"logprobs":0,"return_tokens_as_token_ids":true`, events: likely},
}

func (tr *transcript) call(t *testing.T) *openai.Call {
	t.Helper()
	decode, input := openai.DecodeChat, `"messages":[{"role":"user","content":"Hi"}]`
	if tr.completion {
		decode, input = openai.DecodeCompletion, `"prompt":"Once"`
	}
	if tr.members != "" {
		input += "," + tr.members
	}
	c, err := decode([]byte(`{"model":"m","stream":true,`+input+`}`), tr.options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTranscripts compares streams, and the whole answers that say the same,
// with testdata byte for byte.
func TestTranscripts(t *testing.T) {
	for _, tr := range transcripts {
		t.Run(tr.name, func(t *testing.T) {
			call := tr.call(t)
			enc := call.Encoder(header)
			var stream []byte
			for _, e := range tr.events {
				stream = enc.AppendEvent(stream, e)
			}
			if tr.err != nil {
				golden(t, tr.name+".sse", openai.AppendErrorFrame(stream, wire.ErrorOf(tr.err, 0)))
				return
			}
			golden(t, tr.name+".sse", enc.AppendEnd(stream))
			golden(t, tr.name+".json", append(call.Encoder(header).AppendAnswer(nil, fold(t, tr.events)), '\n'))
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s:\n got %s\nwant %s", path, got, want)
	}
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
		t.Fatal(errors.Join(errors.New("the events are no valid stream"), err))
	}
	return answers
}
