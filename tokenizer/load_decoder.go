package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// chain is how the tokens of a text model join to a text: each token passes the
// steps on its own, <0xNN> in a row become the bytes that they stand for, and
// the joined text may lose spaces at its start.
type chain struct {
	before   []step // before bytes are put together
	after    []step // after that
	fallback bool   // <0xNN> is a byte

	stripped string // the character that is stripped from the start of the text
	strips   int    // how many of it at most

	varies bool // the first token of a text differs
	fused  bool // while loading: tokens have been joined
}

// step turns a token into what it shows. The first token of a text can differ.
type step func(token string, first bool) string

// form returns what a token shows that is no byte of a run.
func (c *chain) form(token string, first bool) string {
	for _, s := range c.before {
		token = s(token, first)
	}
	if b, ok := c.byteOf(token); ok {
		return string([]byte{b})
	}
	return c.finish(token, first)
}

// finish is the part of form that bytes put together pass too.
func (c *chain) finish(token string, first bool) string {
	for _, s := range c.after {
		token = s(token, first)
	}
	return token
}

// isByte tells whether a token, as the vocabulary spells it, is a byte.
func (c *chain) isByte(token string) bool {
	for _, s := range c.before {
		token = s(token, false)
	}
	_, ok := c.byteOf(token)
	return ok
}

// byteOf returns the byte that <0xNN> stands for.
func (c *chain) byteOf(token string) (byte, bool) {
	if !c.fallback || len(token) != len("<0x00>") || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	high, okH := hexDigit(token[3])
	low, okL := hexDigit(token[4])
	return high<<4 | low, okH && okL
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// loadDecoder returns the chain of a text model, and nil for a byte-level one,
// whose decoder can only be ByteLevel.
func loadDecoder(v jsontext.Value, byteLevel bool) (*chain, error) {
	const path = "decoder"
	if byteLevel {
		return nil, checkByteLevel(path, v)
	}
	c := &chain{}
	if isNull(v) {
		c.varies = true
		c.add(func(token string, first bool) string {
			if first {
				return token
			}
			return " " + token
		})
		return c, nil
	}
	return c, c.load(path, v)
}

// checkByteLevel accepts the decoder of byte-level models.
func checkByteLevel(path string, v jsontext.Value) error {
	if isNull(v) {
		return fmt.Errorf("%s: must be a ByteLevel decoder", path)
	}
	kind, err := typeOf(path, v)
	if err != nil {
		return err
	}
	switch kind {
	case "ByteLevel":
		return nil
	case "Sequence":
		all, err := loadDecoders(path, v)
		if err != nil {
			return err
		}
		if len(all) != 1 {
			return fmt.Errorf("%s.decoders: must be one ByteLevel decoder", path)
		}
		return checkByteLevel(path+".decoders[0]", all[0])
	}
	return fmt.Errorf("%s.type: %q is not supported for a byte-level model", path, kind)
}

func loadDecoders(path string, v jsontext.Value) ([]jsontext.Value, error) {
	var seq struct {
		Decoders []jsontext.Value `json:"decoders"`
	}
	err := read(path, v, &seq)
	return seq.Decoders, err
}

func (c *chain) load(path string, v jsontext.Value) error {
	kind, err := typeOf(path, v)
	if err != nil {
		return err
	}
	// Of what follows joining, only stripping does not ask for the whole text.
	if c.fused && kind != "Strip" && kind != "Fuse" && kind != "Sequence" {
		return fmt.Errorf("%s.type: %q after Fuse is not supported", path, kind)
	}
	switch kind {
	case "Sequence":
		all, err := loadDecoders(path, v)
		if err != nil {
			return err
		}
		for i, v := range all {
			if err := c.load(fmt.Sprintf("%s.decoders[%d]", path, i), v); err != nil {
				return err
			}
		}
		return nil
	case "Replace":
		replace, err := loadReplace(path, v)
		c.add(func(token string, _ bool) string { return replace(token) })
		return err
	case "ByteFallback":
		if c.fallback {
			return fmt.Errorf("%s.type: a second ByteFallback is not supported", path)
		}
		if c.varies {
			return fmt.Errorf("%s.type: ByteFallback after what treats the first token differently is not supported", path)
		}
		c.fallback = true
		c.before, c.after = c.after, nil
		return nil
	case "Fuse":
		c.fused = true
		return nil
	case "Strip":
		return c.loadStrip(path, v)
	case "ByteLevel":
		return fmt.Errorf("%s.type: %q is not supported without a ByteLevel in pre_tokenizer", path, kind)
	case "WordPiece":
		return c.loadWordPiece(path, v)
	case "Metaspace":
		return c.loadMetaspace(path, v)
	}
	return unsupported(path, kind)
}

func (c *chain) add(s step) { c.after = append(c.after, s) }

func (c *chain) loadStrip(path string, v jsontext.Value) error {
	var f struct {
		Content string `json:"content"`
		Start   int    `json:"start"`
		Stop    int    `json:"stop"`
	}
	if err := read(path, v, &f); err != nil {
		return err
	}
	if utf8.RuneCountInString(f.Content) != 1 || f.Start < 0 || f.Stop < 0 {
		return fmt.Errorf("%s: must have one character as content, and start and stop of 0 or more", path)
	}
	if !c.fused {
		c.add(func(token string, _ bool) string {
			for i := 0; i < f.Start && strings.HasPrefix(token, f.Content); i++ {
				token = token[len(f.Content):]
			}
			for i := 0; i < f.Stop && strings.HasSuffix(token, f.Content); i++ {
				token = token[:len(token)-len(f.Content)]
			}
			return token
		})
		return nil
	}
	if f.Stop > 0 || c.strips > 0 {
		return fmt.Errorf("%s: stripping after Fuse is supported once, and at the start alone", path)
	}
	c.stripped, c.strips = f.Content, f.Start
	return nil
}

func (c *chain) loadMetaspace(path string, v jsontext.Value) error {
	f, err := loadMetaspace(path, v)
	if err != nil {
		return err
	}
	c.varies = true
	c.add(func(token string, first bool) string {
		if first && f.PrependScheme != prependNever {
			return strings.ReplaceAll(token, f.Replacement, "")
		}
		return strings.ReplaceAll(token, f.Replacement, " ")
	})
	return nil
}
