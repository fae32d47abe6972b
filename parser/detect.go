package parser

import (
	"strings"

	"github.com/dynago/dynago/harmony"
)

// sign is what a chat template or a vocabulary shows of a grammar.
type sign struct {
	// template are texts that a template must have all of, or else it is not this
	// grammar; unless are texts that it must not have.
	template []string
	unless   []string
	// token alone tells the grammar, if the template does not tell of any.
	token string

	name string
}

// callSigns tell the tool-call grammar. The first that fits counts, so that a
// grammar stands before those whose signs it has, too.
var callSigns = []sign{
	{template: []string{"<|open|>", "<|sep|>", "<|close|>"}, token: "<|end_of_msg|>", name: "kimi_k3"},
	{template: []string{"<|content_invoke_tool_json|>"}, token: "<|content_invoke_tool_json|>", name: "inkling"},
	{template: []string{"<atem:"}, name: "muse"},
	{template: []string{"｜DSML｜", "function_calls"}, unless: []string{"｜tool_calls"}, name: "deepseek_v3_2"},
	{template: []string{"｜DSML｜"}, token: "｜DSML｜", name: "deepseek_v4"},
	{template: []string{"<|tool_calls_section_begin|>"}, token: "<|tool_calls_section_begin|>", name: "kimi_k2"},
	{template: []string{"<｜tool▁calls▁begin｜>", "```json"}, name: "deepseek_v3"},
	{template: []string{"<｜tool▁calls▁begin｜>"}, token: "<｜tool▁calls▁begin｜>", name: "deepseek_v3_1"},
	{template: []string{"]<]minimax[>["}, token: "]<]minimax[>[", name: "minimax_m3"},
	{template: []string{"<minimax:tool_call>"}, token: "<minimax:tool_call>", name: "minimax_m2"},
	{template: []string{"[TOOL_CALLS]"}, token: "[TOOL_CALLS]", name: "mistral"},
	{template: []string{"<|tool_call>", "call:"}, token: "<|tool_call>", name: "gemma4"},
	{template: []string{"<tool_call>", "<function="}, name: "qwen3_coder"},
	{template: []string{"<tool_call>", "<arg_key>"}, name: "glm47"},
	{template: []string{"<TOOLCALL>"}, name: "nemotron_deci"},
	{template: []string{"<tool_calls>"}, name: "jamba"},
	{template: []string{"functools"}, name: "phi4"},
	{template: []string{"<|python_start|>"}, token: "<|python_start|>", name: "pythonic"},
	{template: []string{"<|python_tag|>"}, unless: []string{"<function="}, token: "<|python_tag|>", name: "llama3_json"},
	{template: []string{"Environment: ipython", `"parameters"`}, name: "llama3_json"},
	{template: []string{"<tool_call>"}, unless: []string{"<invoke"}, name: "hermes"},
}

// thoughtSigns tell the reasoning grammar. That of <think> is named for the
// tool-call grammar that it stands with; they differ in nothing that matters
// where the template opens thoughts.
var thoughtSigns = []sign{
	{template: []string{"<|open|>think<|sep|>"}, name: "kimi_k3"},
	{template: []string{"<|open|>", "<|sep|>", "think"}, token: "<|end_of_msg|>", name: "kimi_k3"},
	{template: []string{"<mm:think>"}, token: "<mm:think>", name: "minimax_m3"},
	{template: []string{"◁think▷"}, token: "◁think▷", name: "kimi"},
	{template: []string{"[THINK]"}, token: "[THINK]", name: "mistral"},
	{template: []string{"<|channel>"}, token: "<|channel>", name: "gemma4"},
	{template: []string{"<|content_invoke_tool_json|>"}, token: "<|content_invoke_tool_json|>", name: "inkling"},
	{template: []string{"<atem:"}, name: "muse"},
	{template: []string{"<think>"}, token: "<think>"},
	{template: []string{"</think>"}},
	{template: []string{"my thought process:"}, name: "granite"},
}

// thinkNames are the names of <think> beside a tool-call grammar.
var thinkNames = map[string]string{
	"hermes": "qwen3", "qwen3_coder": "qwen3", "glm47": "glm45", "kimi_k2": "kimi_k25", "nemotron_deci": "nemotron_deci",
	"deepseek_v3": "deepseek_r1", "deepseek_v3_1": "deepseek_v3_1", "deepseek_v3_2": "deepseek_v3_2", "deepseek_v4": "deepseek_v4",
	"minimax_m2": "minimax_m2",
}

// Detect returns the family that a chat template shows by the markers in it, or
// else a vocabulary by its tokens: isToken says whether a text is one token, and
// may be nil. The parts that neither shows, or that are in a dialect that no
// grammar here reads, are plain text.
func Detect(chatTemplate string, isToken func(text string) bool) Family {
	if harmony.Writes(chatTemplate) {
		return Family{thought: gptOSS, calls: harmonyCalls, shown: true}
	}
	tool, reasoning := find(callSigns, chatTemplate, isToken), find(thoughtSigns, chatTemplate, isToken)
	f := Family{shown: true}
	if tool != nil {
		f.calls = calls[tool.name]
	}
	if reasoning == nil {
		return f
	}
	name := reasoning.name
	if name == "" && tool != nil {
		name = thinkNames[tool.name]
	}
	if name == "" {
		name = "basic"
	}
	f.thought = thoughts[name]
	return f
}

// find returns the first sign that fits.
func find(signs []sign, template string, isToken func(string) bool) *sign {
	for i := range signs {
		if signs[i].in(template) {
			return &signs[i]
		}
	}
	if isToken == nil {
		return nil
	}
	for i := range signs {
		if token := signs[i].token; token != "" && isToken(token) {
			return &signs[i]
		}
	}
	return nil
}

func (s *sign) in(template string) bool {
	for _, text := range s.template {
		if !strings.Contains(template, text) {
			return false
		}
	}
	for _, text := range s.unless {
		if strings.Contains(template, text) {
			return false
		}
	}
	return true
}
