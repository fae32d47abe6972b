package chattemplate

// Traits tells what a template shows of a conversation. They were found out by
// rendering small ones when the template was compiled, with no other settings
// than what every request has.
type Traits struct {
	// ReasoningField is the member of a message in which the template looks for
	// thoughts; empty if it looks for none, and thoughts go into the text.
	ReasoningField string
	// ShowsThinking tells that the thoughts of an answer that is still calling
	// tools are shown, KeepsThinking that those of answers before the last
	// question are too: a template that drops them changes the prefix with each
	// question. PreservesThinking tells that such thoughts are shown at least where
	// [chat.Thinking].Keep asks for it.
	ShowsThinking, KeepsThinking, PreservesThinking bool
	// LateSystem tells that system turns behind others are shown where they
	// stand; else they become wrapped user turns.
	LateSystem bool
	// Calls tells that the template has a form for calls of tools, ParallelCalls
	// that a turn may have several, and Results that it has one for results. What
	// it has no form for becomes text.
	Calls, ParallelCalls, Results bool
	// ArgumentsAsText tells that arguments are shown as the very text that the
	// model wrote; else they are read, and written in the template's manner.
	ArgumentsAsText bool
	// RendersIDs tells that the ids of calls are shown, so that an id that a client
	// changed changes the prompt.
	RendersIDs bool
}

// Traits returns those of the template that serves requests with tools, or of
// the one that serves those without.
func (t *Template) Traits(tools bool) Traits {
	if t.native {
		return Traits{ShowsThinking: true, PreservesThinking: true, LateSystem: true, Calls: true, ParallelCalls: true, Results: true, ArgumentsAsText: true}
	}
	v := t.plain
	if tools {
		v = t.tools
	}
	return Traits{
		ReasoningField:    v.reasoning,
		ShowsThinking:     v.showsThinking,
		KeepsThinking:     v.keepsThinking,
		PreservesThinking: v.preservesThinking,
		LateSystem:        v.lateSystem,
		Calls:             v.calls,
		ParallelCalls:     v.calls && !v.oneCall,
		Results:           v.results,
		ArgumentsAsText:   v.stringArguments,
		RendersIDs:        v.rendersIDs,
	}
}
