package openai

import (
	"encoding/json"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// members are those of a JSON object.
type members map[string]any

// own are the members of a body on which the adapter itself stands.
var own = []string{"model", "messages", "prompt", "stream", "stream_options", "n"}

// The routes to which requests go: conversations, and prompts that stand for
// themselves.
const (
	chats       = "/v1/chat/completions"
	completions = "/v1/completions"
)

// body returns where a request goes and the body that is posted there, its members
// in the order of their names. Sampling for which these routes have no member goes
// under the names that most servers know, and only where a client asks for it: one
// that knows none of them refuses, which is better than another answer.
func (e *Engine) body(r *engine.Request) (route string, text []byte, err error) {
	if err := check(r); err != nil {
		return "", nil, err
	}
	b := members{"model": e.at.Load().model, "stream": true, "stream_options": members{"include_usage": true}}
	if r.Stop.MaxTokens > 0 {
		b["max_tokens"] = r.Stop.MaxTokens
	}
	s := &r.Sampling
	set(b, "temperature", s.Temperature)
	set(b, "top_p", s.TopP)
	set(b, "frequency_penalty", s.FrequencyPenalty)
	set(b, "presence_penalty", s.PresencePenalty)
	set(b, "top_k", s.TopK)
	set(b, "min_p", s.MinP)
	set(b, "repetition_penalty", s.RepetitionPenalty)
	if r.Stop.MinTokens > 0 {
		b["min_tokens"] = r.Stop.MinTokens
	}
	set(b, "seed", s.Seed)
	if bias := s.NamedBias(); bias != nil {
		b["logit_bias"] = bias
	}
	if len(r.Stop.Strings) > 0 {
		b["stop"] = r.Stop.Strings
	}
	if bare, ok := r.Chat.Bare(); ok {
		route, err = completions, b.complete(r, bare, e.at.Load().context)
	} else {
		route, err = chats, b.converse(r)
	}
	if err != nil {
		return "", nil, err
	}
	extra, err := httpapi.Extra(r.Extra, own...)
	if err != nil {
		return "", nil, engine.Errorf(engine.InvalidArgument, "fields for the engine: %v", err)
	}
	for _, more := range []map[string]json.RawMessage{e.extra, extra} {
		for name, value := range more {
			b[name] = value
		}
	}
	text, err = jsonv2.Marshal(b, jsonv2.Deterministic(true), httpapi.Lenient)
	if err != nil {
		return "", nil, engine.Errorf(engine.InvalidArgument, "the conversation cannot be written as JSON: %v", err)
	}
	return route, text, nil
}

// converse adds what chat completions have.
func (b members) converse(r *engine.Request) error {
	messages, err := conversation(r.Chat)
	if err != nil {
		return err
	}
	b["messages"] = messages
	if err := b.tools(r.Chat); err != nil {
		return err
	}
	if effort := r.Chat.Thinking.Effort; effort != "" {
		b["reasoning_effort"] = effort
	}
	if len(r.Chat.TemplateArgs) > 0 {
		b["chat_template_kwargs"] = r.Chat.TemplateArgs
	}
	return b.format(r.Format)
}

// complete adds what completions have. Servers give an answer that nobody has
// limited 16 tokens, and refuse a limit that is longer than their context: as far
// as there is room for certain, the answer gets it. No token is shorter than a byte.
func (b members) complete(r *engine.Request, prompt string, context uint32) error {
	if r.Format != nil && r.Format.Kind != chat.FormatText {
		return engine.Errorf(engine.Unsupported, "a form of the answer to a prompt without messages is not available on a server of chat completions")
	}
	b["prompt"] = prompt
	if room := int(context) - len(prompt) - 1; r.Stop.MaxTokens == 0 && room > 0 {
		b["max_tokens"] = room
	}
	return nil
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
		return engine.Errorf(engine.Internal, "a prompt came to a server of chat completions that is no turn")
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
			m := members{"role": role(t.Role), "content": content}
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

// role is how servers know one who speaks: few of them know developers.
func role(r chat.Role) string {
	if r == chat.RoleDeveloper {
		r = chat.RoleSystem
	}
	return string(r)
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
