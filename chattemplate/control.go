package chattemplate

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dynago/dynago/chattemplate/jinja"
)

// Controls are the texts of a model's control tokens, such as <|im_end|>: the
// structure of a prompt, which only its template may write. It is immutable and
// safe for concurrent use.
type Controls struct {
	texts []string
	heads [256]*head // by first byte
	pairs []string   // of bytes that begin texts
	start [256]bool  // bytes that begin a text
	only  int        // the one byte that begins all texts, or -1
	// tails are the ends of texts that begin with this byte, which is no letter or
	// digit. Each is there once, the shortest first.
	tails [256][]string
}

// head holds the texts that begin with the same byte.
type head struct {
	second [256]bool
	last   [256]bool // bytes that end a text
	known  map[string]bool
	sizes  []int // of texts, in bytes, longest first
}

// NewControls returns the set of these texts. Those of fewer than two characters
// cannot be told from text and are left out.
func NewControls(texts []string) *Controls {
	c := &Controls{only: -1}
	for _, s := range texts {
		if utf8.RuneCountInString(s) < 2 {
			continue
		}
		c.texts = append(c.texts, s)
		h := c.heads[s[0]]
		if h == nil {
			h = &head{known: map[string]bool{}}
			c.heads[s[0]], c.start[s[0]] = h, true
		}
		if !h.second[s[1]] {
			h.second[s[1]] = true
			c.pairs = append(c.pairs, s[:2])
		}
		h.known[s] = true
		h.last[s[len(s)-1]] = true
		if !slices.Contains(h.sizes, len(s)) {
			h.sizes = append(h.sizes, len(s))
		}
		for i := 1; i < len(s); i++ {
			if !alphanumeric(s[i]) {
				c.tails[s[i]] = append(c.tails[s[i]], s[i:])
			}
		}
	}
	for b, tails := range c.tails {
		slices.SortFunc(tails, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
		c.tails[b] = slices.Compact(tails)
	}
	if first := slices.Index(c.start[:], true); first >= 0 && !slices.Contains(c.start[first+1:], true) && len(c.pairs) > 1 {
		c.only = first
	}
	for _, pair := range c.pairs {
		slices.SortFunc(c.heads[pair[0]].sizes, func(a, b int) int { return cmp.Compare(b, a) })
	}
	return c
}

func alphanumeric(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

// Find returns the first control token in text[from:], the longest if several
// begin there, as text[start:end].
func (c *Controls) Find(text string, from int) (start, end int, ok bool) {
	for i := c.next(text, from); i < len(text); i = c.next(text, i+1) {
		if n := c.match(text[i:]); n > 0 {
			return i, i + n, true
		}
	}
	return 0, 0, false
}

const (
	// fewPairs are best sought one by one.
	fewPairs = 3
	// window is how far one is sought before the next, of several.
	window = 1024
)

// next returns the first place from i on where a control token could begin, or
// len(text).
func (c *Controls) next(text string, i int) int {
	for c.only >= 0 && i < len(text) {
		n := strings.IndexByte(text[i:], byte(c.only))
		if n < 0 {
			return len(text)
		}
		if i += n; i+1 == len(text) || c.heads[c.only].second[text[i+1]] {
			return i
		}
		i++
	}
	for i < len(text) && len(c.pairs) <= fewPairs {
		end := len(text)
		if len(c.pairs) > 1 {
			end = min(i+window, end)
		}
		found := end
		for _, pair := range c.pairs {
			if n := strings.Index(text[i:min(found+1, len(text))], pair); n >= 0 {
				found = i + n
			}
		}
		if found < end {
			return found
		}
		i = end
		if last := len(text) - 1; i == len(text) && c.start[text[last]] {
			return last
		}
	}
	for ; i < len(text); i++ {
		if c.start[text[i]] && (i+1 == len(text) || c.heads[text[i]].second[text[i+1]]) {
			return i
		}
	}
	return len(text)
}

// match returns the length of the longest control token that begins text.
func (c *Controls) match(text string) int {
	h := c.heads[text[0]]
	for _, n := range h.sizes {
		if n <= len(text) && h.last[text[n-1]] && h.known[text[:n]] {
			return n
		}
	}
	return 0
}

// opens tells that the control token, or what could become one together with
// text that a template leaves out or puts next to it, begins at text[i:].
// Beginnings in the middle of a text that are also those of common tags, <t or
// </, count only if the whole token follows.
func (c *Controls) opens(text string, i int) bool {
	rest := text[i:]
	switch {
	case len(rest) == 1:
		return true
	case !alphanumeric(rest[1]) && rest[1] != '/', c.match(rest) > 0:
		return true
	case len(rest) >= c.heads[rest[0]].sizes[0]:
		return false
	}
	return slices.ContainsFunc(c.texts, func(s string) bool { return strings.HasPrefix(s, rest) })
}

// closes tells that text begins with the rest of a control token, or is a piece
// out of the middle of one.
func (c *Controls) closes(text string) bool {
	return text != "" && slices.ContainsFunc(c.tails[text[0]], func(tail string) bool {
		return strings.HasPrefix(text, tail) || strings.HasPrefix(tail, text)
	})
}

// Letters of a script that no template is written in, alike but for the last byte. A mark is put inside what
// a client spelled like a control token, so that it is none while the template
// works on it; escape stands before either letter where the client wrote it.
// They are letters because Python prints these as they are.
const (
	inert  = "\U00010330"
	escape = "\U00010331"
)

// guard stands between what clients said and the template. It first looks
// whether there is anything to guard against; only then, in a second round, does
// it put marks. A nil guard does nothing.
type guard struct {
	controls *Controls
	marking  bool
	found    bool // something that must be marked
}

// text returns s as the template may see it.
func (g *guard) text(s string) string {
	switch {
	case g == nil:
		return s
	case g.marking:
		return g.mark(s)
	case !g.found:
		g.found = g.suspects(s)
	}
	return s
}

// suspects tells that mark would put marks.
func (g *guard) suspects(s string) bool {
	c := g.controls
	trimmed := strings.TrimRightFunc(s, unicode.IsSpace)
	for i := c.next(trimmed, 0); i < len(trimmed); i = c.next(trimmed, i+1) {
		if c.opens(trimmed, i) {
			return true
		}
	}
	return c.closes(strings.TrimLeftFunc(s, unicode.IsSpace))
}

// mark puts a mark behind the first character of everything in s that is, or may
// become, a control token, and one before what may become the end of one. Blanks
// around s are looked through: templates trim.
func (g *guard) mark(s string) string {
	if !strings.Contains(s, inert[:len(inert)-1]) && !g.suspects(s) {
		return s
	}
	c := g.controls
	var b strings.Builder
	trimmed := strings.TrimRightFunc(s, unicode.IsSpace)
	first := len(s) - len(strings.TrimLeftFunc(s, unicode.IsSpace))
	candidate := c.next(trimmed, 0)
	for i := 0; i < len(s); {
		if i == first && c.closes(s[i:]) {
			b.WriteString(inert)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		char := s[i : i+n]
		if char == inert || char == escape {
			b.WriteString(escape)
		}
		b.WriteString(char)
		if i == candidate {
			if i < len(trimmed) && c.opens(trimmed, i) {
				b.WriteString(inert)
			}
			candidate = c.next(trimmed, i+1)
		}
		i += n
		if candidate < i {
			candidate = c.next(trimmed, i)
		}
	}
	return b.String()
}

// value is text for all strings in v, which it leaves as it is.
func (g *guard) value(v jinja.Value) jinja.Value {
	if g == nil || !g.marking && g.found {
		return v
	}
	switch v := v.(type) {
	case string:
		return g.text(v)
	case *jinja.List:
		if !g.marking {
			for item := range v.All() {
				g.value(item)
			}
			return v
		}
		var items []jinja.Value
		for item := range v.All() {
			items = append(items, g.value(item))
		}
		return jinja.NewList(items...)
	case *jinja.Dict:
		if !g.marking {
			for key, item := range v.All() {
				g.value(key)
				g.value(item)
			}
			return v
		}
		d := jinja.NewDict(v.Len())
		for key, item := range v.All() {
			d.Set(g.value(key), g.value(item))
		}
		return d
	}
	return v
}

// unmarked takes the marks out of what a template wrote, and tells where they
// were.
func unmarked(text string) Rendered {
	var (
		b     strings.Builder
		marks []int
	)
	for {
		i := strings.Index(text, inert[:len(inert)-1])
		if i < 0 || i+len(inert) > len(text) {
			b.WriteString(text)
			return Rendered{Text: b.String(), Inert: marks}
		}
		b.WriteString(text[:i])
		char := text[i : i+len(inert)]
		text = text[i+len(inert):]
		switch char {
		case inert:
			marks = append(marks, b.Len())
		case escape:
			_, n := utf8.DecodeRuneInString(text)
			b.WriteString(text[:n])
			text = text[n:]
		default:
			b.WriteString(char)
		}
	}
}
