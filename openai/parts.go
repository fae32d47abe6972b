package openai

import (
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// part is one piece of content, read but not yet checked.
type part struct {
	index int    // in its array; -1 for content that is a string
	kind  string // its type
	text  string
	wire  []byte // the whole part as it came
}

// readContent reads a string, an array of parts, or null, for which it returns
// nil.
func readContent(r *wire.Reader, count *wire.Tally) ([]part, error) {
	switch r.Kind() {
	case 'n':
		return nil, r.Skip()
	case '"':
		s, err := r.Text("a string")
		return []part{{index: -1, kind: "text", text: s}}, err
	}
	parts := []part{}
	err := r.Array("a string or an array of content parts", func(i int) error {
		if err := count.Take(r, messageParts); err != nil {
			return err
		}
		p := part{index: i}
		err := p.read(r)
		parts = append(parts, p)
		return err
	})
	return parts, err
}

// read reads the members that text parts have and notes where the part stands;
// what other parts hold is looked at once the role is known.
func (p *part) read(r *wire.Reader) error {
	if r.Kind() == '"' {
		s, err := r.Text("a content part")
		p.kind, p.text = "text", s
		return err
	}
	wire, err := r.ObjectRaw("a content part object", func(name []byte) (err error) {
		switch string(name) {
		case "type":
			err = wire.Nullable(r, &p.kind, wire.Text)
		case "text":
			if k := r.Kind(); k != '"' && k != 'n' && p.kind != "text" {
				return r.Skip()
			}
			err = wire.Nullable(r, &p.text, wire.Text)
		default:
			err = r.Skip()
		}
		return err
	})
	p.wire = wire
	return err
}

// partContext is what decides about a part besides the part itself.
type partContext struct {
	path     string // of the message
	model    string
	strict   bool // refuse what cannot be served, instead of keeping it
	textOnly bool // refuse everything but text
}

// blocks checks parts and makes them blocks. History is never refused: what no
// one here knows is kept as an opaque block.
func (in partContext) blocks(parts []part) ([]chat.Block, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	blocks := make([]chat.Block, 0, len(parts))
	for i := range parts {
		b, err := in.block(&parts[i])
		if err != nil {
			return nil, err
		}
		if b.Kind != "" {
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

func (in partContext) block(p *part) (chat.Block, error) {
	path := index(in.path+".content", p.index)
	switch {
	case p.kind == "text" && p.text == "" && p.index < 0:
		return chat.Block{}, nil
	case p.kind == "text":
		return chat.Block{Kind: chat.Text, Text: p.text}, nil
	case p.kind == "":
		return chat.Block{}, wire.Missing(path+".type", "%s.type is required", path)
	case in.textOnly:
		return chat.Block{}, wire.Invalid(path+".type", "%s.type must be text, got %q", path, wire.Clip(p.kind))
	}
	switch p.kind {
	case "refusal", "thinking":
		return p.spoken(path)
	case "image_url", "file", "video_url", "audio_url", "input_audio":
	default:
		if in.strict {
			return chat.Block{}, wire.Invalid(path+".type", "%s.type %q is not a known content part", path, wire.Clip(p.kind))
		}
		return p.opaque(), nil
	}
	media, err := p.media(path)
	if err != nil {
		if in.strict {
			return chat.Block{}, err
		}
		return p.opaque(), nil
	}
	sense, kind := "image", chat.Image
	switch p.kind {
	case "file":
		sense, kind = "file", chat.Document
	case "video_url":
		sense, kind = "video", chat.Opaque
	case "audio_url", "input_audio":
		sense, kind = "audio", chat.Opaque
	}
	if in.strict && kind == chat.Opaque {
		return chat.Block{}, wire.Unsupported(path, "Model '%s' does not support %s input: %s", in.model, sense, path)
	}
	if kind == chat.Opaque {
		return p.opaque(), nil
	}
	media.Path = path
	return chat.Block{Kind: kind, Media: media}, nil
}

// opaque keeps a part as it came.
func (p *part) opaque() chat.Block {
	return chat.Block{Kind: chat.Opaque, Wire: wire.CleanRaw(p.wire)}
}

// spoken makes a part that is text under another name. A part in a shape of
// another vendor is kept opaque.
func (p *part) spoken(path string) (chat.Block, error) {
	kind := chat.Refusal
	if p.kind == "thinking" {
		kind = chat.Thought
	}
	r, said := wire.NewReader(p.wire, path), ""
	err := r.Object("an object", func(name []byte) (err error) {
		if string(name) == p.kind && r.Kind() == '"' {
			said, err = r.Text("a string")
			return err
		}
		return r.Skip()
	})
	if err != nil || said == "" {
		return p.opaque(), err
	}
	return chat.Block{Kind: kind, Text: said}, nil
}

// media reads where an image, a file or a recording comes from.
func (p *part) media(path string) (*chat.Media, error) {
	r, m, id := wire.NewReader(p.wire, path), new(chat.Media), ""
	source := func(name []byte) (err error) {
		s := ""
		switch string(name) {
		case "url", "file_data", "data":
			err = wire.Nullable(r, &s, wire.Text)
			m.Source, m.MediaType, m.Data = wire.SplitDataURL(s)
		case "file_id":
			err = wire.Nullable(r, &s, wire.Text)
			if s != "" {
				m.Source, m.Data = "file", s
			}
		case "detail":
			err = wire.Nullable(r, &m.Detail, wire.Text)
		default:
			err = r.Skip()
		}
		return err
	}
	err := r.Object("an object", func(name []byte) (err error) {
		switch {
		case string(name) == "uuid":
			err = wire.Nullable(r, &id, wire.Text)
		case string(name) != p.kind || r.Kind() == 'n':
			err = r.Skip()
		case r.Kind() == '"':
			s := ""
			s, err = r.Text("a string")
			m.Source, m.MediaType, m.Data = wire.SplitDataURL(s)
		default:
			err = r.Object("an object", source)
		}
		return err
	})
	if err == nil && m.Data == "" {
		m.Source, m.Data = "file", id
	}
	if err == nil && m.Data == "" {
		err = wire.Missing(path, "%s part has neither `url` nor `uuid`; at least one is required", path)
	}
	return m, err
}
