package parser_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// places are beginnings of answers behind which a reader waits for what follows.
var places = []struct {
	family, text string
	mode         parser.Mode
}{
	{"hermes+qwen3", "<think>", 0},
	{"hermes+qwen3", "<tool_call>", 0},
	{"hermes+qwen3", `<tool_call>{"name":"f","arguments":{"a":1}}`, 0},
	{"hermes+qwen3", `{"name"`, 0},
	{"none", "", parser.ModeJSON},
	{"none", "[", parser.ModeCalls},
	{"none", `[{"name":"f","parameters":{}}`, parser.ModeCalls},
	{"none", "{", parser.ModeArgs},
	{"none", `{"name":`, parser.ModeArgs},
	{"none", `{"a":1}`, parser.ModeArgs},
	{"qwen3_coder", "<tool_call><function=f>", 0},
	{"qwen3_coder", "<function=f><parameter=s>x</parameter>", 0},
	{"qwen3_coder", "<function=f><parameter=s>x</function>", 0},
	{"glm47", "f", 0},
	{"glm47", "<tool_call>f<arg_key>s</arg_key><arg_value>x</arg_value>", 0},
	{"minimax_m2", `<invoke name="f"><parameter name="s">x</parameter>`, 0},
	{"minimax_m3", ns + "<tool_call>" + ns + `<invoke name="f">` + ns + "<s>x" + ns + "</s>", 0},
	{"deepseek_v4", `<｜DSML｜invoke name="f"><｜DSML｜parameter name="s" string="true">x</｜DSML｜parameter>`, 0},
	{"deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}", 0},
	{"kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>f", 0},
	{"mistral", "[TOOL_CALLS]f", 0},
	{"mistral", "[TOOL_CALLS]f[CALL_ID]x", 0},
	{"mistral", `[TOOL_CALLS][{"name":"f","arguments":{}}]`, 0},
	{"llama3_json", "{", 0},
	{"llama3_json", `{"name":"f","parameters":{}}`, 0},
	{"llama3_json", `{"name":"f","parameters":{}};`, 0},
	{"nemotron_deci", "[", 0},
	{"nemotron_deci", "[{", 0},
	{"nemotron_deci", `[{"name":"f","arguments":{}}]`, 0},
	{"phi4", `functools[{"name":"f","arguments":{}}]`, 0},
	{"pythonic", "[f(s", 0},
	{"pythonic", "[f()", 0},
	{"gemma4+gemma4", "<|tool_call>call:f{}", 0},
	{"gemma4+gemma4", "<|channel>", 0},
	{"harmony+gpt_oss", "<|channel|>commentary to=functions.f", 0},
	{"inkling", "<|message_model|>f<|content_invoke_tool_json|>", 0},
	{"kimi_k3", `<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="s" type="string"<|sep|>x<|close|>argument<|sep|>`, 0},
	{"muse", "<|start|>assistant to=f<|message|>", 0},
}

// Models that are lost write white space without end. It is not waited for what
// follows it for ever, because what waits is read again with every piece.
func TestBlanksWithoutEnd(t *testing.T) {
	const most = 4096
	for _, place := range places {
		for _, blank := range []string{" ", "\n"} {
			p := parser.New(familyOf(t, place.family), parser.Options{
				ToolsOn: true, ThinkOn: true, Mode: place.mode, Named: "f", Tools: []chat.Tool{{Name: "f"}},
			})
			buf := p.Push(nil, chat.Piece{Text: place.text})
			for range 300 {
				if buf = p.Push(buf[:0], chat.Piece{Text: strings.Repeat(blank, 32)}); p.Again() > most {
					t.Errorf("%s: behind %q and many %q, %d bytes are read again", place.family, place.text, blank, p.Again())
					break
				}
			}
		}
	}
}

// How much is too much does not depend on how the text is cut.
func TestBlanksInAnyCut(t *testing.T) {
	for _, place := range places {
		c := &testCase{family: familyOf(t, place.family), reason: chat.FinishStop}
		c.opts = parser.Options{ToolsOn: true, ThinkOn: true, Mode: place.mode, Named: "f", Tools: []chat.Tool{{Name: "f"}}}
		for _, n := range []int{1022, 1023, 1024, 1025, 1026, 3000} {
			for _, rest := range []string{"", "x", `{"a":1}`, `"name":"f","parameters":{}}`, "</function>", "<arg_key>s</arg_key>"} {
				text := place.text + strings.Repeat(" ", n) + rest
				want := parse(t, c, text)
				for _, size := range []int{1, 7, 1000, 1025} {
					var cut []string
					for from := 0; from < len(text); from += size {
						cut = append(cut, text[from:min(from+size, len(text))])
					}
					if diff := cmp.Diff(want, parse(t, c, cut...)); diff != "" {
						t.Errorf("%s: %q, %d blanks and %q in pieces of %d (-whole +cut):\n%s", place.family, place.text, n, rest, size, diff)
						break
					}
				}
			}
		}
	}
}
