package ollama

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The server has a second door, for clients of chat completions. It knows no context
// lengths: what is too long is cut.

// asked is the body of POST /v1/chat/completions and of POST /v1/completions, as far
// as it changes an answer here.
type asked struct {
	Model    string `json:"model"`
	Messages []struct {
		Role      string         `json:"role"`
		Content   jsontext.Value `json:"content"`
		Reasoning string         `json:"reasoning"`
		ToolID    string         `json:"tool_call_id"`
		Calls     []struct {
			ID       string `json:"id"`
			Function struct {
				Name string `json:"name"`
				Args string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Prompt  string         `json:"prompt"`
	Stream  bool           `json:"stream"`
	Options jsontext.Value `json:"stream_options"`
	Most    *int           `json:"max_tokens"`
	Heat    *float64       `json:"temperature"`
	Seed    *int64         `json:"seed"`
	Stop    jsontext.Value `json:"stop"`
	Effort  string         `json:"reasoning_effort"`
	Tools   jsontext.Value `json:"tools"`
	Format  struct {
		Type   string `json:"type"`
		Schema struct {
			Schema jsontext.Value `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
}

// models lists them as the second door does.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	list := []object{}
	for _, m := range s.installed() {
		list = append(list, object{"id": m["name"], "object": "model", "created": 1, "owned_by": "library"})
	}
	answer(w, http.StatusOK, object{"object": "list", "data": list})
}

// text reads a text, or the texts of a list of parts.
func text(v jsontext.Value) string {
	var parts []struct {
		Text string `json:"text"`
	}
	switch v.Kind() {
	case '"':
		t, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			return ""
		}
		return string(t)
	case '[':
		if unmarshal(v, &parts) != nil {
			return ""
		}
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// question puts what was asked at the second door into the words of the first.
func (a *asked) question() (*question, error) {
	q := &question{Model: a.Model, Prompt: a.Prompt, Stream: &a.Stream}
	if len(a.Tools) > 0 {
		if err := unmarshal(a.Tools, &q.Tools); err != nil {
			return nil, err
		}
	}
	switch a.Effort {
	case "":
	case "none":
		q.Think = jsontext.Value("false")
	default:
		q.Think = jsontext.Value(`"` + a.Effort + `"`)
	}
	switch a.Format.Type {
	case "json_object":
		q.Format = jsontext.Value(`"json"`)
	case "json_schema":
		q.Format = a.Format.Schema.Schema
	}
	q.Options.Predict, q.Options.Temperature, q.Options.Seed = a.Most, a.Heat, a.Seed
	switch a.Stop.Kind() {
	case '"':
		q.Options.Stop = []string{text(a.Stop)}
	case '[':
		if err := unmarshal(a.Stop, &q.Options.Stop); err != nil {
			return nil, err
		}
	}
	for _, m := range a.Messages {
		said := message{Role: m.Role, Content: text(m.Content), Thinking: m.Reasoning, ToolID: m.ToolID}
		for _, c := range m.Calls {
			call := called{ID: c.ID}
			call.Function.Name = c.Function.Name
			if err := unmarshal(jsontext.Value(c.Function.Args), &call.Function.Args); err != nil {
				return nil, err
			}
			said.Calls = append(said.Calls, call)
		}
		q.Messages = append(q.Messages, said)
	}
	return q, nil
}

// compatible answers at the second door.
func (s *Server) compatible(conversation bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var a asked
		if !read(w, r, &a) {
			return
		}
		q, err := a.question()
		if err != nil {
			refuse(w, http.StatusBadRequest, "%v", err)
			return
		}
		s.serve(w, r, q, conversation, &events{counts: strings.Contains(string(a.Options), "true")})
	}
}

// events are how answers go out at the second door.
type events struct {
	counts bool // that clients want behind the last event
}

// line returns what one line of the first door is there: an event, and at the end
// three of them.
func (v *events) line(l object, conversation bool) []object {
	chunk := func(choices ...object) object {
		return object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": l["model"], "choices": append([]object{}, choices...)}
	}
	piece := object{"index": 0, "finish_reason": nil}
	said := ""
	if conversation {
		m, _ := l["message"].(object) //nolint:errcheck // it is made here
		delta := object{"role": "assistant", "content": m["content"]}
		said, _ = m["content"].(string) //nolint:errcheck // it is made here
		if t, ok := m["thinking"]; ok {
			delta["reasoning"], said = t, "thought"
		}
		if list, ok := m["tool_calls"].([]object); ok {
			said = "call"
			delta["tool_calls"] = calledThere(list)
		}
		piece["delta"] = delta
	} else {
		piece["text"] = l["response"]
		said, _ = l["response"].(string) //nolint:errcheck // it is made here
	}
	var out []object
	if said != "" {
		out = append(out, chunk(piece))
	}
	if l["done"] != true {
		return out
	}
	end := object{"index": 0, "finish_reason": l["done_reason"], "delta": object{"role": "assistant", "content": ""}, "text": ""}
	if l["called"] == true {
		end["finish_reason"] = "tool_calls"
	}
	out = append(out, chunk(end))
	if v.counts {
		last := chunk()
		prompt, _ := l["prompt_eval_count"].(int) //nolint:errcheck // it may be left out
		made, _ := l["eval_count"].(int)          //nolint:errcheck // it is made here
		last["usage"] = object{"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
		out = append(out, last)
	}
	return out
}

// calledThere are calls with their arguments as texts.
func calledThere(list []object) []object {
	var out []object
	for _, c := range list {
		f, _ := c["function"].(object)             //nolint:errcheck // it is made here
		args, _ := f["arguments"].(jsontext.Value) //nolint:errcheck // it is made here
		out = append(out, object{"index": f["index"], "id": c["id"], "type": "function", "function": object{"name": f["name"], "arguments": string(args)}})
	}
	return out
}
