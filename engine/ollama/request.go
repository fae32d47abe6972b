package ollama

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// The routes to which requests go.
const (
	chats     = "/api/chat"
	generates = "/api/generate"
)

// members are those of a JSON object.
type members map[string]any

func (b members) text() ([]byte, error) {
	return jsonv2.Marshal(b, jsonv2.Deterministic(true), httpapi.Lenient)
}

func set[T any](b members, name string, v *T) {
	if v != nil {
		b[name] = *v
	}
}

// own are the members of a body on which the adapter itself stands, and ownOptions
// those of its options: without them a prompt would be cut.
var (
	own        = []string{"model", "messages", "prompt", "stream", "raw", "truncate", "shift", "tools"}
	ownOptions = []string{"num_ctx", "num_predict"}
)

// fields are members that somebody adds to bodies and to their options.
type fields struct{ body, options map[string]json.RawMessage }

func fieldsOf(raw json.RawMessage) (f fields, err error) {
	if f.body, err = httpapi.Extra(raw, own...); err != nil {
		return f, err
	}
	if f.options, err = httpapi.Extra(f.body["options"], ownOptions...); err != nil {
		return f, fmt.Errorf("options: %w", err)
	}
	delete(f.body, "options")
	return f, nil
}

// body returns where a request goes and what is posted there.
func (e *Engine) body(r *engine.Request, at *place) (route string, text []byte, err error) {
	if err := check(r, at); err != nil {
		return "", nil, err
	}
	extra, err := fieldsOf(r.Extra)
	if err != nil {
		return "", nil, engine.Errorf(engine.InvalidArgument, "fields for the engine: %v", err)
	}
	options := options(r, at)
	b := members{"model": at.model, "stream": true, "truncate": false, "shift": false, "options": options}
	e.keep(b)
	if err := b.format(r.Format); err != nil {
		return "", nil, err
	}
	if bare, ok := r.Chat.Bare(); ok {
		route, b["prompt"], b["raw"] = generates, bare, true
	} else if route, err = chats, b.converse(r.Chat, at); err != nil {
		return "", nil, err
	}
	for _, more := range []fields{e.extra, extra} {
		for name, value := range more.body {
			b[name] = value
		}
		for name, value := range more.options {
			options[name] = value
		}
	}
	if text, err = b.text(); err != nil {
		return "", nil, engine.Errorf(engine.InvalidArgument, "the conversation cannot be written as JSON: %v", err)
	}
	return route, text, nil
}

// keep says how long the model stays loaded, if the operator did.
func (e *Engine) keep(b members) {
	switch d := e.cfg.KeepAlive; {
	case d == nil:
	case *d < 0:
		b["keep_alive"] = -1
	default:
		b["keep_alive"] = d.Round(time.Millisecond).String()
	}
}

// check refuses what there is no word for.
func check(r *engine.Request, at *place) error {
	refused := func(what string) error {
		return engine.Errorf(engine.Unsupported, "%s not available on Ollama", what)
	}
	switch {
	case r.Chat == nil, r.Chat.Prompt != nil:
		return engine.Errorf(engine.Internal, "a request without its conversation came to Ollama")
	case r.Epoch != 0 && r.Epoch != at.epoch:
		return engine.Errorf(engine.Stale, "the model was loaded again since")
	case at.model == "":
		return engine.Errorf(engine.Unavailable, "it is not known yet which models Ollama has")
	case r.KV.Namespace.Salt != "":
		return refused("cache salts are")
	case r.KV.Namespace.LoRA != "":
		return refused("adapters are")
	case r.Logprobs != nil || r.PromptLogprobs != nil:
		return refused("log probabilities are")
	case len(r.Sampling.LogitBias) > 0:
		return refused("biases of single tokens are")
	case r.Chat.ToolChoice.Mode == chat.ToolRequired, r.Chat.ToolChoice.Mode == chat.ToolNamed:
		return refused("calls that the model has to make are")
	}
	return nil
}

// neutral are the options whose defaults are not: what neither the request nor the
// model's own parameters say is as in the APIs that clients speak.
var neutral = map[string]any{"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "repeat_penalty": 1}

func options(r *engine.Request, at *place) members {
	b := members{"num_ctx": at.context}
	if r.Stop.MaxTokens > 0 {
		b["num_predict"] = r.Stop.MaxTokens
	}
	s := &r.Sampling
	set(b, "temperature", s.Temperature)
	set(b, "top_p", s.TopP)
	set(b, "min_p", s.MinP)
	set(b, "repeat_penalty", s.RepetitionPenalty)
	set(b, "presence_penalty", s.PresencePenalty)
	set(b, "frequency_penalty", s.FrequencyPenalty)
	if s.TopK != nil {
		b["top_k"] = max(0, *s.TopK)
	}
	if s.Seed != nil {
		b["seed"] = *s.Seed & (1<<31 - 1) // below zero is "any"
	}
	for name, value := range neutral {
		if _, ok := b[name]; !ok && at.preset[name] == nil {
			b[name] = value
		}
	}
	if len(r.Stop.Strings) > 0 {
		// They stand in place of the model's own, without which it would not end.
		b["stop"] = slices.Concat(r.Stop.Strings, at.preset["stop"])
	}
	return b
}

func (b members) format(f *chat.OutputFormat) error {
	if f == nil {
		return nil
	}
	switch f.Kind {
	case chat.FormatText:
	case chat.FormatJSONObject:
		b["format"] = "json"
	case chat.FormatJSONSchema:
		b["format"] = f.Schema
	default:
		return engine.Errorf(engine.Unsupported, "guided output (%s) is not available on Ollama", f.Kind)
	}
	return nil
}

// converse adds what a conversation has.
func (b members) converse(q *chat.Request, at *place) error {
	messages, err := conversation(q, at)
	if err != nil {
		return err
	}
	b["messages"] = messages
	if think := thinking(q.Thinking, at); think != nil {
		b["think"] = think
	}
	return b.tools(q, at)
}

// thinking returns whether the model is to think, or how much; nil leaves it to
// the server, which refuses to make a model think that cannot.
func thinking(t chat.Thinking, at *place) any {
	if !at.able("thinking") {
		return nil
	}
	switch t.Effort {
	case "none":
		return false
	case "minimal":
		return "low"
	case "low", "medium", "high":
		return t.Effort
	case "xhigh", "max":
		return "high"
	}
	if t.Enabled != nil {
		return *t.Enabled
	}
	return nil
}

// tools adds the tools that may be called.
func (b members) tools(q *chat.Request, at *place) error {
	if q.ToolChoice.Mode == chat.ToolNone {
		return nil
	}
	var list []members
	for i := range q.Tools {
		t := &q.Tools[i]
		if !t.Callable() || t.Deferred || len(q.ToolChoice.Names) > 0 && !slices.Contains(q.ToolChoice.Names, t.Name) {
			continue
		}
		if t.Kind == chat.ToolCustom || t.Namespace != "" {
			return engine.Errorf(engine.Unsupported, "tool %q: custom tools and groups of tools are not available on Ollama", t.Name)
		}
		schema := t.Schema
		if schema == nil {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		list = append(list, members{"type": "function", "function": members{
			"name": t.Name, "description": t.Description, "parameters": schema,
		}})
	}
	if len(list) == 0 {
		return nil
	}
	if !at.able("tools") {
		return engine.Errorf(engine.Unsupported, "Ollama says that %s cannot call tools", at.model)
	}
	b["tools"] = list
	return nil
}

// conversation returns the messages. A turn with results of tools becomes several,
// in their order.
func conversation(q *chat.Request, at *place) ([]members, error) {
	var out []members
	called := map[string]string{} // names of tools by the ids of calls
	say := func(m members, blocks []chat.Block, newest bool) error {
		text, images, err := content(blocks, newest, at)
		if err != nil {
			return err
		}
		if m["content"] = text; len(images) > 0 {
			m["images"] = images
		}
		out = append(out, m)
		return nil
	}
	if len(q.System) > 0 {
		if err := say(members{"role": "system"}, q.System, false); err != nil {
			return nil, err
		}
	}
	for i := range q.Turns {
		t := &q.Turns[i]
		if t.Role == chat.RoleAssistant {
			out = append(out, said(t, called))
			continue
		}
		var rest []chat.Block
		newest := !slices.ContainsFunc(q.Turns[i:], func(t chat.Turn) bool { return t.Role == chat.RoleAssistant })
		flush := func() error {
			if len(rest) == 0 {
				return nil
			}
			blocks := rest
			rest = nil
			return say(members{"role": role(t.Role)}, blocks, newest)
		}
		for _, b := range t.Blocks {
			if b.Kind != chat.ToolResult || b.Result == nil {
				rest = append(rest, b)
				continue
			}
			if err := flush(); err != nil {
				return nil, err
			}
			m := members{"role": "tool", "tool_call_id": b.Result.ID}
			if name := called[b.Result.ID]; name != "" {
				m["tool_name"] = name
			}
			if err := say(m, b.Result.Blocks, false); err != nil {
				return nil, err
			}
		}
		if err := flush(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func role(r chat.Role) string {
	if r == chat.RoleDeveloper {
		r = chat.RoleSystem
	}
	return string(r)
}

// said is a message of the model. It notes which tools were called.
func said(t *chat.Turn, called map[string]string) members {
	var text, thought strings.Builder
	var calls []members
	for _, b := range t.Blocks {
		switch b.Kind {
		case chat.Text, chat.Refusal:
			text.WriteString(b.Text)
		case chat.Thought:
			thought.WriteString(b.Text)
		case chat.ToolCall:
			called[b.Use.ID] = b.Use.Name
			calls = append(calls, members{"id": b.Use.ID, "function": members{
				"index": len(calls), "name": b.Use.Name, "arguments": arguments(b.Use.Args),
			}})
		}
	}
	m := members{"role": "assistant", "content": text.String()}
	if thought.Len() > 0 {
		m["thinking"] = thought.String()
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	return m
}

// arguments returns those of a call as the object that they have to be. What a
// model once wrote and is none is told all the same.
func arguments(args string) any {
	if v := jsontext.Value(args); v.IsValid(httpapi.Lenient) && v.Kind() == '{' {
		return json.RawMessage(args)
	}
	if strings.TrimSpace(args) == "" {
		return members{}
	}
	return members{"arguments": args}
}

// content returns the text and the images of a message. An image that the model
// cannot see is refused where the client can still mend it, and else stands in
// words.
func content(blocks []chat.Block, newest bool, at *place) (string, []string, error) {
	var text strings.Builder
	var images []string
	for i := range blocks {
		b := &blocks[i]
		switch b.Kind {
		case chat.Text:
			text.WriteString(b.Text)
		case chat.Image, chat.Document:
			err := visible(b, at)
			switch {
			case err == nil:
				images = append(images, b.Media.Data)
			case newest:
				return "", nil, err
			default:
				text.WriteString(inWords(b))
			}
		}
	}
	return text.String(), images, nil
}

// visible says why the model cannot see something, if it cannot.
func visible(b *chat.Block, at *place) error {
	var err error
	switch {
	case b.Kind == chat.Document:
		err = errors.New("documents are not available on Ollama")
	case b.Media == nil || b.Media.Source != "base64":
		err = errors.New("images come to Ollama as base64 data alone, and not by address or as uploads")
	case !at.able("vision"):
		err = errors.New(at.model + " sees no images")
	default:
		return nil
	}
	e := engine.Errorf(engine.InvalidArgument, "%v", err)
	if e.Code = "unsupported_parameter"; b.Media != nil {
		e.Param = b.Media.Path
	}
	return e
}

func inWords(b *chat.Block) string {
	kind := "[image"
	if b.Kind == chat.Document {
		kind = "[document"
	}
	if b.Media != nil && b.Media.MediaType != "" {
		kind += ": " + b.Media.MediaType
	}
	return kind + "]"
}
