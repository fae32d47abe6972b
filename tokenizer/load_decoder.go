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

	stages []func() stage // the same, for what the steps cannot do
	staged bool           // there is such
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

// loadDecoder returns the chain of a text model, and nil for a byte-level one.
func loadDecoder(v jsontext.Value, byteLevel bool) (*chain, error) {
	if byteLevel {
		return nil, nil
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
	if err := c.load("decoder", v); err != nil {
		return nil, err
	}
	return c, checkGrowth("decoder", v)
}

// isByteLevel tells whether a decoder is that of byte-level models, alone.
func isByteLevel(v jsontext.Value) bool {
	kind, err := typeOf("decoder", v)
	if err != nil || kind != "Sequence" {
		return err == nil && kind == "ByteLevel"
	}
	all, err := loadDecoders("decoder", v)
	return err == nil && len(all) == 1 && isByteLevel(all[0])
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
		return c.loadReplace(path, v)
	case "ByteFallback":
		if c.fused || c.fallback || c.varies {
			c.staged = true
		} else {
			c.fallback = true
			c.before, c.after = c.after, nil
		}
		c.stage(func() stage { return &fallbackStage{} })
		return nil
	case "Fuse":
		c.fused = true
		return nil
	case "Strip":
		return c.loadStrip(path, v)
	case "ByteLevel":
		c.addStaged(func(token string, _ bool) string {
			b, _ := appendBytes(nil, token)
			return string(b)
		}, func() stage { return &alphabetStage{} })
		c.fused = true
		return nil
	case "BPEDecoder":
		return c.loadSuffix(path, v)
	case "CTC":
		return c.loadCTC(path, v)
	case "WordPiece":
		return c.loadWordPiece(path, v)
	case "Metaspace":
		return c.loadMetaspace(path, v)
	}
	return unsupported(path, kind)
}

// add adds a step that each token passes on its own.
func (c *chain) add(s step) {
	c.staged = c.staged || c.fused
	c.after = append(c.after, s)
	c.stage(func() stage { return &eachStage{show: s} })
}

// addStaged adds a stage that asks for more than one token at a time. Of a token
// alone, it shows what the step does.
func (c *chain) addStaged(s step, of func() stage) {
	c.staged = true
	c.after = append(c.after, s)
	c.stage(of)
}

// stage adds a stage. After Fuse all of the text is one token.
func (c *chain) stage(of func() stage) {
	if c.fused {
		c.stages = append(c.stages, func() stage { return &wholeStage{stage: of()} })
		return
	}
	c.stages = append(c.stages, of)
}

func (c *chain) loadReplace(path string, v jsontext.Value) error {
	f, err := readReplace(path, v)
	if err != nil {
		return err
	}
	replace, err := f.load(path)
	if err != nil {
		return err
	}
	show := func(token string, _ bool) string { return replace(token) }
	if !c.fused || f.Pattern.String == nil {
		c.add(show)
		return nil
	}
	c.staged = true
	c.after = append(c.after, show)
	c.stages = append(c.stages, func() stage { return &replaceStage{old: *f.Pattern.String, new: f.Content} })
	return nil
}

// loadSuffix reads the decoder of models whose words end in a suffix.
func (c *chain) loadSuffix(path string, v jsontext.Value) error {
	f := struct {
		Suffix string `json:"suffix"`
	}{"</w>"}
	if err := read(path, v, &f); err != nil {
		return err
	}
	if f.Suffix == "" {
		return fmt.Errorf("%s.suffix: must not be empty", path)
	}
	c.addStaged(func(token string, _ bool) string {
		return strings.ReplaceAll(token, f.Suffix, " ")
	}, func() stage { return &suffixStage{suffix: f.Suffix} })
	return nil
}

// loadCTC reads the decoder of models that say a token again until it changes.
func (c *chain) loadCTC(path string, v jsontext.Value) error {
	f := struct {
		Pad       string `json:"pad_token"`
		Delimiter string `json:"word_delimiter_token"`
		Cleanup   bool   `json:"cleanup"`
	}{"<pad>", "|", true}
	if err := read(path, v, &f); err != nil {
		return err
	}
	if f.Pad == "" || f.Delimiter == "" {
		return fmt.Errorf("%s: pad_token and word_delimiter_token must not be empty", path)
	}
	show := func(token string, _ bool) string {
		token = strings.ReplaceAll(token, f.Pad, "")
		if f.Cleanup {
			token = strings.ReplaceAll(cleanup(token), f.Delimiter, " ")
		}
		return token
	}
	c.addStaged(show, func() stage { return &repeatStage{show: show} })
	return nil
}

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
	c.staged = c.staged || f.Stop > 0 || c.strips > 0
	c.stages = append(c.stages, func() stage {
		return &stripStage{content: f.Content, start: f.Start, stop: f.Stop}
	})
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
