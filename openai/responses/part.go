package responses

import (
	"encoding/base64"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// part is one piece of content, read but not yet checked.
type part struct {
	index int    // in its array; -1 for content that is a string
	kind  string // its type
	text  string // of the members text and refusal
	mark  bool   // the client expects the prompt to stay cached up to here
	wire  []byte // the whole part as it came
}

// itemParts is what there may be only so many of in one body.
const itemParts = "items and content parts"

// readParts reads a string, an array of parts, or null. Where the value is
// something else, or holds something else, fault says so; whether that matters
// is for the type of the item to say.
func readParts(r *wire.Reader, count *wire.Tally) (parts []part, fault, err error) {
	switch r.Kind() {
	case 'n':
		return nil, nil, r.Skip()
	case '"':
		s, err := r.Text("a string")
		return []part{{index: -1, kind: "text", text: s}}, nil, err
	case '[':
	default:
		err := r.Mistyped("a string or an array of content parts")
		if _, ok := err.(*wire.Error); ok {
			return nil, err, nil
		}
		return nil, nil, err
	}
	err = r.Array("an array of content parts", func(i int) error {
		if err := count.Take(r, itemParts); err != nil {
			return err
		}
		switch r.Kind() {
		case '{':
			p := part{index: i}
			err := p.read(r)
			parts = append(parts, p)
			return err
		case '"':
			s, err := r.Text("a string")
			parts = append(parts, part{index: i, kind: "text", text: s})
			return err
		}
		err := r.Mistyped("a content part object")
		if _, ok := err.(*wire.Error); ok {
			if fault == nil {
				fault = err
			}
			return nil
		}
		return err
	})
	return parts, fault, err
}

// read reads the members of parts that are text. What others hold is looked at
// once their type is known.
func (p *part) read(r *wire.Reader) error {
	raw, err := r.ObjectRaw("a content part object", func(name []byte) (err error) {
		switch string(name) {
		case "type":
			p.kind, err = wire.Loose(r)
		case "text", "refusal":
			p.text, err = wire.Loose(r)
		case "prompt_cache_breakpoint":
			p.mark = r.Kind() == '{'
			err = r.Skip()
		default:
			err = r.Skip()
		}
		return err
	})
	p.wire = raw
	return err
}

// contents makes parts blocks. It notes what has no form here, and where the
// client marked the prompt.
func (d *draft) contents(parts []part, member string) []chat.Block {
	if len(parts) == 0 {
		return nil
	}
	blocks := make([]chat.Block, 0, len(parts))
	for i := range parts {
		p := &parts[i]
		b, fault := p.block(func() string { return index(d.path()+"."+member, p.index) })
		if fault != nil && d.fault == nil {
			d.fault = fault
		}
		if b.Kind == chat.Opaque {
			d.strange = append(d.strange, "content.type="+wire.Clip(p.kind))
		}
		if b.Kind == chat.Text && b.Text == "" && p.index < 0 {
			continue
		}
		blocks = append(blocks, b)
		if p.mark {
			d.marks = append(d.marks, len(blocks)-1)
		}
	}
	return blocks
}

// block makes a part a block: an opaque one if it cannot be served, with the
// reason why if a client is to hear of that.
func (p *part) block(path func() string) (chat.Block, *wire.Error) {
	switch p.kind {
	case "input_text", "output_text", "text", "summary_text", "reasoning_text":
		return chat.Block{Kind: chat.Text, Text: p.text}, nil
	case "refusal":
		return chat.Block{Kind: chat.Refusal, Text: p.text}, nil
	case "input_image":
		return p.image(path)
	case "input_file":
		return p.file(path)
	case "":
		at := path() + ".type"
		return p.opaque(), wire.Missing(at, "%s is required", at)
	case "input_audio":
		return p.opaque(), wire.Unsupported(path(), "audio input is not supported: %s", path())
	}
	return p.opaque(), nil
}

// opaque keeps a part as it came.
func (p *part) opaque() chat.Block {
	return chat.Block{Kind: chat.Opaque, Wire: wire.CleanRaw(p.wire)}
}

// source reads the members of an image or a file.
func (p *part) source() (found struct{ imageURL, id, data, url, name, detail string }) {
	r := wire.NewReader(p.wire, "")
	r.Object("an object", func(name []byte) (err error) { //nolint:errcheck // it was read once before
		switch string(name) {
		case "image_url":
			if r.Kind() == '{' { // as in chat completions
				return r.Object("an object", func(name []byte) (err error) {
					if string(name) != "url" {
						return r.Skip()
					}
					found.imageURL, err = wire.Loose(r)
					return err
				})
			}
			found.imageURL, err = wire.Loose(r)
		case "file_id":
			found.id, err = wire.Loose(r)
		case "file_data":
			found.data, err = wire.Loose(r)
		case "file_url":
			found.url, err = wire.Loose(r)
		case "filename":
			found.name, err = wire.Loose(r)
		case "detail":
			found.detail, err = wire.Loose(r)
		default:
			err = r.Skip()
		}
		return err
	})
	return found
}

func (p *part) image(path func() string) (chat.Block, *wire.Error) {
	from := p.source()
	switch {
	case from.imageURL != "":
		m := &chat.Media{Detail: from.detail, Path: path()}
		m.Source, m.MediaType, m.Data = wire.SplitDataURL(from.imageURL)
		return chat.Block{Kind: chat.Image, Media: m}, nil
	case from.id != "":
		return p.opaque(), wire.Unsupported(path()+".file_id", "%s.file_id is not supported: there is no file store; send the image as a data URL in image_url", path())
	}
	return p.opaque(), wire.Missing(path()+".image_url", "%s.image_url is required: a URL or a data URL", path())
}

// file takes a text in as text. Whatever else a file holds cannot be shown to a
// model here.
func (p *part) file(path func() string) (chat.Block, *wire.Error) {
	from := p.source()
	switch {
	case from.data == "" && from.id == "" && from.url == "":
		return p.opaque(), wire.Missing(path()+".file_data", "%s needs one of file_data, file_id and file_url", path())
	case from.data == "":
		return p.opaque(), wire.Unsupported(path(), "%s: files can only be sent as file_data with a data URL of type text/*", path())
	}
	_, mediaType, data := wire.SplitDataURL(from.data)
	text, err := base64.StdEncoding.DecodeString(data)
	if !strings.HasPrefix(mediaType, "text/") || err != nil {
		return p.opaque(), wire.Unsupported(path()+".file_data", "%s.file_data must be a base64 data URL of type text/*, got type %q", path(), wire.Clip(mediaType))
	}
	said := wire.CleanText(string(text))
	if from.name != "" {
		said = from.name + "\n" + said
	}
	return chat.Block{Kind: chat.Text, Text: said}, nil
}
