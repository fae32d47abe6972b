package responses_test

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses"
)

var update = flag.Bool("update", false, "write the transcripts in testdata anew")

const (
	created = 1790000001
	ended   = 1790000009
)

var header = responses.Header{ID: "resp_00112233445566778899aabbccddeeff", Model: "acme/chat-8b", Created: created}

// Short forms of events.

func start(prompt int) chat.Event {
	return chat.Event{Kind: chat.Start, Usage: chat.Usage{Prompt: prompt}}
}

func finish(reason chat.FinishReason, output int) chat.Event {
	return chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: reason}, Usage: chat.Usage{Prompt: 21, Cached: p(16), Output: output, Reasoning: p(4)}}
}

func p(n int) *int { return &n }

var deltas = map[chat.Kind]chat.EventKind{
	chat.Text: chat.TextDelta, chat.Thought: chat.ThinkingDelta, chat.ToolCall: chat.ArgsDelta, chat.Refusal: chat.RefusalDelta,
}

// block is a block of an answer: a text that comes in pieces.
type block struct {
	kind      chat.Kind
	tool      chat.ToolUse
	pieces    []string
	truncated bool
}

// said makes the events of blocks, whose indices count up.
func said(blocks ...block) []chat.Event {
	var events []chat.Event
	for i, b := range blocks {
		begin := chat.Event{Kind: chat.BlockStart, Index: i, BlockKind: b.kind}
		if b.kind == chat.ToolCall {
			use := b.tool
			begin.Tool = &use
		}
		events = append(events, begin)
		for _, piece := range b.pieces {
			events = append(events, chat.Event{Kind: deltas[b.kind], Index: i, Text: piece, IDs: []uint32{7}})
		}
		events = append(events, chat.Event{Kind: chat.BlockStop, Index: i, Truncated: b.truncated})
	}
	return events
}

func answer(reason chat.FinishReason, blocks ...block) []chat.Event {
	events := append([]chat.Event{start(21)}, said(blocks...)...)
	return append(events, finish(reason, 30))
}

func words(pieces ...string) block   { return block{kind: chat.Text, pieces: pieces} }
func thought(pieces ...string) block { return block{kind: chat.Thought, pieces: pieces} }

// calls is a call of a tool, or of one in a namespace, as in mcp/read.
func calls(id, name string, pieces ...string) block {
	namespace, name := path.Split(name)
	use := chat.ToolUse{ID: id, Name: name, Namespace: strings.TrimSuffix(namespace, "/")}
	return block{kind: chat.ToolCall, tool: use, pieces: pieces}
}

func cut(b block) block {
	b.truncated = true
	return b
}

const (
	read  = `{"type":"function","name":"read","parameters":{"type":"object"}}`
	patch = `{"type":"custom","name":"apply_patch","description":"Edit files","format":{"type":"grammar","syntax":"lark","definition":"start: /.+/"}}`
	group = `{"type":"namespace","name":"mcp","description":"a server","tools":[{"type":"function","name":"read"},{"type":"function","name":"list"}]}`
)

const shells = `{"type":"local_shell"},{"type":"shell","environment":{"type":"local"}},{"type":"apply_patch"}`

// transcript is one answer as it goes over the wire.
type transcript struct {
	name    string
	members string // of the request
	options responses.Options
	events  []chat.Event
	err     error // ends the stream instead of a finish
}

var transcripts = []transcript{
	{name: "text", events: answer(chat.FinishStop, words("Rhi", "", "ne\n\"Elbe\""))},
	{name: "thinking_text", events: answer(chat.FinishStop, thought("Two\n", "rivers."), words("Rhine"))},
	{name: "summary_text", members: `"reasoning":{"effort":"high","summary":"auto"},"include":["reasoning.encrypted_content"]`, events: answer(chat.FinishStop, thought("Two\n", "rivers."), words("Rhine"))},
	{name: "encrypted_thinking", members: `"include":["reasoning.encrypted_content"]`, events: answer(chat.FinishStop, thought("Two\n", "rivers."), words("Rhine"))},
	{name: "raw_openai", options: responses.Options{RawReasoning: responses.RawOpenAI}, events: answer(chat.FinishStop, thought("Two\n", "rivers."), words("Rhine"))},
	{name: "raw_open_responses", options: responses.Options{RawReasoning: responses.RawOpenResponses}, events: answer(chat.FinishStop, thought("Two\n", "rivers."), words("Rhine"))},
	{name: "text_call", members: `"tools":[` + read + `]`, events: answer(chat.FinishToolUse, words("I look."), calls("call_a", "read", `{"path":`, `"a"}`))},
	{name: "call_call", members: `"tools":[` + read + `,` + group + `]`, events: answer(chat.FinishToolUse, calls("call_a", "read", `{}`), calls("call_b", "mcp/read", `{"path":"b"}`), calls("call_c", "mcp/list"))},
	{name: "interleaved", members: `"reasoning":{"summary":"detailed"},"tools":[` + read + `]`, events: answer(chat.FinishStop,
		thought("First."), calls("call_a", "read", `{"path":"a"}`), thought("Then."), calls("call_b", "read", `{"path":"b"}`), words("Both."))},
	{name: "truncated_text", members: `"max_output_tokens":30`, events: answer(chat.FinishLength, words("Rhi"))},
	{name: "truncated_thinking", members: `"reasoning":{"summary":"auto"}`, events: answer(chat.FinishLength, thought("Rhi"))},
	{name: "truncated_call", members: `"tools":[` + read + `]`, events: answer(chat.FinishLength, words("I look."), cut(calls("call_a", "read", `{"path":`)))},
	{name: "custom_call", members: `"tools":[` + patch + `]`, events: answer(chat.FinishToolUse, calls("call_a", "apply_patch", `{"in`, `put": "*** Begin`, ` Patch\n+\u00`, `e9 \"x\"\ud83d`, `\ude00`, `"`, `}`))},
	{name: "custom_calls", members: `"tools":[` + patch + `]`, events: answer(chat.FinishToolUse,
		calls("call_a", "apply_patch", `{"input":"a"}`), calls("call_b", "apply_patch", `b`), calls("call_c", "apply_patch", `{"input":"c"}`))},
	{name: "custom_call_bare", members: `"tools":[` + patch + `]`, events: answer(chat.FinishToolUse, calls("call_a", "apply_patch", "*** Begin", " Patch\n"))},
	{name: "truncated_custom_call", members: `"tools":[` + patch + `]`, events: answer(chat.FinishLength, cut(calls("call_a", "apply_patch", `{"input":"*** Begin\`)))},
	{name: "shells", members: `"tools":[` + shells + `]`, events: answer(chat.FinishToolUse,
		calls("call_a", "local_shell", `{"command": ["ls"],`, "\n", `"timeout_ms": 5}`), calls("call_b", "shell", `{"commands":["ls","pwd"]}`),
		calls("call_c", "apply_patch", `{"type":"update_file","path":"a","diff":"@@\n-a\n+b"}`))},
	{name: "shells_misused", members: `"tools":[` + shells + `]`, events: answer(chat.FinishLength,
		calls("call_a", "local_shell", `{"command": "ls"}`), cut(calls("call_b", "shell", `{"commands":["rm","-r`)))},
	{name: "empty", events: answer(chat.FinishStop)},
	{name: "refusal", events: answer(chat.FinishContentFilter, block{kind: chat.Refusal, pieces: []string{"No", "."}})},
	{name: "logprobs", members: `"top_logprobs":1,"include":["message.output_text.logprobs"]`, events: []chat.Event{
		start(21),
		{Kind: chat.BlockStart, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Text: "Rh", Logprobs: []chat.Logprob{{ID: 5, Text: "Rh", Bytes: []byte("Rh"), Logprob: -0.5, Top: []chat.Logprob{{ID: 5, Text: "Rh", Logprob: -0.5}, {ID: 6, Text: "El", Logprob: -1.25}}}}},
		{Kind: chat.TextDelta, Text: "ine", Logprobs: []chat.Logprob{{ID: 7, Text: "in", Logprob: -3}, {ID: 8, Text: "e", Logprob: -0.25}}},
		{Kind: chat.BlockStop, Logprobs: []chat.Logprob{{ID: 2, Text: "<|end|>", Logprob: -1}}},
		finish(chat.FinishStop, 4),
	}},
	{
		name: "echo", members: `"instructions":"Be\nkind.","max_output_tokens":99,"temperature":0.25,"top_p":0.5,"presence_penalty":1,"frequency_penalty":-1,
		"metadata":{"a":
			"b` + "\u2028" + `"},"tools":[` + read + `,{"type":"web_search","external_web_access":false},` + patch + `],
		"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"read"}]},"parallel_tool_calls":false,
		"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}},"verbosity":"low"},"reasoning":{"effort":"low","context":"all_turns"},
		"truncation":"auto","store":false,"service_tier":"flex","prompt_cache_key":"k","prompt_cache_retention":"24h","safety_identifier":"s","user":"u","max_tool_calls":3`,
		events: answer(chat.FinishStop, words("Rhine")),
	},
	{name: "failure", events: answer(chat.FinishStop, thought("Two."), words("Rhi"))[:6], err: engine.Errorf(engine.Disconnected, "worker 7 at 10.0.0.7 is gone")},
	{name: "overflow", err: &engine.Error{Kind: engine.InvalidArgument, Code: wire.CodeContextLength, Message: "This model's maximum context length is 4096 tokens."}},
	{name: "background", members: `"background":true`, events: answer(chat.FinishStop, words("Rhine"))},
}

func decode(t testing.TB, members string, o responses.Options) *responses.Call {
	t.Helper()
	body := `{"model":"m","stream":true,"input":"Hi"`
	if members != "" {
		body += "," + members
	}
	c, err := responses.Decode([]byte(body+"}"), o)
	if err == nil {
		err = c.Resolve(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stream is the whole stream of an answer.
func stream(enc *responses.Encoder, events []chat.Event, err error) []byte {
	out := enc.AppendOpening(nil)
	for _, e := range events {
		out = enc.AppendEvent(out, e)
	}
	if err != nil {
		return enc.AppendFailure(out, wire.ErrorOf(err, 0))
	}
	return enc.AppendEnd(out, ended)
}

// unary is the answer of a client that does not stream.
func unary(enc *responses.Encoder, events []chat.Event) []byte {
	for _, e := range events {
		enc.AppendEvent(nil, e)
	}
	enc.Complete(ended)
	return enc.AppendResponse(nil)
}

// TestTranscripts compares streams, and the objects that say the same, with
// testdata byte for byte.
func TestTranscripts(t *testing.T) {
	for _, tr := range transcripts {
		t.Run(tr.name, func(t *testing.T) {
			call := decode(t, tr.members, tr.options)
			got := stream(call.Encoder(header), tr.events, tr.err)
			golden(t, tr.name+".sse", got)
			whole, err := accumulate(got)
			if err != nil {
				t.Fatal(err)
			}
			if tr.err != nil {
				return
			}
			object := unary(call.Encoder(header), tr.events)
			if d := differ(t, object, whole); d != "" {
				t.Errorf("-unary +accumulated\n%s", d)
			}
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s:\n got %s\nwant %s", file, got, want)
	}
}

// TestCompleteCallEndsAtOnce holds that whoever runs tools can begin with a call
// before anything of the next one has come.
func TestCompleteCallEndsAtOnce(t *testing.T) {
	for _, tools := range []string{read, strings.Replace(patch, "apply_patch", "read", 1)} {
		enc := decode(t, `"tools":[`+tools+`]`, responses.Options{}).Encoder(header)
		var out []byte
		for _, e := range append([]chat.Event{start(1)}, said(calls("call_a", "read", `{"input":"x"}`))...) {
			out = enc.AppendEvent(out, e)
		}
		if !strings.Contains(string(out), "event: response.output_item.done\n") {
			t.Errorf("the call has not ended in\n%s", out)
		}
	}
}

// TestDropped holds that what the parser had to drop is in no answer.
func TestDropped(t *testing.T) {
	enc := decode(t, "", responses.Options{}).Encoder(header)
	if out := enc.AppendEvent(nil, chat.Event{Kind: chat.Dropped, Text: "</junk>"}); len(out) > 0 {
		t.Errorf("got %s", out)
	}
}

// TestReplay holds that an encoder of the same header gives the same stream
// again, from any event on.
func TestReplay(t *testing.T) {
	call := decode(t, "", responses.Options{})
	events := answer(chat.FinishStop, thought("a"), words("b", "c"))
	first, again := stream(call.Encoder(header), events, nil), stream(call.Encoder(header), events, nil)
	if string(first) != string(again) {
		t.Fatalf("first\n%s\nthen\n%s", first, again)
	}
	enc := call.Encoder(header)
	next := enc.Next()
	for _, e := range events {
		frames := enc.AppendEvent(nil, e)
		for frame := range strings.SplitSeq(strings.TrimSuffix(string(frames), "\n\n"), "\n\n") {
			if frame == "" {
				continue
			}
			if !strings.Contains(frame, fmt.Sprintf(`"sequence_number":%d,`, next)) {
				t.Fatalf("want event %d, got %s", next, frame)
			}
			next++
		}
		if enc.Next() != next {
			t.Fatalf("Next is %d, want %d", enc.Next(), next)
		}
	}
}
