package chattemplate

import (
	"sync"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate/jinja"
)

// shapes remembers tools that were read before: agents send the same ones with
// every turn. It holds at most maxShapeBytes of tools as clients sent them, and
// begins anew when these are full: whoever is active then is back with the next
// turn.
type shapes struct {
	mu    sync.RWMutex
	byRaw map[string]jinja.Value
	bytes int
}

const maxShapeBytes = 4 << 20

// tools returns the list of tools that the model may call, in the client's
// order, or nil.
func (s *shapes) tools(list []chat.Tool) jinja.Value {
	items := make([]jinja.Value, 0, len(list))
	for i := range list {
		if list[i].Kind != chat.ToolServer {
			items = append(items, s.tool(&list[i]))
		}
	}
	if len(items) == 0 {
		return nil
	}
	return jinja.NewList(items...)
}

func (s *shapes) tool(t *chat.Tool) jinja.Value {
	if len(t.Wire) == 0 || t.Kind == chat.ToolCustom {
		return build(t)
	}
	s.mu.RLock()
	v, ok := s.byRaw[string(t.Wire)]
	s.mu.RUnlock()
	if ok {
		return v
	}
	v = fromWire(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byRaw == nil || s.bytes+len(t.Wire) > maxShapeBytes {
		s.byRaw, s.bytes = map[string]jinja.Value{}, 0
	}
	if _, ok := s.byRaw[string(t.Wire)]; !ok && len(t.Wire) <= maxShapeBytes {
		s.byRaw[string(t.Wire)] = v
		s.bytes += len(t.Wire)
	}
	return v
}

// fromWire reads a tool as the client sent it, and appends only what is absent.
// APIs that give tools another shape get the shape that templates know.
func fromWire(t *chat.Tool) jinja.Value {
	v, err := jinja.FromJSON(t.Wire)
	if err != nil {
		return build(t)
	}
	tool, _ := v.(*jinja.Dict)
	if tool == nil {
		return build(t)
	}
	member, _ := tool.Get("function")
	function, _ := member.(*jinja.Dict)
	if function == nil {
		return build(t)
	}
	if _, ok := tool.Get("type"); !ok {
		tool.Set("type", "function")
	}
	complete(function)
	return tool
}

// build makes a tool from its parts.
func build(t *chat.Tool) jinja.Value {
	function := jinja.NewDict(3)
	function.Set("name", t.Name)
	function.Set("description", t.Description)
	switch schema, err := jinja.FromJSON(t.Schema); {
	case t.Kind == chat.ToolCustom:
		function.Set("parameters", freeText())
	case err == nil:
		function.Set("parameters", schema)
	}
	complete(function)
	tool := jinja.NewDict(2)
	tool.Set("type", "function")
	tool.Set("function", function)
	return tool
}

// freeText is the schema of a tool that takes free text, in the form in which
// its calls are shown too.
func freeText() jinja.Value {
	input := jinja.NewDict(1)
	input.Set("type", "string")
	properties := jinja.NewDict(1)
	properties.Set("input", input)
	schema := jinja.NewDict(3)
	schema.Set("type", "object")
	schema.Set("properties", properties)
	schema.Set("required", jinja.NewList("input"))
	return schema
}

// complete appends the members that templates count on, where they are absent.
func complete(function *jinja.Dict) {
	if _, ok := function.Get("description"); !ok {
		function.Set("description", "")
	}
	member, ok := function.Get("parameters")
	if !ok || member == jinja.None {
		member = jinja.NewDict(2)
		function.Set("parameters", member)
	}
	schema, ok := member.(*jinja.Dict)
	if !ok {
		return
	}
	if _, ok := schema.Get("type"); !ok {
		schema.Set("type", "object")
	}
	if _, ok := schema.Get("properties"); !ok {
		schema.Set("properties", jinja.NewDict(0))
	}
}
