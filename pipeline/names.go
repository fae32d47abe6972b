package pipeline

import (
	"slices"

	"github.com/dynago/dynago/chat"
)

// names are the tools of a request by the names that the model knows. Clients may
// put tools into groups, and models know no groups: a tool goes by its own name,
// and only where that would be another tool's as well by group__name.
//
// What follows is in the client's words again: so that every API can tell which
// tool of which group is called.
type names struct {
	tools []chat.Tool // as the client named them
	shown []string    // the name of each, "" for one that the model may not call
}

// separator stands between the names of a group and of a tool.
const separator = "__"

func namesOf(tools []chat.Tool) names {
	n := names{tools: tools, shown: make([]string, len(tools))}
	count, taken := map[string]int{}, map[string]bool{}
	for i := range tools {
		if tools[i].Callable() {
			count[tools[i].Name]++
			taken[tools[i].Name] = true
		}
	}
	for i := range tools {
		t := &tools[i]
		switch {
		case !t.Callable():
		case t.Namespace == "" || count[t.Name] == 1:
			n.shown[i] = t.Name
		default:
			name := t.Namespace + separator + t.Name
			for taken[name] {
				name += "_"
			}
			taken[name] = true
			n.shown[i] = name
		}
	}
	return n
}

// plain tells that no tool goes by another name than the client's.
func (n *names) plain() bool {
	for i := range n.tools {
		if n.shown[i] != "" && n.shown[i] != n.tools[i].Name {
			return false
		}
	}
	return true
}

// of returns the name that the model knows a tool by; one that is not offered any
// more keeps its own.
func (n *names) of(namespace, name string) string {
	for i := range n.tools {
		if t := &n.tools[i]; t.Name == name && t.Namespace == namespace && n.shown[i] != "" {
			return n.shown[i]
		}
	}
	return name
}

// all returns the names of all tools that a client means by a name alone, with or
// without the group's before it.
func (n *names) all(name string) (list []string) {
	for i := range n.tools {
		if t := &n.tools[i]; n.shown[i] != "" && (t.Name == name || t.Namespace != "" && t.Namespace+separator+t.Name == name) {
			list = append(list, n.shown[i])
		}
	}
	return list
}

// tool returns the tool that a model calls, nil if it made the name up. Models
// write the group's name also where they need not.
func (n *names) tool(called string) *chat.Tool {
	if i := slices.Index(n.shown, called); i >= 0 && called != "" {
		return &n.tools[i]
	}
	for i := range n.tools {
		if t := &n.tools[i]; n.shown[i] != "" && t.Namespace != "" && (t.Namespace+separator+t.Name == called || t.Namespace+"."+t.Name == called) {
			return t
		}
	}
	return nil
}

// tell puts a call into the client's words.
func (n *names) tell(use *chat.ToolUse) *chat.ToolUse {
	t := n.tool(use.Name)
	if t == nil || t.Name == use.Name && t.Namespace == use.Namespace && t.Kind == use.Kind {
		return use
	}
	told := *use
	told.Name, told.Namespace, told.Kind = t.Name, t.Namespace, t.Kind
	return &told
}

// choose puts a choice of tools into the model's words: a client may say the group
// also of a tool that goes by its own name. One that nobody has stays as it is.
func (n *names) choose(c *chat.ToolChoice) {
	var allowed []string
	for _, name := range c.Names {
		allowed = append(allowed, n.all(name)...)
	}
	if c.Mode == chat.ToolNamed && len(allowed) > 1 {
		allowed = allowed[:1]
	}
	if allowed != nil {
		c.Names = allowed
	}
}

// show puts a request into the model's words. The request is a copy whose turns
// may be changed.
func (n *names) show(r *chat.Request) {
	r.Tools = slices.Clone(r.Tools)
	for i := range r.Tools {
		t := &r.Tools[i]
		if name := n.of(t.Namespace, t.Name); t.Callable() && name != t.Name {
			t.Name, t.Wire = name, nil // what the client wrote has the other name in it
		}
	}
	for i := range r.Turns {
		for j := range r.Turns[i].Blocks {
			if use := r.Turns[i].Blocks[j].Use; use != nil {
				use.Name = n.of(use.Namespace, use.Name)
			}
		}
	}
}
