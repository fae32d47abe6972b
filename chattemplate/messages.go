package chattemplate

import (
	"crypto/sha256"
	"math/big"
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate/jinja"
)

// message is one turn on its way to the template.
type message struct {
	role     string
	name     string
	parts    []string // of text
	thoughts []string
	// thoughtAt tells of each thought how many calls stand before it.
	thoughtAt []int
	calls     []call
	callID    string // of a tool's result
	toolName  string
	sep       string // joins parts where content must be one string
	// merged holds the texts of the turns that were made one, if not nil, and
	// stands in for parts.
	merged []string
}

type call struct {
	id, name, args string
	custom         bool // args are free text
	guard          *guard
}

// blank stands between turns that are merged.
const blank = "\n\n"

// text returns the content as one string.
func (m *message) text() string {
	if m.merged != nil {
		return strings.Join(m.merged, blank)
	}
	return strings.Join(m.parts, m.sep)
}

// flatten makes one message of each turn, but for the results of tools, which
// become messages of their own, before what else the turn says. All that clients
// said goes through the guard here, but for the arguments of calls, which do so
// when their form is known.
func flatten(r *chat.Request, g *guard) []message {
	out := make([]message, 0, len(r.Turns)+1)
	names := map[string]string{} // of tools, by call id
	if len(r.System) > 0 {
		m := message{role: "system", sep: systemSeparator(r.API)}
		m.add(r.System, g)
		out = append(out, m)
	}
	kept := keptFrom(r)
	for i := range r.Turns {
		turn := &r.Turns[i]
		m := message{role: string(turn.Role), name: g.text(turn.Name), sep: separator(r.API)}
		if turn.Role == chat.RoleSystem && r.API == chat.APIMessages {
			m.sep = systemSeparator(r.API)
		}
		for j := range turn.Blocks {
			switch b := &turn.Blocks[j]; b.Kind {
			case chat.ToolResult:
				out = append(out, result(b.Result, names, m.sep, g))
			case chat.ToolCall:
				names[b.Use.ID] = b.Use.Name
				m.calls = append(m.calls, call{g.text(b.Use.ID), g.text(b.Use.Name), b.Use.Args, b.Use.Kind == chat.ToolCustom, g})
			case chat.Thought:
				if i >= kept {
					m.add(turn.Blocks[j:j+1], g)
				}
			default:
				m.add(turn.Blocks[j:j+1], g)
			}
		}
		if m.parts == nil && m.calls == nil && m.thoughts == nil && slices.ContainsFunc(turn.Blocks, isResult) {
			continue
		}
		out = append(out, m)
	}
	return out
}

func isResult(b chat.Block) bool { return b.Kind == chat.ToolResult }

func result(res *chat.Result, names map[string]string, sep string, g *guard) message {
	name := res.Name
	if name == "" {
		name = names[res.ID]
	}
	m := message{role: "tool", callID: g.text(res.ID), toolName: g.text(name), sep: sep}
	m.add(res.Blocks, g)
	return m
}

// add appends what blocks say. Media that reached this point stand in history,
// and become a short text, the same on every turn.
func (m *message) add(blocks []chat.Block, g *guard) {
	for i := range blocks {
		switch b := &blocks[i]; b.Kind {
		case chat.Text, chat.Refusal, chat.ToolReference:
			m.parts = append(m.parts, g.text(b.Text))
		case chat.Thought:
			m.thoughts, m.thoughtAt = append(m.thoughts, g.text(b.Text)), append(m.thoughtAt, len(m.calls))
		case chat.Image, chat.Document:
			m.parts = append(m.parts, g.text(placeholder(b)))
		}
	}
}

func placeholder(b *chat.Block) string {
	if b.Media == nil || b.Media.MediaType == "" {
		return "[" + string(b.Kind) + "]"
	}
	return "[" + string(b.Kind) + ": " + b.Media.MediaType + "]"
}

// separator joins the text parts of one turn, by the custom of each API.
func separator(api chat.API) string {
	switch api {
	case chat.APIMessages, chat.APIResponses:
		return ""
	}
	return "\n"
}

func systemSeparator(api chat.API) string {
	if api == chat.APIResponses {
		return blank
	}
	return "\n"
}

// rewrite brings the messages into a form that the template shows.
func (t *traits) rewrite(in []message) []message {
	out := make([]message, 0, len(in))
	leading := true
	for _, m := range in {
		if m.role == "developer" && !t.developer {
			m.role = "system"
		}
		isSystem := m.role == "system" || m.role == "developer"
		switch {
		case isSystem && !leading && !t.lateSystem, isSystem && !t.system:
			m = wrapped(m)
		case isSystem && leading && len(out) > 0 && !t.lateSystem:
			out[0].append(m) // one run of system turns is one turn
			continue
		case m.role == "tool" && !t.results:
			m = t.resultAsText(m)
		case m.calls != nil && !t.calls:
			m = t.callsAsText(m)
		}
		leading = leading && isSystem
		out = t.join(out, m)
	}
	if t.oneCall {
		out = splitCalls(out)
	}
	return out
}

// join appends a message, or merges it into the last one where the template
// refuses two of a role in a row.
func (t *traits) join(out []message, m message) []message {
	if len(out) == 0 || out[len(out)-1].role != m.role {
		return append(out, m)
	}
	last := &out[len(out)-1]
	switch {
	case m.role == "user" && t.mergeUsers:
		last.append(m)
	case m.role == "assistant" && t.mergeAssistants && last.calls == nil:
		last.append(m)
		last.thoughts, last.thoughtAt = append(last.thoughts, m.thoughts...), append(last.thoughtAt, m.thoughtAt...)
		last.calls = m.calls
	default:
		return append(out, m)
	}
	return out
}

// append adds the text of another message after a blank line. The texts are
// joined once, when the content is made: clients may send very many turns.
func (m *message) append(other message) {
	if m.merged == nil {
		m.merged = appendText(make([]string, 0, 2), m.text())
	}
	m.merged = appendText(m.merged, other.text())
}

func appendText(texts []string, s string) []string {
	if s == "" {
		return texts
	}
	return append(texts, s)
}

// wrapped makes a user turn of a system turn that the template would refuse or
// drop. It stays where it is: moving it to the front would change the prefix.
func wrapped(m message) message {
	m.role = "user"
	m.parts = []string{"<system>\n" + m.text() + "\n</system>"}
	return m
}

// resultAsText and callsAsText serve templates that know nothing of tools, in
// the form that most models have seen.
func (t *traits) resultAsText(m message) message {
	return message{role: "user", parts: []string{"<tool_response>\n" + m.text() + "\n</tool_response>"}}
}

func (t *traits) callsAsText(m message) message {
	var b strings.Builder
	b.WriteString(m.text())
	for i, c := range m.calls {
		if b.Len() > 0 && (i > 0 || !strings.HasSuffix(m.text(), "\n")) {
			b.WriteByte('\n')
		}
		name, _ := jinja.ToJSON(c.name) // a string always has a JSON form
		b.WriteString("<tool_call>\n{\"name\": " + name + ", \"arguments\": " + c.text() + "}\n</tool_call>")
	}
	m.parts, m.calls = []string{b.String()}, nil
	return m
}

// splitCalls gives each of several calls a turn of its own, followed by its
// result. Results of none of them come last.
func splitCalls(in []message) []message {
	out := make([]message, 0, len(in))
	for i := 0; i < len(in); i++ {
		m := in[i]
		if len(m.calls) < 2 {
			out = append(out, m)
			continue
		}
		end := i + 1
		for end < len(in) && in[end].role == "tool" {
			end++
		}
		results := in[i+1 : end]
		byID := map[string][]int{} // places in results, in order
		for k, r := range results {
			byID[r.callID] = append(byID[r.callID], k)
		}
		for n, c := range m.calls {
			one := m
			one.calls = []call{c}
			if n > 0 {
				one.parts, one.merged, one.thoughts, one.thoughtAt = nil, nil, nil, nil
			}
			out = append(out, one)
			if places := byID[c.id]; len(places) > 0 {
				out = append(out, results[places[0]])
				byID[c.id] = places[1:]
			}
		}
		for k, r := range results {
			if left := byID[r.callID]; len(left) > 0 && k >= left[0] {
				out = append(out, r)
			}
		}
		i = end - 1
	}
	return out
}

// values makes the template's own view of messages.
func (t *traits) values(messages []message) jinja.Value {
	items := make([]jinja.Value, len(messages))
	for i := range messages {
		items[i] = t.value(&messages[i])
	}
	return jinja.NewList(items...)
}

func (t *traits) value(m *message) jinja.Value {
	d := jinja.NewDict(5)
	d.Set("role", m.role)
	if m.name != "" {
		d.Set("name", m.name)
	}
	if m.role == "tool" {
		if m.toolName != "" {
			d.Set("name", m.toolName)
		}
		d.Set("tool_call_id", t.callID(m.callID))
	}
	d.Set("content", t.content(m))
	switch {
	case m.thoughts == nil || t.reasoning == "":
	case t.segments && m.calls != nil:
		d.Set(t.reasoning, m.segments())
	default:
		d.Set(t.reasoning, strings.Join(m.thoughts, "\n"))
	}
	if m.calls != nil {
		calls := make([]jinja.Value, len(m.calls))
		for i, c := range m.calls {
			calls[i] = t.callValue(c)
		}
		d.Set("tool_calls", jinja.NewList(calls...))
	}
	return d
}

func (t *traits) content(m *message) jinja.Value {
	parts := m.parts
	if m.merged != nil {
		parts = []string{m.text()}
	}
	if m.role == "assistant" && m.thoughts == nil {
		parts = withoutLead(parts, t.lead)
	}
	if m.calls != nil {
		parts = withoutGap(parts, t.gap)
	}
	if m.thoughts != nil && t.reasoning == "" {
		var b strings.Builder
		for _, thought := range m.thoughts {
			b.WriteString("<think>" + thought + "</think>")
		}
		parts = []string{b.String() + m.text()}
	}
	switch {
	case len(parts) == 0 && m.calls != nil && t.nullContent:
		return jinja.None
	case !t.partsFor[m.role]:
		return strings.Join(parts, m.sep)
	}
	items := make([]jinja.Value, len(parts))
	for i, s := range parts {
		part := jinja.NewDict(2)
		part.Set("type", "text")
		part.Set("text", s)
		items[i] = part
	}
	return jinja.NewList(items...)
}

// withoutLead takes the white space off the beginning of an answer that the template
// writes in a history and not where an answer begins: the model has written it then.
func withoutLead(parts []string, lead string) []string {
	if lead == "" || len(parts) == 0 || parts[0] == lead || !strings.HasPrefix(parts[0], lead) {
		return parts
	}
	parts = slices.Clone(parts)
	parts[0] = strings.TrimPrefix(parts[0], lead)
	return parts
}

// withoutGap takes the white space off the end of a text that the template puts
// between it and calls itself: what a model says before it calls ends with it.
func withoutGap(parts []string, gap string) []string {
	last := len(parts) - 1
	if gap == "" || last < 0 || parts[last] == gap || !strings.HasSuffix(parts[last], gap) {
		return parts
	}
	parts = slices.Clone(parts)
	parts[last] = strings.TrimSuffix(parts[last], gap)
	return parts
}

func (t *traits) callValue(c call) jinja.Value {
	function := jinja.NewDict(2)
	function.Set("name", c.name)
	if t.stringArguments {
		function.Set("arguments", c.text())
	} else {
		function.Set("arguments", c.object())
	}
	d := jinja.NewDict(3)
	d.Set("id", t.callID(c.id))
	d.Set("type", "function")
	d.Set("function", function)
	return d
}

// text returns the arguments as they came, or, of a tool that takes free text,
// as the object that its schema describes.
func (c *call) text() string {
	switch {
	case c.custom:
		s, _ := jinja.ToJSON(c.object()) // a dict of strings always has a JSON form
		return s
	case c.args == "":
		return "{}"
	}
	return c.guard.text(c.args)
}

// object returns the arguments as a dict. History is never refused: text that
// is not JSON is shown under a key that says so.
func (c *call) object() jinja.Value {
	d := jinja.NewDict(1)
	switch {
	case c.custom:
		d.Set("input", c.guard.text(c.args))
		return d
	case strings.TrimSpace(c.args) == "":
		return d
	}
	v, err := jinja.FromJSON([]byte(c.args))
	if err != nil {
		d.Set("__invalid_json", c.guard.text(c.args))
		return d
	}
	if object, ok := v.(*jinja.Dict); ok {
		return c.guard.value(object)
	}
	return d
}

// callID returns the id as it is, or for templates that insist on nine letters
// or digits, one made of it.
func (t *traits) callID(id string) string {
	if !t.shortIDs || isShortID(id) {
		return id
	}
	const n = 9
	sum := sha256.Sum256([]byte(id))
	digits := new(big.Int).SetBytes(sum[:]).Text(62)
	return (digits + strings.Repeat("0", n))[:n]
}

func isShortID(id string) bool {
	return len(id) == 9 && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}
