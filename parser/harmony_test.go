package parser_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// A model that never ends a header does not keep its text to itself.
func TestHarmonyEndlessHeader(t *testing.T) {
	rest := strings.Repeat("word ", 1000)
	c := &testCase{family: families["harmony"], opts: parser.Options{ThinkOn: true}, reason: chat.FinishLength}
	for head, want := range map[string]string{
		"<|channel|>final ":             fmt.Sprintf("T %q", rest),
		"<|channel|>analysis ":          fmt.Sprintf("R %q", rest),
		"<|channel|>commentary to=a.b ": fmt.Sprintf("D malformed %q", "<|channel|>commentary to=a.b "+rest),
	} {
		text := head + rest
		want := []string{want, "= length"}
		if diff := cmp.Diff(want, parse(t, c, text)); diff != "" {
			t.Errorf("%s in one piece (-want +got):\n%s", head, diff)
		}
		for _, n := range []int{1, 7, 500, 1023, 1024, 1025} {
			if diff := cmp.Diff(want, parse(t, c, text[:n], text[n:])); diff != "" {
				t.Errorf("%s cut at %d (-want +got):\n%s", head, n, diff)
			}
		}
	}
	p := parser.New(c.family, c.opts)
	p.Push(nil, chat.Piece{Text: "<|channel|>final " + rest})
	if p.Held() > 0 {
		t.Errorf("%d bytes are held", p.Held())
	}
}

func TestHarmonyStartOf(t *testing.T) {
	f := families["harmony"]
	for tail, want := range map[string]parser.Start{
		"":                            parser.StartNone,
		"<|end|><|start|>assistant":   parser.StartNone,
		"<|message|>So":               parser.StartResponse,
		"Hello<|end|>":                parser.StartNone,
		"<|channel|>final<|message|>": parser.StartResponse,
		"<|start|>assistant<|channel|>analysis<|message|>":                                     parser.StartReasoning,
		"<|start|>assistant<|channel|>analysis<|message|>Well":                                 parser.StartReasoning,
		"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b": parser.StartResponse,
		"<|channel|>analysis<|message|>a<|end|><|start|>assistant":                             parser.StartNone,
	} {
		if got := f.StartOf(tail); got != want {
			t.Errorf("StartOf(%q) = %d, want %d", tail, got, want)
		}
	}
}

// Harmony is one grammar for both, and goes with no other.
func TestHarmonyWith(t *testing.T) {
	for _, tt := range []struct {
		tool, reasoning string
		thinks, calls   bool
		problem         string
	}{
		{"harmony", "gpt_oss", true, true, ""},
		{"harmony", "none", false, true, ""},
		{"none", "gpt_oss", true, false, ""},
		{"harmony", "qwen3", false, false, `parsers "harmony" for tool calls and "qwen3" for reasoning do not go together: with harmony goes gpt_oss, or none`},
		{"hermes", "gpt_oss", false, false, `parsers "hermes" for tool calls and "gpt_oss" for reasoning do not go together: with gpt_oss goes harmony, or none`},
	} {
		f, err := parser.Family{}.With(tt.tool, tt.reasoning)
		if err == nil && tt.problem != "" || err != nil && err.Error() != tt.problem {
			t.Errorf("With(%q, %q): %v, want %s", tt.tool, tt.reasoning, err, tt.problem)
		}
		if f.Thinks() != tt.thinks || f.Calls() != tt.calls {
			t.Errorf("With(%q, %q) thinks %v, calls %v", tt.tool, tt.reasoning, f.Thinks(), f.Calls())
		}
	}
	const text = `<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.f<|channel|>commentary<|message|>{}<|call|>`
	for reasoning, want := range map[string][]string{"none": {`T "a"`, `C f {}`, "= tool_use"}, "gpt_oss": {`R "a"`, `C f {}`, "= tool_use"}} {
		f, err := parser.Family{}.With("harmony", reasoning)
		if err != nil {
			t.Fatal(err)
		}
		c := &testCase{family: f, reason: chat.FinishStop, opts: parser.Options{ThinkOn: true, ToolsOn: true}}
		if diff := cmp.Diff(want, parse(t, c, text)); diff != "" {
			t.Errorf("reasoning %s (-want +got):\n%s", reasoning, diff)
		}
	}
}

// The ids of a header go with the block that it opens, and those of a marker with
// the block that it ends.
func TestHarmonyIDs(t *testing.T) {
	p := parser.New(families["harmony"], numbered(parser.Options{ToolsOn: true, ThinkOn: true}))
	var events []chat.Event
	for i, s := range []string{"<|channel|>", "analysis", "<|message|>", "hm", "m", "<|end|>", "<|start|>", "assistant", "<|channel|>", "comment", "ary", " to=", "functions", ".f", " ", "<|constrain|>", "json", "<|message|>", `{"x":`, `"<|`, `call|>`, `"}`, "<|call|>"} {
		events = p.Push(events, chat.Piece{Text: s, IDs: []uint32{uint32(i)}})
	}
	events, reason := p.Finish(events, chat.FinishStop)
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprintf("%s %q %v", kindNames[e.Kind], e.Text, e.IDs))
	}
	want := []string{
		`start "" [0 1 2]`, `thinking "hm" [3]`, `thinking "m" [4]`, `stop "" [5]`,
		`start "" [6 7 8 9 10 11 12 13 14 15 16 17]`, `args "{\"x\":" [18]`, `args "\"" []`, `args "<|call|>\"" [19 20]`, `args "}" [21]`, `stop "" [22]`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := p.ReasoningTokens(); n != 3 || reason != chat.FinishToolUse {
		t.Errorf("%d ids were thinking, want 3; reason %s", n, reason)
	}
}

func TestHarmonyCalls(t *testing.T) {
	p := parser.New(families["harmony"], parser.Options{ToolsOn: true, ThinkOn: true})
	for _, tt := range []struct {
		text      string
		completed int
		open      bool
	}{
		{"<|channel|>commentary to=functions.f<|message|>", 0, true},
		{`{"a":{`, 0, true},
		{`}}`, 1, false}, // as soon as the arguments are complete
		{"<|call|><|start|>assistant to=functions.g<|channel|>", 1, false},
		{"commentary<|message|>print(", 1, true},
		{"<|call|>", 2, false},
	} {
		p.Push(nil, chat.Piece{Text: tt.text})
		if n, open := p.Calls(); n != tt.completed || open != tt.open {
			t.Errorf("after %q: %d complete, open %v; want %d, %v", tt.text, n, open, tt.completed, tt.open)
		}
	}
}

// The library's own parser reads the same messages. What they mean is said here.
func TestHarmonyGolden(t *testing.T) {
	f, err := os.Open("testdata/harmony.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for sc := bufio.NewScanner(f); sc.Scan(); n++ {
		var g struct {
			Parts    []string
			Messages []struct{ Channel, Recipient, Text string }
			Streamed string
		}
		if err := json.Unmarshal(sc.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(g.Parts, "")
		want, reason := []string{}, "= stop"
		for i, m := range g.Messages {
			name, isCall := strings.CutPrefix(m.Recipient, "functions.")
			switch {
			case isCall && strings.TrimSpace(m.Text) == "":
				want = append(want, "C "+name+" {}")
			case isCall && i == len(g.Messages)-1 && g.Streamed == m.Text && !json.Valid([]byte(m.Text)):
				want = append(want, "C! "+name+" "+m.Text)
				continue
			case isCall:
				want = append(want, "C "+name+" "+m.Text)
			case m.Text == "":
			case m.Channel == "analysis" || m.Recipient == "python" || m.Recipient == "browser.search":
				want = append(want, fmt.Sprintf("R %q", m.Text))
			default:
				want = append(want, fmt.Sprintf("T %q", m.Text))
			}
			if isCall {
				reason = "= tool_use"
			}
		}
		c := &testCase{family: families["harmony"], reason: chat.FinishStop, opts: parser.Options{
			ThinkOn: true, ToolsOn: true, Tools: []chat.Tool{{Name: "f"}},
		}}
		if diff := cmp.Diff(append(want, reason), parse(t, c, text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", g.Parts, diff)
		}
	}
	if n < 50 {
		t.Errorf("%d generations", n)
	}
}
