package pipeline

import (
	"crypto/rand"
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/prompt"
)

// view is a conversation as its model is to see it. What clients send is theirs and
// stays as it is: a step that changes something works on a copy.
type view struct {
	chat  *chat.Request
	names names // that the way up needs, to tell of calls in the client's words
	kept  kept  // of the client's turns
}

// show returns what a model of a primary name is to see of a request.
func (p *Pipeline) show(r *chat.Request, m *prompt.Model, name string, notes *Notes) view {
	v := view{chat: r}
	if r.Prompt != nil {
		return v
	}
	if !p.KeepPreamble {
		v.chat, notes.Preamble, v.kept = withoutPreamble(v.chat)
	}
	notes.NotShown = notShown(v.chat)
	v.names = namesOf(r.Tools)
	tools := withoutDeferred(v.chat)
	style := m.IDStyle(len(offered(tools)) > 0)
	c := *v.chat
	if !v.names.plain() || style != chat.NoIDs {
		c = copied(v.chat)
	}
	c.Tools, c.Cache = tools, marksWithin(c.Cache, len(tools))
	if !v.names.plain() {
		v.names.show(&c)
	}
	v.names.choose(&c.ToolChoice)
	withNativeIDs(&c, style)
	c.Thinking = p.thinkingOf(&c, m.Family.ReasoningParser())
	p.withoutCalls(&c, m, name)
	v.chat = &c
	return v
}

// offered returns the tools that a model is told of: those that only another
// provider can run are in nobody's prompt.
func offered(tools []chat.Tool) []chat.Tool {
	hosted := func(t chat.Tool) bool { return !t.Callable() }
	if !slices.ContainsFunc(tools, hosted) {
		return tools
	}
	return slices.DeleteFunc(slices.Clone(tools), hosted)
}

// copied returns a copy whose turns and blocks may be changed, down to calls and
// results.
func copied(r *chat.Request) chat.Request {
	c := *r
	c.Turns = slices.Clone(r.Turns)
	for i := range c.Turns {
		blocks := slices.Clone(c.Turns[i].Blocks)
		for j := range blocks {
			switch b := &blocks[j]; {
			case b.Use != nil:
				use := *b.Use
				b.Use = &use
			case b.Result != nil:
				result := *b.Result
				b.Result = &result
			}
		}
		c.Turns[i].Blocks = blocks
	}
	return c
}

// marksWithin returns marks of which none lies behind the last of so many tools.
func marksWithin(marks []chat.Breakpoint, tools int) []chat.Breakpoint {
	marks = slices.Clone(marks)
	for i := range marks {
		if at := &marks[i]; at.Turn == -2 && at.Block >= tools {
			at.Block = tools - 1
		}
	}
	return marks
}

// withNativeIDs gives the calls of a history, and their results, the ids by which
// the model knows them, whatever has become of these at the client. The turns must
// be a copy.
func withNativeIDs(r *chat.Request, style chat.IDStyle) {
	if style == chat.NoIDs {
		return
	}
	ids := chat.NewNativeIDs(style)
	for i := range r.Turns {
		for j := range r.Turns[i].Blocks {
			switch b := &r.Turns[i].Blocks[j]; {
			case b.Use != nil:
				b.Use.NativeID = ids.Call(b.Use)
				b.Use.ID = b.Use.NativeID
			case b.Result != nil:
				b.Result.ID = ids.Result(b.Result)
			}
		}
	}
}

// calls returns the calls of a conversation, in their order.
func calls(r *chat.Request) (list []*chat.ToolUse) {
	for i := range r.Turns {
		for j := range r.Turns[i].Blocks {
			if use := r.Turns[i].Blocks[j].Use; use != nil {
				list = append(list, use)
			}
		}
	}
	return list
}

// newID returns how ids of calls are made for an API: each has a prefix of its own,
// and 24 random letters and digits.
func newID(api chat.API) func() string {
	prefix := "call_"
	if api == chat.APIMessages {
		prefix = "toolu_"
	}
	return func() string { return prefix + rand.Text()[:24] }
}
