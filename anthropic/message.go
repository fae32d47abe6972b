package anthropic

import (
	"github.com/dynago/dynago/internal/wire"
)

// message is one element of messages, read but not yet checked.
type message struct {
	role    string
	content content
}

// content is a text or a list of blocks. What some tools of the provider answer
// is neither, and kept as it is.
type content struct {
	given  bool // present, and not null
	blocks []block
	other  []byte
}

// block is one block of content, with the members that any kind of block has:
// which of them mean something depends on the kind, which may come last.
type block struct {
	index int // in its array; -1 for content that is a string
	kind  string
	wire  []byte // the whole block as it came

	text      *string
	thinking  string
	signature string
	data      string
	title     string
	context   string
	id        string // of a call
	name      string
	callID    string // of the call that a result answers
	toolName  string
	input     []byte
	source    []byte
	content   content
	isError   bool
	mark      *mark
}

// parts is what there may be only so many of in one body.
const parts = "messages and content blocks"

func readMessages(r *wire.Reader, b *body) error {
	b.messages = nil
	if null, err := r.Null(); null {
		return err
	}
	return r.Array("an array of messages", func(int) error {
		if err := b.count.Take(r, parts); err != nil {
			return err
		}
		b.messages = append(b.messages, message{})
		m := &b.messages[len(b.messages)-1]
		return r.Object("a message object", func(name []byte) (err error) {
			switch string(name) {
			case "role":
				return wire.Nullable(r, &m.role, wire.Text)
			case "content":
				m.content, err = readContent(r, &b.count)
				return err
			}
			return r.Skip()
		})
	})
}

// readContent reads a string, an array of blocks, or null.
func readContent(r *wire.Reader, count *wire.Tally) (content, error) {
	switch r.Kind() {
	case 'n':
		return content{}, r.Skip()
	case '"':
		s, err := wire.Text(r)
		return content{given: true, blocks: []block{{index: -1, kind: "text", text: &s}}}, err
	case '[':
		c := content{given: true}
		err := r.Array("an array of content blocks", func(i int) error {
			if err := count.Take(r, parts); err != nil {
				return err
			}
			c.blocks = append(c.blocks, block{index: i})
			return c.blocks[i].read(r, count)
		})
		return c, err
	}
	return content{}, r.Mistyped("a string or an array of content blocks")
}

// read reads a block. What is no object has no type, and nothing else either.
func (b *block) read(r *wire.Reader, count *wire.Tally) (err error) {
	switch r.Kind() {
	case '"':
		b.kind = "text"
		return wire.Optional(r, &b.text, wire.Text)
	case '{':
		b.wire, err = r.ObjectRaw("a content block object", func(name []byte) error { return b.member(r, name, count) })
		return err
	}
	b.wire, err = r.Raw()
	return err
}

func (b *block) member(r *wire.Reader, name []byte, count *wire.Tally) (err error) {
	switch string(name) {
	case "type":
		return lenient(r, &b.kind, '"', wire.Text)
	case "text":
		if r.Kind() != '"' {
			b.text = nil
			return r.Skip()
		}
		return wire.Optional(r, &b.text, wire.Text)
	case "thinking":
		return lenient(r, &b.thinking, '"', wire.Text)
	case "signature":
		return lenient(r, &b.signature, '"', wire.Text)
	case "data":
		return lenient(r, &b.data, '"', wire.Text)
	case "title":
		return lenient(r, &b.title, '"', wire.Text)
	case "context":
		return lenient(r, &b.context, '"', wire.Text)
	case "id":
		return lenient(r, &b.id, '"', wire.Text)
	case "name":
		return lenient(r, &b.name, '"', wire.Text)
	case "tool_use_id":
		return lenient(r, &b.callID, '"', wire.Text)
	case "tool_name":
		return lenient(r, &b.toolName, '"', wire.Text)
	case "input":
		return wire.Nullable(r, &b.input, wire.Clean)
	case "source":
		return wire.Nullable(r, &b.source, wire.Clean)
	case "content":
		return b.readContent(r, count)
	case "is_error":
		b.isError = r.Kind() == 't'
		return r.Skip()
	case "cache_control":
		b.mark, err = readMark(r)
		return err
	}
	return r.Skip()
}

// readContent reads the content inside a block, which may be of any type.
func (b *block) readContent(r *wire.Reader, count *wire.Tally) (err error) {
	switch r.Kind() {
	case 'n', '"', '[':
		b.content, err = readContent(r, count)
		return err
	}
	b.content = content{given: true}
	b.content.other, err = wire.Clean(r)
	return err
}
