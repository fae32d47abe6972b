package parser_test

import (
	"testing"

	"github.com/dynago/dynago/parser"
)

func TestDetect(t *testing.T) {
	for _, tt := range []struct{ template, tool, reasoning string }{
		{"", "none", "none"},
		{"{{ messages[0].content }}", "none", "none"},
		{`{% if think %}<think>\n\n</think>{% endif %}`, "none", "basic"},
		{`{{ content.split("</think>") }}`, "none", "basic"},
		{`<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>`, "hermes", "none"},
		{`<think>…</think><tool_call>\n{"name": `, "hermes", "qwen3"},
		{`<think>…</think><tool_call>\n<function=name>`, "qwen3_coder", "qwen3"},
		{`<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key> <think>`, "glm47", "glm45"},
		{`<minimax:tool_call>\n<invoke name="… <think>`, "minimax_m2", "minimax_m2"},
		{`]<]minimax[>[<tool_call> <mm:think>`, "minimax_m3", "minimax_m3"},
		{`<tool_call><invoke name=`, "none", "none"},
		{`<｜DSML｜function_calls> <think>`, "deepseek_v3_2", "deepseek_v3_2"},
		{`<｜DSML｜tool_calls> <think>`, "deepseek_v4", "deepseek_v4"},
		{"<｜tool▁calls▁begin｜>…```json</think>", "deepseek_v3", "deepseek_r1"},
		{"<｜tool▁calls▁begin｜>…<think>", "deepseek_v3", "deepseek_v3_1"},
		{`<|tool_calls_section_begin|> <think>`, "kimi_k2", "kimi_k25"},
		{`<|open|>tools<|sep|><|close|> <|open|>think<|sep|>`, "kimi_k3", "kimi_k3"},
		{`[TOOL_CALLS] [THINK]`, "mistral", "mistral"},
		{`<|tool_call>call:f <|channel>`, "gemma4", "gemma4"},
		{`<TOOLCALL> <think>`, "nemotron_deci", "nemotron_deci"},
		{`<tool_calls>`, "jamba", "none"},
		{`functools[`, "phi4", "none"},
		{`<|python_start|>`, "pythonic", "none"},
		{`<|python_tag|>`, "llama3_json", "none"},
		{`<|python_tag|> <function=f>{…}</function>`, "none", "none"},
		{`Environment: ipython … "parameters"`, "llama3_json", "none"},
		{`Here is my thought process: …`, "none", "granite"},
		{"◁think▷", "none", "kimi"},
		{"<|start|>assistant<|channel|>final<|message|>", "harmony", "gpt_oss"},
		{"<|content_invoke_tool_json|>", "inkling", "inkling"},
		{`<atem:invoke name="f">`, "muse", "muse"},
	} {
		f := parser.Detect(tt.template, nil)
		if f.ToolParser() != tt.tool || f.ReasoningParser() != tt.reasoning {
			t.Errorf("Detect(%q) = %s and %s, want %s and %s", tt.template, f.ToolParser(), f.ReasoningParser(), tt.tool, tt.reasoning)
		}
	}
}

// Where the template tells nothing, the vocabulary may.
func TestDetectByTokens(t *testing.T) {
	for _, tt := range []struct{ template, token, tool, reasoning string }{
		{"", "[TOOL_CALLS]", "mistral", "none"},
		{"", "<|tool_calls_section_begin|>", "kimi_k2", "none"},
		{"", "｜DSML｜", "deepseek_v4", "none"},
		{"", "<tool_call>", "none", "none"}, // of many dialects
		{"<tool_call>", "[TOOL_CALLS]", "hermes", "none"},
		{"<tool_call>", "<think>", "hermes", "qwen3"},
	} {
		f := parser.Detect(tt.template, func(text string) bool { return text == tt.token })
		if f.ToolParser() != tt.tool || f.ReasoningParser() != tt.reasoning {
			t.Errorf("%q with a token %s: %s and %s, want %s and %s", tt.template, tt.token, f.ToolParser(), f.ReasoningParser(), tt.tool, tt.reasoning)
		}
	}
}

// What was found in a template begins where the template says, not where such
// models usually do.
func TestDetectedFamiliesAreNotForced(t *testing.T) {
	found := parser.Detect("<｜tool▁calls▁begin｜>…<think>", nil)
	named, err := found.With("auto", "deepseek_v3_1")
	if err != nil {
		t.Fatal(err)
	}
	for f, want := range map[parser.Family]string{found: `T "a"`, named: `R "a"`} {
		c := &testCase{family: f, opts: parser.Options{ThinkOn: true}}
		if got := parse(t, c, "a"); got[0] != want {
			t.Errorf("%s, want %s", got[0], want)
		}
	}
	if !found.ThinksWith(parser.Controls{}) || named.ThinksWith(parser.Controls{}) {
		t.Error("switched as if the other had been named")
	}
}
