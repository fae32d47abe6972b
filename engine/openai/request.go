package openai

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
)

// members are those of a JSON object.
type members map[string]any

// own are the members of a body on which the adapter itself stands.
var own = []string{"model", "messages", "stream", "stream_options", "n"}

// object reads members that are added to a body.
func object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var extra map[string]json.RawMessage
	if err := json.Unmarshal(raw, &extra); err != nil {
		return nil, fmt.Errorf("want a JSON object: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if slices.Contains(own, name) {
			return nil, fmt.Errorf("%s is set by the adapter and cannot be given", name)
		}
	}
	return extra, nil
}

// body returns the body of POST /v1/chat/completions, its members in the order
// of their names. Sampling for which chat completions have no member is left to
// the server.
func (e *Engine) body(r *engine.Request) ([]byte, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	messages, err := conversation(r.Chat)
	if err != nil {
		return nil, err
	}
	b := members{
		"model": *e.model.Load(), "messages": messages,
		"stream": true, "stream_options": members{"include_usage": true},
	}
	if r.Stop.MaxTokens > 0 {
		b["max_tokens"] = r.Stop.MaxTokens
	}
	if err := b.tools(r.Chat); err != nil {
		return nil, err
	}
	if err := b.format(r.Format); err != nil {
		return nil, err
	}
	s := &r.Sampling
	set(b, "temperature", s.Temperature)
	set(b, "top_p", s.TopP)
	set(b, "frequency_penalty", s.FrequencyPenalty)
	set(b, "presence_penalty", s.PresencePenalty)
	set(b, "seed", s.Seed)
	if len(r.Stop.Strings) > 0 {
		b["stop"] = r.Stop.Strings
	}
	if effort := r.Chat.Thinking.Effort; effort != "" {
		b["reasoning_effort"] = effort
	}
	extra, err := object(r.Extra)
	if err != nil {
		return nil, engine.Errorf(engine.InvalidArgument, "fields for the engine: %v", err)
	}
	for _, more := range []map[string]json.RawMessage{e.extra, extra} {
		for name, value := range more {
			b[name] = value
		}
	}
	text, err := jsonv2.Marshal(b, jsonv2.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, engine.Errorf(engine.InvalidArgument, "the conversation cannot be written as JSON: %v", err)
	}
	return text, nil
}

// check refuses what chat completions have no word for.
func check(r *engine.Request) error {
	refused := func(what string) error {
		return engine.Errorf(engine.Unsupported, "%s not available on a server of chat completions", what)
	}
	switch {
	case r.Chat == nil:
		return engine.Errorf(engine.Internal, "a request without its conversation came to a server of chat completions")
	case r.Chat.Prompt != nil:
		return refused("prompts without messages are")
	case r.KV.Namespace.Salt != "":
		return refused("cache salts are")
	case r.KV.Namespace.LoRA != "":
		return refused("adapters are")
	case r.Logprobs != nil || r.PromptLogprobs != nil:
		return refused("log probabilities are")
	}
	return nil
}

func set[T any](b members, name string, v *T) {
	if v != nil {
		b[name] = *v
	}
}

func (b members) format(f *chat.OutputFormat) error {
	if f == nil {
		return nil
	}
	switch f.Kind {
	case chat.FormatText:
	case chat.FormatJSONObject:
		b["response_format"] = members{"type": "json_object"}
	case chat.FormatJSONSchema:
		schema := members{"name": f.Name, "schema": f.Schema}
		if f.Name == "" {
			schema["name"] = "answer" // it must have one
		}
		set(schema, "strict", f.Strict)
		b["response_format"] = members{"type": "json_schema", "json_schema": schema}
	default:
		return engine.Errorf(engine.Unsupported, "guided output (%s) is not available on a server of chat completions", f.Kind)
	}
	return nil
}

// tools adds the tools that may be called, and what is to be done with them.
func (b members) tools(q *chat.Request) error {
	shown := references(q)
	var list []members
	for i := range q.Tools {
		t := &q.Tools[i]
		choosable := len(q.ToolChoice.Names) == 0 || slices.Contains(q.ToolChoice.Names, t.Name)
		if q.ToolChoice.Hidden || !t.Callable() || !choosable || t.Deferred && !shown[t.Name] {
			continue
		}
		if t.Kind == chat.ToolCustom || t.Namespace != "" {
			return engine.Errorf(engine.Unsupported, "tool %q: custom tools and groups of tools are not available on a server of chat completions", t.Name)
		}
		f := members{"name": t.Name}
		if t.Description != "" {
			f["description"] = t.Description
		}
		if t.Schema != nil {
			f["parameters"] = t.Schema
		}
		set(f, "strict", t.Strict)
		list = append(list, members{"type": "function", "function": f})
	}
	if len(list) == 0 {
		return nil
	}
	b["tools"] = list
	set(b, "parallel_tool_calls", q.ToolChoice.Parallel)
	switch q.ToolChoice.Mode {
	case chat.ToolNone, chat.ToolRequired:
		b["tool_choice"] = string(q.ToolChoice.Mode)
	case chat.ToolNamed:
		if len(q.ToolChoice.Names) > 0 {
			b["tool_choice"] = members{"type": "function", "function": members{"name": q.ToolChoice.Names[0]}}
		}
	}
	return nil
}

// references returns the names of deferred tools that results refer to.
func references(q *chat.Request) map[string]bool {
	names := map[string]bool{}
	var visit func([]chat.Block)
	visit = func(blocks []chat.Block) {
		for _, b := range blocks {
			if b.Kind == chat.ToolReference {
				names[b.Text] = true
			}
			if b.Result != nil {
				visit(b.Result.Blocks)
			}
		}
	}
	for _, t := range q.Turns {
		visit(t.Blocks)
	}
	return names
}

// conversation returns the messages. A turn with results of tools becomes
// several, in their order.
func conversation(q *chat.Request) ([]members, error) {
	var out []members
	if len(q.System) > 0 {
		content, err := content(q.System)
		if err != nil {
			return nil, err
		}
		out = append(out, members{"role": "system", "content": content})
	}
	for _, t := range q.Turns {
		if t.Role == chat.RoleAssistant {
			out = append(out, said(&t))
			continue
		}
		var rest []chat.Block
		flush := func() error {
			if len(rest) == 0 {
				return nil
			}
			content, err := content(rest)
			if err != nil {
				return err
			}
			m := members{"role": string(t.Role), "content": content}
			if t.Name != "" {
				m["name"] = t.Name
			}
			out, rest = append(out, m), nil
			return nil
		}
		for _, b := range t.Blocks {
			if b.Kind != chat.ToolResult || b.Result == nil {
				rest = append(rest, b)
				continue
			}
			if err := flush(); err != nil {
				return nil, err
			}
			content, err := content(b.Result.Blocks)
			if err != nil {
				return nil, err
			}
			out = append(out, members{"role": "tool", "tool_call_id": b.Result.ID, "content": content})
		}
		if err := flush(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// said is a message of the model.
func said(t *chat.Turn) members {
	var text, thought, refusal strings.Builder
	var calls []members
	for _, b := range t.Blocks {
		switch b.Kind {
		case chat.Text:
			text.WriteString(b.Text)
		case chat.Thought:
			thought.WriteString(b.Text)
		case chat.Refusal:
			refusal.WriteString(b.Text)
		case chat.ToolCall:
			calls = append(calls, members{
				"id": b.Use.ID, "type": "function",
				"function": members{"name": b.Use.Name, "arguments": b.Use.Args},
			})
		}
	}
	m := members{"role": "assistant", "content": text.String()}
	if text.Len() == 0 && len(calls) > 0 {
		m["content"] = nil
	}
	if thought.Len() > 0 {
		m["reasoning_content"] = thought.String()
	}
	if refusal.Len() > 0 {
		m["refusal"] = refusal.String()
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	return m
}

// content is a text where there is nothing but texts, else a list of parts.
func content(blocks []chat.Block) (any, error) {
	var parts []members
	var text strings.Builder
	for _, b := range blocks {
		switch b.Kind {
		case chat.Text:
			text.WriteString(b.Text)
			parts = append(parts, members{"type": "text", "text": b.Text})
		case chat.Image:
			url, err := address(b.Media)
			if err != nil {
				return nil, err
			}
			image := members{"url": url}
			if b.Media.Detail != "" {
				image["detail"] = b.Media.Detail
			}
			parts = append(parts, members{"type": "image_url", "image_url": image})
		case chat.Document:
			return nil, unreadable(b.Media, "documents are")
		}
	}
	for _, p := range parts {
		if p["type"] != "text" {
			return parts, nil
		}
	}
	return text.String(), nil
}

func address(m *chat.Media) (string, error) {
	switch {
	case m == nil:
		return "", unreadable(m, "images without data are")
	case m.Source == "url":
		return m.Data, nil
	case m.Source == "base64":
		return "data:" + m.MediaType + ";base64," + m.Data, nil
	}
	return "", unreadable(m, "uploaded files are")
}

func unreadable(m *chat.Media, what string) error {
	e := engine.Errorf(engine.InvalidArgument, "%s not available on this model's server", what)
	if m != nil {
		e.Param = m.Path
	}
	return e
}
