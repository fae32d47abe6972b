package openai

import (
	"net/http"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// message is one element of messages, read but not yet checked: members come in
// any order, and what they may hold depends on the role.
type message struct {
	role, name string
	hasContent bool // present, null included
	content    []part
	reasoning  []string
	other      []string // member "reasoning": the second spelling
	refusal    string
	calls      []chat.ToolUse
	legacyCall *chat.ToolUse
	callID     *string
}

// messageParts is what there may be only so many of in one body.
const messageParts = "messages, content parts and tool calls"

func readMessages(r *wire.Reader, b *body) error {
	b.messages = nil
	if null, err := r.Null(); null {
		return err
	}
	return r.Array("an array of messages", func(int) error {
		if err := b.count.Take(r, messageParts); err != nil {
			return err
		}
		b.messages = append(b.messages, message{})
		return readMessage(r, &b.messages[len(b.messages)-1], &b.count)
	})
}

func readMessage(r *wire.Reader, m *message, count *wire.Tally) error {
	return r.Object("a message object", func(name []byte) (err error) {
		switch string(name) {
		case "role":
			m.role, err = r.Text("a string")
		case "content":
			m.hasContent = true
			m.content, err = readContent(r, count)
		case "name":
			err = wire.Nullable(r, &m.name, wire.Text)
		case "reasoning_content":
			m.reasoning, err = readReasoning(r, count)
		case "reasoning":
			if k := r.Kind(); k != '"' && k != '[' {
				return r.Skip()
			}
			m.other, err = readReasoning(r, count)
		case "refusal":
			err = wire.Nullable(r, &m.refusal, wire.Text)
		case "tool_calls":
			m.calls, err = readToolCalls(r, count)
		case "function_call":
			m.legacyCall, err = readLegacyCall(r)
		case "tool_call_id":
			var id string
			err = wire.Nullable(r, &id, wire.Text)
			m.callID = &id
		default:
			err = r.Skip()
		}
		return err
	})
}

// readReasoning reads one text, or segments: segment i stands before tool call
// i, and the last one after all of them.
func readReasoning(r *wire.Reader, count *wire.Tally) ([]string, error) {
	switch r.Kind() {
	case 'n':
		return nil, r.Skip()
	case '[':
		var out []string
		err := r.Array("an array of strings", func(int) error {
			if err := count.Take(r, messageParts); err != nil {
				return err
			}
			s := ""
			err := wire.Nullable(r, &s, wire.Text)
			out = append(out, s)
			return err
		})
		return out, err
	}
	s, err := r.Text("a string or an array of strings")
	return []string{s}, err
}

// readToolCalls reads the calls of an assistant turn. Arguments are kept as
// they are, whatever they are: a bad call must not end the session.
func readToolCalls(r *wire.Reader, count *wire.Tally) ([]chat.ToolUse, error) {
	if null, err := r.Null(); null {
		return nil, err
	}
	var calls []chat.ToolUse
	err := r.Array("an array of tool calls", func(int) error {
		if err := count.Take(r, messageParts); err != nil {
			return err
		}
		use := chat.ToolUse{Kind: chat.ToolFunction}
		err := r.Object("a tool call object", func(name []byte) (err error) {
			switch string(name) {
			case "id":
				err = wire.Nullable(r, &use.ID, wire.Text)
			case "function":
				err = readCalled(r, &use)
			case "custom":
				use.Kind = chat.ToolCustom
				err = readCalled(r, &use)
			default:
				err = r.Skip()
			}
			return err
		})
		calls = append(calls, use)
		return err
	})
	return calls, err
}

func readLegacyCall(r *wire.Reader) (*chat.ToolUse, error) {
	if null, err := r.Null(); null {
		return nil, err
	}
	use := &chat.ToolUse{Kind: chat.ToolFunction}
	return use, readCalled(r, use)
}

// readCalled reads {name, arguments}, or {name, input} of a custom tool.
func readCalled(r *wire.Reader, use *chat.ToolUse) error {
	return r.Object("an object", func(name []byte) (err error) {
		switch string(name) {
		case "name":
			err = wire.Nullable(r, &use.Name, wire.Text)
		case "arguments", "input":
			use.Args, err = wire.Loose(r)
		default:
			err = r.Skip()
		}
		return err
	})
}

// chatCall checks a chat body and makes its call.
func (b *body) chatCall(o Options) (*Call, error) {
	c, err := b.call(o, chat.APIChat)
	if err != nil {
		return nil, err
	}
	if err := b.checkLegacy(); err != nil {
		return nil, err
	}
	s, err := b.sampling()
	if err != nil {
		return nil, err
	}
	if err := b.chatLogprobs(c, &s); err != nil {
		return nil, err
	}
	if b.audioOut {
		return nil, wire.Unsupported("modalities", "modalities: audio output is not supported")
	}
	turns, err := b.turns()
	if err != nil {
		return nil, err
	}
	choice, err := b.choice()
	if err != nil {
		return nil, err
	}
	format, err := b.outputFormat(choice)
	if err != nil {
		return nil, err
	}
	think, args, err := b.normaliseThinking()
	if err != nil {
		return nil, err
	}
	ext, err := b.extension(c, o, s.Choices())
	if err != nil {
		return nil, err
	}
	if err := applyExtension(ext, &s); err != nil {
		return nil, err
	}
	request := &chat.Request{
		API: chat.APIChat, Model: b.model, Turns: turns,
		Tools: b.tools, ToolChoice: choice, Thinking: think, Output: format,
		Sampling: s, TemplateArgs: args, Metadata: b.metadata, KeepCached: wire.KeepCached(b.promptCacheRetention),
	}
	if ext != nil && ext.MaxThinkingTokens != nil {
		request.Thinking.Budget = intPointer(*ext.MaxThinkingTokens)
	}
	c.Ext, c.choices, c.dispatch = ext, s.Choices(), dispatchOf(o, ext)
	c.namedToolStop = c.namedToolStop && choice.Mode == chat.ToolNamed
	c.Requests = []*chat.Request{request}
	return c, nil
}

func (b *body) checkLegacy() error {
	for _, old := range []struct {
		name, instead string
		value         []byte
	}{{"function_call", "tool_choice", b.functionCall}, {"functions", "tools", b.functions}} {
		if old.value != nil {
			e := wire.Unsupported(old.name, "`%s` is deprecated. Please migrate to use `%s` instead.", old.name, old.instead)
			e.Status = http.StatusNotImplemented
			return e
		}
	}
	return nil
}

// chatLogprobs asks the engine for one alternative at least, and shows as many
// as the client asked for.
func (b *body) chatLogprobs(c *Call, s *chat.Sampling) error {
	if k := b.topLogprobs; k != nil {
		switch {
		case *k < 0 || *k > 20:
			return wire.Invalid("top_logprobs", "Top_logprobs must be between 0 and 20, got %d", *k)
		case !isTrue(b.logprobs):
			return wire.Invalid("top_logprobs", "top_logprobs is only allowed when logprobs is true")
		}
		c.topLogprobs = int(*k)
	}
	if isTrue(b.logprobs) {
		k := max(1, c.topLogprobs)
		s.Logprobs, c.showLogprobs = &k, true
	}
	return nil
}

// turns makes the messages into turns.
func (b *body) turns() ([]chat.Turn, error) {
	if len(b.messages) == 0 {
		return nil, wire.Missing("messages", "The 'messages' field cannot be empty. At least one message is required.")
	}
	turns := make([]chat.Turn, len(b.messages))
	// From here on, user messages are the newest user turn: no answer stands
	// behind them, so that the client can still mend what is refused.
	newest := len(b.messages)
	for newest > 0 && b.messages[newest-1].role != "assistant" {
		newest--
	}
	for i := range b.messages {
		m := &b.messages[i]
		in := partContext{path: index("messages", i), model: b.model}
		var err error
		switch m.role {
		case "system", "developer":
			in.strict, in.textOnly = true, true
			turns[i], err = m.plain(chat.Role(m.role), in)
		case "user":
			in.strict = i >= newest
			turns[i], err = m.plain(chat.RoleUser, in)
		case "assistant":
			turns[i], err = m.assistant(in)
		case "tool", "function":
			turns[i], err = m.result(in)
		case "":
			err = wire.Missing(in.path+".role", "%s.role is required", in.path)
		default:
			err = wire.Invalid(in.path+".role", "%s.role must be one of system, developer, user, assistant, tool, function, got %q", in.path, wire.Clip(m.role))
		}
		if err != nil {
			return nil, err
		}
	}
	return turns, nil
}

// plain makes a turn that is nothing but its content.
func (m *message) plain(role chat.Role, in partContext) (chat.Turn, error) {
	if m.content == nil {
		path := in.path + ".content"
		return chat.Turn{}, wire.Missing(path, "%s is required: a string or an array of content parts", path)
	}
	blocks, err := in.blocks(m.content)
	return chat.Turn{Role: role, Name: m.name, Blocks: blocks}, err
}

func (m *message) assistant(in partContext) (chat.Turn, error) {
	content, err := in.blocks(m.content)
	if err != nil {
		return chat.Turn{}, err
	}
	thoughts := m.reasoning
	if thoughts == nil {
		thoughts = m.other
	}
	blocks := make([]chat.Block, 0, len(thoughts)+len(content)+len(m.calls)+2)
	think := func(s string) {
		if s != "" {
			blocks = append(blocks, chat.Block{Kind: chat.Thought, Text: s})
		}
	}
	segmented := len(m.calls) > 0 && len(thoughts) == len(m.calls)+1
	if segmented {
		think(thoughts[0])
	} else {
		for _, s := range thoughts {
			think(s)
		}
	}
	blocks = append(blocks, content...)
	if m.refusal != "" {
		blocks = append(blocks, chat.Block{Kind: chat.Refusal, Text: m.refusal})
	}
	for i := range m.calls {
		if segmented && i > 0 {
			think(thoughts[i])
		}
		blocks = append(blocks, called(&m.calls[i]))
	}
	if segmented {
		think(thoughts[len(m.calls)])
	}
	if m.legacyCall != nil {
		blocks = append(blocks, called(m.legacyCall))
	}
	return chat.Turn{Role: chat.RoleAssistant, Name: m.name, Blocks: blocks}, nil
}

// called makes a block of a call. One of nothing, as some models make it, cannot be
// shown.
func called(use *chat.ToolUse) chat.Block {
	if use.Name == "" {
		return chat.Block{Kind: chat.Opaque}
	}
	return chat.Block{Kind: chat.ToolCall, Use: use}
}

// result makes the turn of a tool's answer. Content may be absent: tools do
// answer nothing.
func (m *message) result(in partContext) (chat.Turn, error) {
	result := &chat.Result{Name: m.name}
	switch {
	case m.role == "function":
		if m.name == "" {
			return chat.Turn{}, wire.Missing(in.path+".name", "%s.name is required", in.path)
		}
	case m.callID == nil || *m.callID == "":
		return chat.Turn{}, wire.Missing(in.path+".tool_call_id", "%s.tool_call_id is required", in.path)
	default:
		result.ID = *m.callID
	}
	var err error
	result.Blocks, err = in.blocks(m.content)
	return chat.Turn{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: result}}}, err
}
