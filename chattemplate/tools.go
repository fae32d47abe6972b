package chattemplate

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate/jinja"
)

// shapes remembers tools that were read before: agents send the same ones with
// every turn. It holds at most maxShapeBytes of tools as clients sent them, which
// take about eight times as much when they are read, and begins anew when these
// are full: whoever is active then is back with the next turn.
type shapes struct {
	mu    sync.RWMutex
	byRaw map[string]jinja.Value
	bytes int

	hits, misses, resets atomic.Uint64
}

const maxShapeBytes = 4 << 20

// ToolCache tells about the tools that a template remembers in the form that it
// shows. There is nothing to set: it is bounded by 4 MiB of tools as clients sent
// them, and begins anew when it is full.
type ToolCache struct {
	Tools, Bytes         int    // as clients sent them
	Hits, Misses, Resets uint64 // since the template was compiled
}

// ToolCache returns what is so at this moment.
func (t *Template) ToolCache() ToolCache {
	s := &t.shapes
	s.mu.RLock()
	defer s.mu.RUnlock()
	return ToolCache{len(s.byRaw), s.bytes, s.hits.Load(), s.misses.Load(), s.resets.Load()}
}

// ToolError tells which tool of a request has no form in which a template could
// show it.
type ToolError struct {
	Index int // in the request's Tools
	Name  string
	Err   error
}

func (e *ToolError) Error() string {
	return fmt.Sprintf("tools[%d] (%s): %v", e.Index, e.Name, e.Err)
}

func (e *ToolError) Unwrap() error { return e.Err }

// unreadable is what is wrong with a tool whose schema is no JSON.
func unreadable(err error) error { return fmt.Errorf("the schema cannot be read: %w", err) }

// tools returns the list of tools that the model may call, in the client's
// order, or nil. The error is a *[ToolError].
func (s *shapes) tools(list []chat.Tool) (jinja.Value, error) {
	items := make([]jinja.Value, 0, len(list))
	for i := range list {
		if list[i].Kind == chat.ToolServer {
			continue
		}
		tool, err := s.tool(&list[i])
		if err != nil {
			return nil, &ToolError{i, list[i].Name, unreadable(err)}
		}
		items = append(items, tool)
	}
	if len(items) == 0 {
		return nil, nil
	}
	return jinja.NewList(items...), nil
}

func (s *shapes) tool(t *chat.Tool) (jinja.Value, error) {
	if len(t.Wire) == 0 || t.Kind == chat.ToolCustom {
		return build(t)
	}
	s.mu.RLock()
	v, ok := s.byRaw[string(t.Wire)]
	s.mu.RUnlock()
	if ok {
		s.hits.Add(1)
		return v, nil
	}
	s.misses.Add(1)
	v, err := fromWire(t)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byRaw == nil || s.bytes+len(t.Wire) > maxShapeBytes {
		if s.byRaw != nil {
			s.resets.Add(1)
		}
		s.byRaw, s.bytes = map[string]jinja.Value{}, 0
	}
	if _, ok := s.byRaw[string(t.Wire)]; !ok && len(t.Wire) <= maxShapeBytes {
		s.byRaw[string(t.Wire)] = v
		s.bytes += len(t.Wire)
	}
	return v, nil
}

// fromWire reads a tool as the client sent it, and appends only what is absent.
// APIs that give tools another shape get the shape that templates know.
func fromWire(t *chat.Tool) (jinja.Value, error) {
	v, err := jinja.FromJSON(t.Wire)
	if err != nil {
		return nil, err
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
	return tool, nil
}

// build makes a tool from its parts.
func build(t *chat.Tool) (jinja.Value, error) {
	function := jinja.NewDict(3)
	function.Set("name", t.Name)
	function.Set("description", t.Description)
	switch {
	case len(t.Schema) > 0:
		schema, err := jinja.FromJSON(t.Schema)
		if err != nil {
			return nil, err
		}
		function.Set("parameters", schema)
	case t.Kind == chat.ToolCustom:
		function.Set("parameters", freeText())
	}
	complete(function)
	tool := jinja.NewDict(2)
	tool.Set("type", "function")
	tool.Set("function", function)
	return tool, nil
}

// freeText is the schema of a tool that takes free text and has none of its own,
// in the form in which its calls are shown too.
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
