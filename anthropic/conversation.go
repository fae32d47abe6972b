package anthropic

import (
	"bytes"
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/envelope"
	"github.com/dynago/dynago/internal/wire"
)

// conversation makes turns of messages.
type conversation struct {
	body       *body
	envelope   *envelope.Box
	markErrors bool

	turns []chat.Turn
	marks []chat.Breakpoint
	// answered holds the ids of calls to the provider's own tools whose results
	// are there: only both together can be shown.
	answered map[string]bool
	// newest is the first message behind the last answer. What stands there the
	// client says now, and can mend if it is refused.
	newest int
}

// converse puts the system text and the messages into a request.
func (b *body) converse(r *chat.Request, o Options) error {
	c := &conversation{body: b, envelope: o.envelope(), markErrors: o.MarkErrors, newest: len(b.messages)}
	for c.newest > 0 && b.messages[c.newest-1].role != string(chat.RoleAssistant) {
		c.newest--
	}
	system, err := c.system(&b.system, "system", -1, true)
	if err != nil {
		return err
	}
	r.System = system
	c.findAnswers()
	for i := range b.messages {
		if err := c.message(&b.messages[i], i); err != nil {
			return err
		}
	}
	if n := len(c.turns); n > 0 && c.turns[n-1].Role == chat.RoleAssistant && len(c.turns[n-1].Blocks) == 0 {
		c.turns = c.turns[:n-1] // an answer that was begun with nothing
	}
	r.Turns = c.turns
	r.Cache = b.marks(c.marks, r)
	if isPrefill(r.Turns) {
		r.TemplateArgs = []byte(`{"continue_final_message":true}`)
	}
	return nil
}

// isPrefill says whether the client has begun the answer itself.
func isPrefill(turns []chat.Turn) bool {
	if len(turns) == 0 {
		return false
	}
	last := &turns[len(turns)-1]
	n := len(last.Blocks)
	return last.Role == chat.RoleAssistant && n > 0 && last.Blocks[n-1].Kind == chat.Text
}

// system makes blocks of system text. What is no text has no place there, and is
// kept without effect.
func (c *conversation) system(in *content, path string, turn int, now bool) ([]chat.Block, error) {
	out := make([]chat.Block, 0, len(in.blocks))
	for i := range in.blocks {
		switch b := &in.blocks[i]; {
		case b.kind == "text" && b.text == nil && now:
			return nil, noText(path, b)
		case b.kind == "text" && b.text != nil:
			out = appendText(out, *b.text)
		default:
			out = append(out, b.opaque())
		}
		c.mark(&in.blocks[i], turn, len(out), path)
	}
	return out, nil
}

func noText(path string, b *block) error {
	at := index(path, b.index) + ".text"
	return wire.Missing(at, "%s: must be a string", at)
}

// appendText appends a text, unless there is none: some templates make something
// of empty ones.
func appendText(blocks []chat.Block, s string) []chat.Block {
	if s == "" {
		return blocks
	}
	return append(blocks, chat.Block{Kind: chat.Text, Text: s})
}

// mark notes the mark of a block, as one of the last of n blocks of a turn.
func (c *conversation) mark(b *block, turn, n int, path string) {
	if b.mark == nil || n == 0 {
		return
	}
	c.body.warn(b.mark, index(path, b.index)+".cache_control")
	at := chat.Breakpoint{Turn: turn, Block: n - 1, TTL: b.mark.ttl}
	if last := len(c.marks) - 1; last >= 0 && c.marks[last].Turn == at.Turn && c.marks[last].Block == at.Block {
		c.marks[last].TTL = max(c.marks[last].TTL, at.TTL)
		return
	}
	c.marks = append(c.marks, at)
}

func (c *conversation) message(m *message, i int) error {
	path := index("messages", i)
	switch role := chat.Role(m.role); role {
	case chat.RoleSystem:
		if !m.content.given {
			return missing(path + ".content")
		}
		blocks, err := c.system(&m.content, path+".content", len(c.turns), i >= c.newest)
		if len(blocks) > 0 {
			c.turns = append(c.turns, chat.Turn{Role: role, Blocks: blocks})
		}
		return err
	case chat.RoleUser:
		if !m.content.given {
			return missing(path + ".content")
		}
		c.turns = append(c.turns, chat.Turn{Role: role, Blocks: make([]chat.Block, 0, len(m.content.blocks))})
	case chat.RoleAssistant:
		if len(m.content.blocks) == 0 {
			c.answer(0)
		}
	case "":
		return missing(path + ".role")
	default:
		return wire.Invalid(path+".role", "%s.role: must be user, assistant or system, got %q", path, wire.Clip(m.role))
	}
	path += ".content"
	for k := range m.content.blocks {
		b := &m.content.blocks[k]
		if m.role == string(chat.RoleAssistant) {
			if c.aside(b) {
				continue
			}
			c.answer(len(m.content.blocks) - k)
		}
		if err := c.block(b, path, i >= c.newest); err != nil {
			return err
		}
		turn := len(c.turns) - 1
		c.mark(b, turn, len(c.turns[turn].Blocks), path)
	}
	return nil
}

// answer makes the last turn one of the model. Messages of one answer may follow
// each other: they are one turn, as the model has made it. Those of a user are
// not, for what they say is not meant to run together.
func (c *conversation) answer(blocks int) {
	if n := len(c.turns); n == 0 || c.turns[n-1].Role != chat.RoleAssistant {
		c.turns = append(c.turns, chat.Turn{Role: chat.RoleAssistant, Blocks: make([]chat.Block, 0, blocks)})
	}
}

// last is the turn that blocks are added to.
func (c *conversation) last() *chat.Turn { return &c.turns[len(c.turns)-1] }

func (c *conversation) add(blocks ...chat.Block) {
	t := c.last()
	t.Blocks = append(t.Blocks, blocks...)
}

// block adds one block of a message to the conversation. Now says that the client
// says it now.
func (c *conversation) block(b *block, path string, now bool) error {
	switch b.kind {
	case "text", "image", "document", "search_result", "tool_reference":
		blocks, err := c.said(b, path, now)
		c.add(blocks...)
		return err
	case "thinking":
		c.add(c.thought(b, b.thinking, b.signature))
	case "redacted_thinking":
		c.add(c.thought(b, "", b.data))
	case "tool_use":
		c.add(b.call(chat.ToolFunction))
	case "tool_result":
		result, err := c.result(b, path, now)
		c.add(result)
		return err
	case "server_tool_use", "mcp_tool_use":
		if c.answered[b.id] {
			c.add(b.call(chat.ToolServer))
		} else {
			c.add(b.opaque())
		}
	case "":
		if now {
			return missing(index(path, b.index) + ".type")
		}
		c.add(b.opaque())
	default:
		c.add(b.opaque())
	}
	return nil
}

// aside takes a block of an answer that is not the model's own, and reports
// whether it is one.
func (c *conversation) aside(b *block) bool {
	switch {
	case b.kind == "compaction":
		return c.compact(b)
	case isServerResult(b) && c.answered[b.callID]:
		c.serverResult(b)
		return true
	}
	return false
}

// opaque keeps a block as it came.
func (b *block) opaque() chat.Block {
	return chat.Block{Kind: chat.Opaque, Wire: wire.CleanRaw(b.wire)}
}

// thought makes a block of a thought. A client that was not to see it has it in
// the envelope alone; one of another server is of no use then.
func (c *conversation) thought(b *block, text, envelope string) chat.Block {
	if text == "" {
		if opened, ok := c.envelope.Open(envelope); ok {
			text = opened.Text
		}
	}
	if text == "" {
		return b.opaque()
	}
	return chat.Block{Kind: chat.Thought, Text: text}
}

// call makes a block of a call, whatever its arguments are.
func (b *block) call(kind chat.ToolKind) chat.Block {
	if b.name == "" {
		return b.opaque()
	}
	return chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: b.id, Name: b.name, Kind: kind, Args: arguments(b.input)}}
}

// invalidJSON is the member that stands in for arguments that are no object.
const invalidJSON = "__invalid_json"

// arguments returns arguments as the model wrote them: an input that only says
// that they were no object says what they were.
func arguments(input []byte) string {
	switch {
	case len(input) == 0:
		return ""
	case input[0] == '"':
		return wire.Unquote(input)
	case !bytes.Contains(input[:min(len(input), 64)], []byte(invalidJSON)):
		return string(input)
	}
	r, broken, others := wire.NewReader(input, ""), "", 0
	err := r.Object("an object", func(name []byte) (err error) {
		if string(name) == invalidJSON && r.Kind() == '"' && others == 0 {
			broken, err = wire.Text(r)
			return err
		}
		others++
		return r.Skip()
	})
	if err != nil || broken == "" || others > 0 {
		return string(input)
	}
	return broken
}

// compact begins the conversation anew with what sums it up, if there is that.
func (c *conversation) compact(b *block) bool {
	summary := b.content.text()
	if summary == "" {
		return false
	}
	// Many templates want a user to begin.
	c.turns = []chat.Turn{{Role: chat.RoleUser, Blocks: appendText(nil, summary)}}
	c.marks = slices.DeleteFunc(c.marks, func(at chat.Breakpoint) bool { return at.Turn >= 0 })
	if b.mark != nil {
		c.marks = append(c.marks, chat.Breakpoint{TTL: b.mark.ttl})
	}
	return true
}
