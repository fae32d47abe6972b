package mask

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// string is a string that the keywords of a branch let be.
func (s *schemas) string(b branch) (*expr, error) {
	inside, err := s.inside(b, loose)
	if err != nil {
		return nil, err
	}
	return stringOf(inside), nil
}

// inside is what stands between the quotes. With a pattern or a format each
// character is written in one way only, and so it is if it is compared with others.
func (s *schemas) inside(b branch, w writing) (*expr, error) {
	low, high, err := b.counts("minLength", "maxLength")
	if err != nil {
		return nil, err
	}
	var parts []*expr
	strict := w
	if w == loose {
		strict = quoted
	}
	for _, v := range b.all("pattern") {
		e, err := strict.ecma(v.text)
		if err != nil {
			return nil, fault(v, "%v", err)
		}
		parts = append(parts, e)
	}
	for _, v := range b.all("format") {
		pattern, ok := formats[v.text]
		if !ok {
			return nil, fault(v, "answers cannot be held to the format %q: known are %s", v.text, strings.Join(formatNames, ", "))
		}
		e, err := strict.pattern(pattern, false)
		if err != nil {
			return nil, fault(v, "%v", err)
		}
		parts = append(parts, e)
	}
	if len(parts) > 0 {
		w = strict
	}
	if len(parts) == 0 || low > 0 || high != noLimit {
		parts = append(parts, repeat(w.any(), low, high))
	}
	return and(parts...), nil
}

// plainText is a string that a branch lets be, as it is and without quotes.
func (s *schemas) plainText(b branch) (*expr, error) {
	if b.find("const", "enum") == nil {
		return s.inside(b, plain)
	}
	list, err := s.listed(b)
	var written []string
	for _, v := range list {
		if v.kind == '"' {
			written = append(written, v.text)
		}
	}
	slices.Sort(written)
	return texts(slices.Compact(written)), err
}

// ecma reads a pattern of a schema. Schemas have those of ECMAScript, where some
// classes are not those of RE2.
func (w writing) ecma(text string) (*expr, error) {
	translated, err := translate(text)
	if err != nil {
		return nil, err
	}
	rest, ok := strings.CutPrefix(translated, "^")
	if !ok || !strings.HasPrefix(rest, "(?=") && !strings.HasPrefix(rest, "(?!") {
		return w.pattern(translated, true)
	}
	return w.ahead(rest)
}

// ahead reads a pattern from the beginning of a text on, with what it looks ahead
// for. That is all the same as an intersection there.
func (w writing) ahead(text string) (*expr, error) {
	var parts []*expr
	for strings.HasPrefix(text, "(?=") || strings.HasPrefix(text, "(?!") {
		end := group(text)
		if end < 0 {
			return nil, errors.New("a look-ahead has no )")
		}
		e, err := w.pattern("^(?:"+text[3:end]+")", true)
		if err != nil {
			return nil, err
		}
		if text[2] == '!' {
			e = not(e)
		}
		parts = append(parts, e)
		text = text[end+1:]
	}
	if bar := scan(text, func(c byte, depth int) bool { return c == '|' && depth == 0 }); bar >= 0 {
		return nil, errors.New("alternatives behind a look-ahead have to stand in a group")
	}
	e, err := w.pattern("^(?:"+text+")", true)
	return and(append(parts, e)...), err
}

// group returns where the group ends that a pattern begins with, or -1.
func group(text string) int {
	return scan(text, func(c byte, depth int) bool { return c == ')' && depth == 0 })
}

// scan returns the place of the first character outside of classes and escapes that
// is the one, given how many groups are open behind it; or -1.
func scan(text string, is func(c byte, depth int) bool) int {
	depth, class := 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\':
			i++
			continue
		case class:
			class = c != ']'
			continue
		case c == '[':
			class = true
		case c == '(':
			depth++
		case c == ')':
			depth--
		}
		if is(c, depth) {
			return i
		}
	}
	return -1
}

// matches says whether a name has a match of the pattern that a schema is for.
func (s *schemas) matches(at *value, pattern, name string) (bool, error) {
	a := s.patterns[pattern]
	if a == nil {
		e, err := quoted.ecma(pattern)
		if err != nil {
			return false, fault(at, "%v", err)
		}
		if a, err = newArena(nil, alt(e, lit("\""))); err != nil { // never without texts
			return false, fault(at, "%v", err)
		}
		s.patterns[pattern] = a
	}
	match := false
	err := a.within(tokenFor, func() { match = a.read(a.root, []byte(quoted.spelled(name))).null })
	if err != nil {
		return false, fault(at, "%v", err)
	}
	return match, nil
}

// Blanks and all else, as they are written inside of a class. What counts as blank
// is not the same in all engines that check patterns; narrow is what does in each
// of them, and wide what does in any.
const (
	narrowBlanks = `\t\n\f\r `
	wideBlanks   = `\t-\r\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
	narrowOthers = `\x{0}-\x{8}\x{e}-\x{1b}!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}`
	wideOthers   = `\x{0}-\x{8}\x{b}\x{e}-\x{1f}!-\x{10ffff}`
)

// place is where in a pattern something stands.
type place uint8

const (
	outside place = iota
	inClass
	inNegated
)

// translate writes a pattern of ECMAScript in the syntax of RE2: blanks, dots, and
// characters by number.
func translate(text string) (string, error) {
	var b strings.Builder
	at := outside
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			n, err := escape(&b, text[i:], at)
			if err != nil {
				return "", err
			}
			i += n - 1
		case c == '[' && at != outside:
			b.WriteString(`\[`)
		case c == '[':
			at = inClass
			b.WriteByte(c)
			if strings.HasPrefix(text[i+1:], "^") {
				at = inNegated
				i++
				b.WriteByte('^')
			}
			if strings.HasPrefix(text[i+1:], "]") {
				return "", fmt.Errorf("the class [] or [^] in %q has no characters of its own", text)
			}
		case c == ']' && at != outside:
			at = outside
			b.WriteByte(c)
		case c == '.' && at == outside:
			b.WriteString(`[^\n\r\x{2028}\x{2029}]`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

// escape writes what stands behind a backslash, and returns its length.
func escape(b *strings.Builder, text string, at place) (int, error) {
	in := func(narrow, wide string) {
		switch at {
		case outside:
			b.WriteString("[" + narrow + "]")
		case inClass:
			b.WriteString(narrow)
		case inNegated:
			b.WriteString(wide)
		}
	}
	switch c := text[0]; c {
	case 's':
		in(narrowBlanks, wideBlanks)
	case 'S':
		in(narrowOthers, wideOthers)
	case 'u', 'x':
		n := 4
		if c == 'x' {
			n = 2
		}
		if strings.HasPrefix(text, "u{") {
			end := strings.IndexByte(text, '}')
			if end < 0 {
				return 0, fmt.Errorf(`\u{ has no }`)
			}
			b.WriteString(`\x` + text[1:end+1])
			return end + 1, nil
		}
		if len(text) < n+1 {
			return 0, fmt.Errorf(`\%c wants %d digits behind it`, c, n)
		}
		b.WriteString(`\x{` + text[1:n+1] + `}`)
		return n + 1, nil
	case 'Q', 'E', 'A', 'z', 'C', 'a':
		return 0, fmt.Errorf(`\%c is not in the patterns of JSON schemas`, c)
	case 'b':
		if at == outside {
			return 0, fmt.Errorf(`\b, a word boundary, is not followed`)
		}
		b.WriteString(`\x{8}`)
	case '0':
		b.WriteString(`\x{0}`)
	case '/', '-':
		if at != outside || c == '/' {
			b.WriteString(`\` + text[:1])
		} else {
			b.WriteByte(c)
		}
	default:
		b.WriteString(`\` + text[:1])
	}
	return 1, nil
}
