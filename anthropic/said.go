package anthropic

import (
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// said makes blocks of what a user or a tool says: text, images, and documents,
// which are put among the text where they are some.
func (c *conversation) said(b *block, path string, now bool) ([]chat.Block, error) {
	switch b.kind {
	case "text":
		switch {
		case b.text != nil:
			return appendText(nil, *b.text), nil
		case now:
			return nil, noText(path, b)
		}
	case "image":
		s, err := b.readSource(&c.body.count)
		return b.media(&s, err, chat.Image, path, now)
	case "document":
		return c.document(b, path, now)
	case "search_result":
		head := b.title
		if where := b.sourceText(); where != "" {
			head += "\n" + where
		}
		return inlined(head, b.content.text()), nil
	case "tool_reference":
		if b.toolName != "" {
			return []chat.Block{{Kind: chat.ToolReference, Text: b.toolName}}, nil
		}
	}
	return []chat.Block{b.opaque()}, nil
}

// inlined makes text of a document.
func inlined(head, text string) []chat.Block {
	if head != "" {
		text = head + "\n" + text
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return appendText(nil, text)
}

// source is where an image or a document comes from.
type source struct {
	kind, mediaType, data, url, fileID string
	content                            content
}

func (b *block) readSource(count *wire.Tally) (source, error) {
	var s source
	r := wire.NewReader(b.source, "source")
	err := r.Object("an object", func(name []byte) (err error) {
		switch string(name) {
		case "type":
			return lenient(r, &s.kind, '"', wire.Text)
		case "media_type":
			return lenient(r, &s.mediaType, '"', wire.Text)
		case "data":
			return lenient(r, &s.data, '"', wire.Text)
		case "url":
			return lenient(r, &s.url, '"', wire.Text)
		case "file_id":
			return lenient(r, &s.fileID, '"', wire.Text)
		case "content":
			if k := r.Kind(); k != '"' && k != '[' {
				return r.Skip()
			}
			s.content, err = readContent(r, count)
			return err
		}
		return r.Skip()
	})
	return s, err
}

// sourceText returns a source that is a text: that of a search result.
func (b *block) sourceText() string {
	if len(b.source) == 0 || b.source[0] != '"' {
		return ""
	}
	return wire.Unquote(b.source)
}

func (s *source) media() *chat.Media {
	m := &chat.Media{Source: s.kind, MediaType: s.mediaType}
	switch s.kind {
	case "base64":
		m.Data = s.data
	case "url":
		m.Data = s.url
	case "file":
		m.Data = s.fileID
	}
	if m.Data == "" {
		return nil
	}
	return m
}

// media makes a block of an image or a document that is no text, of which reading
// the source may have failed.
func (b *block) media(s *source, err error, kind chat.Kind, path string, now bool) ([]chat.Block, error) {
	m, at := s.media(), index(path, b.index)
	switch {
	case now && (err != nil || m == nil):
		at += ".source"
		return nil, wire.Invalid(at, "%s: must be an object with type base64 and data, or type url and url", at)
	case now && s.kind == "file":
		at += ".source"
		return nil, wire.Unsupported(at, "%s: files are not kept here: send the %s itself", at, kind)
	case m == nil:
		return []chat.Block{b.opaque()}, nil
	}
	m.Path = at
	return []chat.Block{{Kind: kind, Media: m}}, nil
}

func (c *conversation) document(b *block, path string, now bool) ([]chat.Block, error) {
	s, err := b.readSource(&c.body.count)
	head := b.title
	if b.context != "" {
		head = strings.TrimPrefix(head+"\n"+b.context, "\n")
	}
	switch {
	case err != nil:
	case s.kind == "text":
		return inlined(head, s.data), nil
	case s.kind == "content":
		if head != "" {
			head += "\n"
		}
		out := appendText(nil, head)
		for i := range s.content.blocks {
			blocks, err := c.said(&s.content.blocks[i], index(path, b.index)+".source.content", now)
			if err != nil {
				return nil, err
			}
			out = append(out, blocks...)
		}
		return appendText(out, "\n"), nil
	}
	return b.media(&s, err, chat.Document, path, now)
}

// result makes a block of what a client's tool has answered. Tools do answer
// nothing, and results of calls that nobody made are shown all the same.
func (c *conversation) result(b *block, path string, now bool) (chat.Block, error) {
	result := &chat.Result{ID: b.callID, IsError: b.isError}
	at := index(path, b.index) + ".content"
	if b.content.other != nil {
		result.Blocks = appendText(nil, string(b.content.other))
	}
	for i := range b.content.blocks {
		in := &b.content.blocks[i]
		if in.mark != nil && b.mark == nil {
			b.mark = in.mark
		}
		blocks, err := c.said(in, at, now)
		if err != nil {
			return chat.Block{}, err
		}
		result.Blocks = append(result.Blocks, blocks...)
	}
	if c.markErrors && b.isError {
		markError(result)
	}
	return chat.Block{Kind: chat.ToolResult, Result: result}, nil
}

// markError says before a result that it is an error, unless it says so itself.
func markError(r *chat.Result) {
	const lead = "[error] "
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if b.Kind != chat.Text {
			continue
		}
		for _, word := range []string{"error", "fail", "exception", "traceback"} {
			if strings.Contains(strings.ToLower(b.Text), word) {
				return
			}
		}
		b.Text = lead + b.Text
		return
	}
	r.Blocks = append([]chat.Block{{Kind: chat.Text, Text: lead}}, r.Blocks...)
}

// text returns the texts of content, joined by line ends.
func (c *content) text() string {
	var out []string
	for i := range c.blocks {
		if s := c.blocks[i].text; s != nil {
			out = append(out, *s)
		}
	}
	return strings.Join(out, "\n")
}
