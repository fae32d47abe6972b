package parser

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynago/dynago/harmony"
)

// Family is the grammar of the models of one family: how they mark reasoning,
// and how they mark calls. It is immutable, and safe for any number of parsers
// at once. The zero value is plain text.
type Family struct {
	thought *thoughtGrammar
	calls   *callGrammar
}

// thoughtGrammar is the pair of markers around a thought.
type thoughtGrammar struct{ open, close string }

// callGrammar is the pair of markers around calls, and what may stand between.
type callGrammar struct {
	open, close string
	// bare is how a call may begin that has no wrapper, as the first thing in a
	// response; empty if none may.
	bare string
	body func() body
}

// The grammars. A name in them is what --dyn-reasoning-parser and
// --dyn-tool-call-parser take.
var (
	// Harmony has a machine of its own, which these stand for.
	gptOSS       = &thoughtGrammar{}
	harmonyCalls = &callGrammar{}

	thinkTags = &thoughtGrammar{open: "<think>", close: "</think>"}
	thoughts  = map[string]*thoughtGrammar{
		"none":  nil,
		"think": thinkTags, "basic": thinkTags, "qwen3": thinkTags, "glm45": thinkTags,
		"nemotron_deci": thinkTags,
		"gpt_oss":       gptOSS,
	}

	hermes = &callGrammar{
		open: "<tool_call>", close: "</tool_call>", bare: `{"name"`,
		body: func() body { return new(jsonCalls) },
	}
	calls = map[string]*callGrammar{
		"none":   nil,
		"hermes": hermes, "qwen25": hermes,
		"harmony": harmonyCalls,
	}
)

// With returns the family with its grammars replaced by those of a tool-call
// parser and a reasoning parser, each given by its name; "none" takes one away,
// and "auto" or nothing leaves it as it is.
func (f Family) With(toolParser, reasoningParser string) (Family, error) {
	if !automatic(toolParser) {
		g, ok := calls[toolParser]
		if !ok {
			return Family{}, fmt.Errorf("unknown tool-call parser %q: want auto or one of %s", toolParser, list(calls))
		}
		f.calls = g
	}
	if !automatic(reasoningParser) {
		g, ok := thoughts[strings.ToLower(reasoningParser)]
		if !ok {
			return Family{}, fmt.Errorf("unknown reasoning parser %q: want auto or one of %s", reasoningParser, list(thoughts))
		}
		f.thought = g
	}
	if f.harmony() && (f.thought != nil && f.thought != gptOSS || f.calls != nil && f.calls != harmonyCalls) {
		return Family{}, fmt.Errorf("parsers %q for tool calls and %q for reasoning do not go together: with harmony goes gpt_oss, or none", toolParser, reasoningParser)
	}
	return f, nil
}

// harmony says whether any part of the family is Harmony's.
func (f Family) harmony() bool { return f.thought == gptOSS || f.calls == harmonyCalls }

func automatic(name string) bool { return name == "" || name == "auto" }

func list[G any](m map[string]G) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

// Detect returns the family that a chat template shows by the markers in it; the
// parts that it does not show, or shows in a dialect that no grammar here reads,
// are plain text.
func Detect(chatTemplate string) Family {
	var f Family
	has := func(s string) bool { return strings.Contains(chatTemplate, s) }
	if harmony.Writes(chatTemplate) {
		return Family{thought: gptOSS, calls: harmonyCalls}
	}
	if has(thinkTags.open) || has(thinkTags.close) {
		f.thought = thinkTags
	}
	// Other families wrap XML in the same tag.
	if has(hermes.open) && !has("<function=") && !has("<arg_key>") && !has("<invoke") {
		f.calls = hermes
	}
	return f
}

// String returns the name of the tool-call grammar, or else of the reasoning
// grammar, or else "none".
func (f Family) String() string {
	switch {
	case f.harmony():
		return "harmony"
	case f.calls == hermes:
		return "hermes"
	case f.thought != nil:
		return "think"
	}
	return "none"
}

// Thinks says whether the family has a grammar for reasoning.
func (f Family) Thinks() bool { return f.thought != nil }

// Calls says whether the family has a grammar for tool calls.
func (f Family) Calls() bool { return f.calls != nil }

// Markers returns the markers of the family. Those of them that are special
// tokens of a vocabulary must stay visible in the text that is pushed.
func (f Family) Markers() []string {
	if f.harmony() {
		return harmony.Tokens()
	}
	var m []string
	if f.thought != nil {
		m = append(m, f.thought.open, f.thought.close)
	}
	if f.calls != nil {
		m = append(m, f.calls.open, f.calls.close)
	}
	return m
}

// StartOf returns the state in which a generation begins behind a rendered
// prompt, of which the last hundred bytes are enough. The prompt decides, not
// a flag: a template that switches thinking off closes an empty thought.
func (f Family) StartOf(renderedPromptTail string) Start {
	if f.harmony() {
		return startOfHarmony(renderedPromptTail)
	}
	if f.thought == nil {
		return StartNone
	}
	tail := strings.TrimRight(renderedPromptTail, " \t\r\n")
	switch {
	case strings.HasSuffix(tail, f.thought.open):
		return StartReasoning
	case strings.HasSuffix(tail, f.thought.close):
		return StartResponse
	}
	return StartNone
}
