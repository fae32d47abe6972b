//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// saying is one answer of a model: a thought, words, and calls of tools, in this
// order; any of them may be missing.
type saying struct {
	thought, text string
	calls         []call
}

// call is a call of a tool. Its arguments keep their order.
type call struct {
	tool string
	args []arg
}

type arg struct {
	key   string
	value any // of JSON
}

// json writes the arguments as chat templates do, with blanks behind colons and
// commas.
func (c call) json(t testing.TB) string {
	t.Helper()
	members := make([]string, len(c.args))
	for i, a := range c.args {
		members[i] = quote(t, a.key) + ": " + quote(t, a.value)
	}
	return "{" + strings.Join(members, ", ") + "}"
}

// quote writes a value as JSON, in the manner of chat templates.
func quote(t testing.TB, v any) string {
	t.Helper()
	var compact, b strings.Builder
	enc := json.NewEncoder(&compact)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	quoted, escaped := false, false
	for _, c := range strings.TrimSuffix(compact.String(), "\n") {
		b.WriteRune(c)
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case (c == ',' || c == ':') && !quoted:
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// dialect is how the models of one family write what they say: what its parser
// has to read. Each writes as its chat template would show it.
type dialect struct {
	name  string
	model string // a folder of internal/models
	flags []string
	write func(testing.TB, saying) string
	// one says that such a model makes one call at a time.
	one bool
	// replays says that --replay-raw puts thoughts back that the template leaves
	// out when the user has taken the conversation up again.
	replays bool
	// silent says that such a model does not think while it calls tools: it is not
	// asked by harnesses that want thoughts.
	silent bool
}

var dialects = []dialect{
	{name: "hermes", model: "qwen3", write: writeHermes, replays: true},
	{name: "harmony", model: "gpt-oss", write: writeHarmony, one: true},
	{name: "deepseek_v3_1", model: "deepseek-v3.1", write: writeDeepSeek, silent: true},
	{name: "glm47", model: "glm-4.7-flash", write: writeGLM},
}

func writeHermes(t testing.TB, s saying) string {
	var b strings.Builder
	if s.thought != "" {
		fmt.Fprintf(&b, "<think>\n%s\n</think>\n\n", s.thought)
	}
	b.WriteString(s.text)
	for i, c := range s.calls {
		if i > 0 || s.text != "" {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "<tool_call>\n{\"name\": %q, \"arguments\": %s}\n</tool_call>", c.tool, c.json(t))
	}
	return b.String()
}

func writeHarmony(t testing.TB, s saying) string {
	var messages []string
	if s.thought != "" {
		messages = append(messages, "<|channel|>analysis<|message|>"+s.thought+"<|end|>")
	}
	switch {
	case len(s.calls) > 0:
		if s.text != "" {
			messages = append(messages, "<|channel|>commentary<|message|>"+s.text+"<|end|>")
		}
		c := s.calls[0]
		messages = append(messages, "<|channel|>commentary to=functions."+c.tool+" <|constrain|>json<|message|>"+c.json(t)+"<|call|>")
	default:
		messages = append(messages, "<|channel|>final<|message|>"+s.text)
	}
	return strings.Join(messages, "<|start|>assistant")
}

// writeGLM begins within a thought, which the prompt has opened.
func writeGLM(t testing.TB, s saying) string {
	var b strings.Builder
	b.WriteString(s.thought + "</think>" + s.text)
	for _, c := range s.calls {
		b.WriteString("<tool_call>" + c.tool)
		for _, a := range c.args {
			value, isText := a.value.(string)
			if !isText {
				value = quote(t, a.value)
			}
			fmt.Fprintf(&b, "<arg_key>%s</arg_key><arg_value>%s</arg_value>", a.key, value)
		}
		b.WriteString("</tool_call>")
	}
	return b.String()
}

func writeDeepSeek(t testing.TB, s saying) string {
	var b strings.Builder
	b.WriteString(s.text)
	if len(s.calls) == 0 {
		return b.String()
	}
	b.WriteString("<｜tool▁calls▁begin｜>")
	for _, c := range s.calls {
		b.WriteString("<｜tool▁call▁begin｜>" + c.tool + "<｜tool▁sep｜>" + c.json(t) + "<｜tool▁call▁end｜>")
	}
	b.WriteString("<｜tool▁calls▁end｜>")
	return b.String()
}
