package parser

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/harmony"
)

// Family is the grammar of the models of one family: how they mark reasoning,
// and how they mark calls. It is immutable, and safe for any number of parsers
// at once. The zero value is plain text.
type Family struct {
	thought *thoughtGrammar
	calls   *callGrammar
	// shown says that the reasoning grammar was found in a chat template. Such a
	// template opens thoughts and closes them; no switch of the request does.
	shown bool
	// tokens are the markers that a vocabulary has as tokens; nil for none.
	tokens *tokens
}

// callGrammar says how a family marks calls. The machine finds the markers; what
// stands between them is read by a body.
type callGrammar struct {
	name string
	// open and close are the wrapper around calls, in all spellings. One of open
	// that begins with newlines takes them out of the text before the wrapper; it
	// stands beside the spelling without them.
	open, close []string
	// inner is what begins a call where its wrapper is missing. It is the first
	// thing that the body reads, and the body ends with the call.
	inner []string
	// strip are markers that mean nothing, and are removed from text.
	strip []string
	// ends are tokens that end a turn. They mean nothing either, and are no part of
	// a thought that they end.
	ends []string
	// bare says whether a response that begins with s begins with a call that has
	// no wrapper, or that more of the response would tell; nil if none may.
	bare func(s string) (ok, more bool)
	// named tells that such a call begins with the name of a tool of the request, so
	// that no other first word is held.
	named bool
	// certain says that what begins so is a call, whatever it calls.
	certain bool
	// ids is how the model writes the ids of calls.
	ids chat.IDStyle
	// raw tells that values are not quoted, so that a value that breaks off may seem
	// to go on in what follows.
	raw bool
	// body makes a reader of what stands in wrappers. It is used for all the
	// wrappers of one generation.
	body func(o *Options) body
}

// The tool-call grammars, by the names that --dyn-tool-call-parser takes.
var (
	harmonyCalls = &callGrammar{name: "harmony"} // has a machine of its own

	hermes = &callGrammar{
		name: "hermes", open: []string{"<tool_call>"}, close: []string{"</tool_call>"},
		bare: begins(`{"name"`),
		body: func(*Options) body { return new(jsonCalls) },
	}
	calls = joined(map[string]*callGrammar{
		"none":   nil,
		"hermes": hermes, "qwen25": hermes,
		"harmony": harmonyCalls,
	}, xmlGrammars, jsonGrammars)
)

// begins makes the bare function of a grammar whose calls begin with a prefix.
func begins(prefix string) func(s string) (ok, more bool) {
	return func(s string) (ok, more bool) {
		return strings.HasPrefix(s, prefix), len(s) < len(prefix) && strings.HasPrefix(prefix, s)
	}
}

// With returns the family with its grammars replaced by those of a tool-call
// parser and a reasoning parser, each given by its name; "none" takes one away,
// and "auto" or nothing leaves it as it is. Ids of markers are forgotten; see
// [Family.Bind].
func (f Family) With(toolParser, reasoningParser string) (Family, error) {
	f.tokens = nil
	if !automatic(toolParser) {
		g, ok := calls[toolParser]
		if !ok {
			return Family{}, fmt.Errorf("unknown tool-call parser %q: want auto or one of %s", toolParser, strings.Join(ToolParsers(), ", "))
		}
		f.calls = g
	}
	if !automatic(reasoningParser) {
		g, ok := thoughts[strings.ToLower(reasoningParser)]
		if !ok {
			return Family{}, fmt.Errorf("unknown reasoning parser %q: want auto or one of %s", reasoningParser, strings.Join(ReasoningParsers(), ", "))
		}
		f.thought, f.shown = g, false
	}
	tool, reasoning := f.ToolParser(), f.ReasoningParser()
	if want := pairs[tool]; want != "" && reasoning != want && reasoning != "none" {
		if !automatic(reasoningParser) {
			return Family{}, fmt.Errorf("parsers %q for tool calls and %q for reasoning do not go together: with %s goes %s, or none", tool, reasoning, tool, want)
		}
		f.thought = thoughts[want]
	}
	for with, want := range pairs {
		if want != reasoning || tool == with || tool == "none" {
			continue
		}
		if !automatic(toolParser) {
			return Family{}, fmt.Errorf("parsers %q for tool calls and %q for reasoning do not go together: with %s goes %s, or none", tool, reasoning, want, with)
		}
		f.calls = calls[with]
	}
	return f, nil
}

// pairs are the tool-call parsers whose grammar wraps all of an answer, so that
// no other reasoning parser than its own can read beside it.
var pairs = map[string]string{"harmony": "gpt_oss", "kimi_k3": "kimi_k3", "inkling": "inkling", "muse": "muse"}

// harmony says whether any part of the family is Harmony's.
func (f Family) harmony() bool { return f.thought == gptOSS || f.calls == harmonyCalls }

func automatic(name string) bool { return name == "" || name == "auto" }

// String returns the name of the tool-call grammar, or else of the reasoning
// grammar, or else "none".
func (f Family) String() string {
	if tool := f.ToolParser(); tool != "none" {
		return tool
	}
	return f.ReasoningParser()
}

// ToolParser returns the name of the tool-call grammar, or "none".
func (f Family) ToolParser() string {
	if f.calls == nil {
		return "none"
	}
	return f.calls.name
}

// ReasoningParser returns the name of the reasoning grammar, or "none".
func (f Family) ReasoningParser() string {
	if f.thought == nil {
		return "none"
	}
	return f.thought.name
}

// ToolParsers returns the names that [Family.With] knows for tool calls, sorted,
// and ReasoningParsers those for reasoning.
func ToolParsers() []string { return slices.Sorted(maps.Keys(calls)) }

// ReasoningParsers is described with [ToolParsers].
func ReasoningParsers() []string { return slices.Sorted(maps.Keys(thoughts)) }

// Thinks says whether the family has a grammar for reasoning.
func (f Family) Thinks() bool { return f.thought != nil }

// Calls says whether the family has a grammar for tool calls.
func (f Family) Calls() bool { return f.calls != nil }

// CallOpeners returns the markers that begin calls, in all spellings; none if the
// family's calls begin with a header.
func (f Family) CallOpeners() []string {
	if f.calls == nil || f.harmony() {
		return nil
	}
	return f.calls.open
}

// IDs returns how the family's models write the ids of calls.
func (f Family) IDs() chat.IDStyle {
	if f.calls == nil {
		return chat.NoIDs
	}
	return f.calls.ids
}

// Markers returns the markers of the family. Those of them that are special
// tokens of a vocabulary must stay visible in the text that is pushed.
func (f Family) Markers() []string {
	if f.harmony() {
		return harmony.Tokens()
	}
	var m []string
	if f.thought != nil {
		m = slices.Concat(m, f.thought.open, f.thought.close, f.thought.exits, f.thought.strip)
	}
	if f.calls != nil {
		m = slices.Concat(m, f.calls.open, f.calls.close, f.calls.inner, f.calls.strip, f.calls.ends)
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
	return f.thought.startOf(renderedPromptTail)
}

// ThinksWith says whether reasoning is read in the answer to a request: parsers
// that were named explicitly are switched off by some requests.
func (f Family) ThinksWith(c Controls) bool {
	return f.thought != nil && (f.shown || f.thought.off == nil || !f.thought.off(c))
}
