package parser_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

var families = map[string]parser.Family{
	"none":    {},
	"think":   parser.Detect("<think>", nil),
	"hermes":  parser.Detect("<think><tool_call>", nil),
	"harmony": parser.Detect("<|start|>assistant<|channel|>final<|message|>", nil),
}

var hermes = families["hermes"]

func TestWith(t *testing.T) {
	for _, tt := range []struct {
		tool, reasoning string
		thinks, calls   bool
		problem         string
	}{
		{"auto", "", true, true, ""},
		{"none", "auto", true, false, ""},
		{"hermes", "none", false, true, ""},
		{"qwen25", "Qwen3", true, true, ""},
		{"none", "none", false, false, ""},
		{"hermse", "auto", false, false, `unknown tool-call parser "hermse": want auto or one of `},
		{"auto", "hermes", false, false, `unknown reasoning parser "hermes": want auto or one of basic, deepseek-v4, `},
	} {
		f, err := hermes.With(tt.tool, tt.reasoning)
		if got := fmt.Sprint(err); (err != nil) != (tt.problem != "") || !strings.HasPrefix(got, tt.problem) {
			t.Errorf("With(%q, %q): %v, want %s", tt.tool, tt.reasoning, err, tt.problem)
		}
		if f.Thinks() != tt.thinks || f.Calls() != tt.calls {
			t.Errorf("With(%q, %q) thinks %v, calls %v", tt.tool, tt.reasoning, f.Thinks(), f.Calls())
		}
	}
}

func TestStartOf(t *testing.T) {
	for _, tt := range []struct {
		tail string
		want parser.Start
	}{
		{"<|im_start|>assistant\n", parser.StartNone},
		{"<|im_start|>assistant\n<think>", parser.StartReasoning},
		{"<|im_start|>assistant\n<think>\n", parser.StartReasoning},
		{"<|im_start|>assistant\n<think>\n\n</think>\n\n", parser.StartResponse},
		{"<think>a", parser.StartNone},
		{"", parser.StartNone},
	} {
		if got := hermes.StartOf(tt.tail); got != tt.want {
			t.Errorf("StartOf(%q) = %d, want %d", tt.tail, got, tt.want)
		}
	}
	for _, tt := range []struct {
		reasoning, tail string
		want            parser.Start
	}{
		{"mistral", "[/INST][THINK]", parser.StartReasoning},
		{"minimax_m3", "<mm:think>\n", parser.StartReasoning},
		{"minimax_m3", "<think>\n", parser.StartNone},
		{"kimi_k3", "<|open|>think<|sep|>", parser.StartReasoning},
		{"kimi_k3", "<|open|>think<|sep|><|close|>think<|sep|>", parser.StartResponse},
		{"gemma4", "<|turn>model\n<|channel>thought\n", parser.StartReasoning},
		{"gemma4", "<|turn>model\n<|channel>thought\n<channel|>", parser.StartResponse},
		{"gemma4", "<|turn>model\n", parser.StartNone},
		{"kimi", "◁think▷", parser.StartReasoning},
		{"none", "<think>", parser.StartNone},
	} {
		f, err := parser.Family{}.With("none", tt.reasoning)
		if got := f.StartOf(tt.tail); err != nil || got != tt.want {
			t.Errorf("%s: StartOf(%q) = %d, %v, want %d", tt.reasoning, tt.tail, got, err, tt.want)
		}
	}
	if got := (parser.Family{}).StartOf("<think>"); got != parser.StartNone {
		t.Errorf("plain text starts as %d", got)
	}
}

// A parser that was named is switched off by what a request says of thinking; one
// that the template showed is not, since the template hears it, too.
func TestThinksWith(t *testing.T) {
	on, off := new(true), new(false)
	for _, tt := range []struct {
		names    string
		controls parser.Controls
		want     bool
	}{
		{"kimi_k25 kimi_k3 nemotron3 nemotron_v3 nemotron_nano", parser.Controls{}, true},
		{"kimi_k25 kimi_k3 nemotron3 nemotron_v3 nemotron_nano", parser.Controls{Thinking: off}, false},
		{"kimi_k25 kimi_k3 nemotron3", parser.Controls{Mode: "chat"}, true},
		{"deepseek_v3 deepseek_v3_1", parser.Controls{}, false},
		{"deepseek_v3 deepseek_v3_1", parser.Controls{Thinking: on}, true},
		{"deepseek_v3 deepseek_v3_1", parser.Controls{Mode: "thinking"}, true},
		{"deepseek_v3 deepseek_v3_1", parser.Controls{Mode: "adaptive"}, false},
		{"deepseek_r1 deepseek_v3_2 deepseek_v4 minimax_m2", parser.Controls{}, true},
		{"deepseek_r1 deepseek_v3_2 deepseek_v4 minimax_m2", parser.Controls{Thinking: off}, false},
		{"deepseek_r1 deepseek_v3_2 deepseek_v4 minimax_m2", parser.Controls{Mode: "chat"}, false},
		{"deepseek_r1 minimax_m2", parser.Controls{Mode: "thinking", Effort: "none"}, true},
		{"gemma4", parser.Controls{}, false},
		{"gemma4", parser.Controls{Thinking: on}, true},
		{"mistral", parser.Controls{}, false},
		{"mistral", parser.Controls{Thinking: on, Effort: "none"}, false},
		{"mistral", parser.Controls{Effort: "high"}, true},
		{"minimax_m3", parser.Controls{Thinking: off}, true},
		{"minimax_m3", parser.Controls{Mode: "disabled"}, false},
		{"qwen3 glm45 basic gpt_oss step3 kimi granite nemotron_deci", parser.Controls{Thinking: off, Mode: "disabled"}, true},
		{"none", parser.Controls{Thinking: on}, false},
	} {
		for name := range strings.FieldsSeq(tt.names) {
			f, err := parser.Family{}.With("none", name)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.ThinksWith(tt.controls); got != tt.want {
				t.Errorf("%s with %+v: %v", name, tt.controls, got)
			}
		}
	}
	if !hermes.ThinksWith(parser.Controls{Thinking: off}) {
		t.Error("a template's own grammar is switched off")
	}
}

// Ids travel with the last byte of their piece, in order, each exactly once, and
// those of thinking are counted.
func TestIDs(t *testing.T) {
	p := parser.New(hermes, numbered(parser.Options{ToolsOn: true, ThinkOn: true}))
	var events []chat.Event
	for i, s := range []string{"<think>", "\n", "hm", "m", "\n", "</think>", "\n\n", "a", " <", "b", "", "<tool", "_call>", "\n", `{"name": "f", `, `"arguments": {`, `"x"`, `: 1}`, "}\n", "</tool_call>", "\n", ""} {
		events = p.Push(events, chat.Piece{Text: s, IDs: []uint32{uint32(i)}, Logprobs: []chat.Logprob{{ID: uint32(i)}}})
	}
	events, _ = p.Finish(events, chat.FinishStop)
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprintf("%s %q %v", kindNames[e.Kind], e.Text, e.IDs))
		if len(e.IDs) != len(e.Logprobs) {
			t.Errorf("%v: %d log probabilities", e, len(e.Logprobs))
		}
	}
	want := []string{
		`start "" [0 1]`, `thinking "hm" [2]`, `thinking "m" [3]`, `stop "" [4 5]`,
		`start "" [6]`, `text "a" [7]`, `text " " []`, `text "<" [8]`, `text "b" [9]`, `stop "" [10 11 12 13 14]`,
		`start "" []`, `args "{\"x\"" [15 16]`, `args ": 1}" [17]`, `stop "" [18 19]`, `dropped "" [20 21]`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := p.ReasoningTokens(); n != 4 {
		t.Errorf("%d ids were thinking, want 4", n)
	}
}

var kindNames = map[chat.EventKind]string{
	chat.BlockStart: "start", chat.TextDelta: "text", chat.ThinkingDelta: "thinking", chat.ArgsDelta: "args",
	chat.BlockStop: "stop", chat.Dropped: "dropped",
}

// Calls inside a thought are held until it is decided what they are; then a
// thousand times as many must not take a million times as long. These take a
// fifth of a second, and half a minute if each event touched all that wait.
func TestManyHeldCalls(t *testing.T) {
	const calls = 30_000
	p := parser.New(hermes, parser.Options{ToolsOn: true, ThinkOn: true})
	p.Push(nil, chat.Piece{Text: "<think>"})
	began := time.Now()
	for i := range calls {
		for j, s := range []string{"<tool_call>", `{"name"`, `: "f"}`, "</tool_call>"} {
			p.Push(nil, chat.Piece{Text: s, IDs: []uint32{uint32(4*i + j)}})
		}
	}
	events, reason := p.Finish(nil, chat.FinishStop)
	if n, _ := p.Calls(); n != calls || len(events) < 3*calls || reason != chat.FinishToolUse {
		t.Errorf("%d calls in %d events, %s", n, len(events), reason)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// Nor must they if they arrive at once, or if a model gives all of them one id.
func TestManyCallsAtOnce(t *testing.T) {
	const calls = 20_000
	for family, call := range map[string]string{
		"deepseek_v3": "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
		"kimi_k2":     "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
	} {
		p := parser.New(familyOf(t, family), parser.Options{ToolsOn: true})
		began := time.Now()
		p.Finish(p.Push(nil, chat.Piece{Text: strings.Repeat(call, calls)}), chat.FinishStop)
		if n, _ := p.Calls(); n != calls {
			t.Errorf("%s: %d calls", family, n)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%s: took %v", family, took)
		}
	}
}

func TestCalls(t *testing.T) {
	p := parser.New(hermes, parser.Options{ToolsOn: true, ThinkOn: true})
	for _, tt := range []struct {
		text      string
		completed int
		open      bool
	}{
		{"a", 0, false},
		{"<tool_call>", 0, true},
		{`{"name":"f","arguments":{`, 0, true},
		{`}`, 1, false}, // as soon as the arguments are complete
		{`}</tool_call>`, 1, false},
		{`<tool_call>[{"name":"f"},`, 2, false},
		{`{"name":"f"`, 2, true},
	} {
		p.Push(nil, chat.Piece{Text: tt.text})
		if n, open := p.Calls(); n != tt.completed || open != tt.open {
			t.Errorf("after %q: %d complete, open %v; want %d, %v", tt.text, n, open, tt.completed, tt.open)
		}
	}
}

// A plain delta costs no allocation.
func TestPlainTextDoesNotAllocate(t *testing.T) {
	p := parser.New(hermes, parser.Options{ToolsOn: true, ThinkOn: true})
	piece := chat.Piece{Text: "some words", IDs: []uint32{1, 2}}
	buf := make([]chat.Event, 0, 8)
	buf = p.Push(buf, piece)
	if n := testing.AllocsPerRun(100, func() { buf = p.Push(buf[:0], piece) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	waits := chat.Piece{Text: "a <", IDs: []uint32{3}}
	if n := testing.AllocsPerRun(100, func() { buf = p.Push(p.Push(buf[:0], waits), piece) }); n != 0 {
		t.Errorf("%v allocations for a bracket that waits", n)
	}
	buf = p.Push(buf[:0], piece)
	if len(buf) != 1 || buf[0].Text != piece.Text || len(buf[0].IDs) != 2 {
		t.Errorf("%+v", buf)
	}
}
