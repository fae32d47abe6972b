package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokData
	tokBlockBegin
	tokBlockEnd
	tokPrintBegin
	tokPrintEnd
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

type token struct {
	kind tokenKind
	text string // of a string: what it denotes
	line int
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "end of template"
	case tokBlockEnd:
		return "'%}'"
	case tokPrintEnd:
		return "'}}'"
	case tokString:
		return strconv.Quote(t.text)
	}
	return "'" + t.text + "'"
}

// lexer cuts a template into tokens and settles all white space on the way, as
// Jinja does with trim_blocks and lstrip_blocks: the newline after a block or
// comment goes, and so does the blank before one that begins a line, and each
// tag's "-" or "+" decides otherwise.
type lexer struct {
	src    string
	pos    int
	line   int
	fresh  bool // what came before ended a line
	tokens []token
}

func lex(source string) ([]token, error) {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, fresh: true}
	l.tokens = make([]token, 0, len(source)/3+8)
	for l.pos < len(l.src) {
		if err := l.text(); err != nil {
			return nil, err
		}
	}
	l.emit(tokEOF, "")
	return l.tokens, nil
}

func (l *lexer) emit(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

// take consumes n bytes.
func (l *lexer) take(n int) string {
	s := l.src[l.pos : l.pos+n]
	l.pos += n
	l.line += strings.Count(s, "\n")
	if n > 0 {
		l.fresh = s[n-1] == '\n'
	}
	return s
}

func (l *lexer) rest() string { return l.src[l.pos:] }

func (l *lexer) skipSpace() {
	rest := l.rest()
	l.take(len(rest) - len(strings.TrimLeftFunc(rest, isSpace)))
}

func (l *lexer) fail(format string, a ...any) error {
	return at(fail(SyntaxError, format, a...), l.line)
}

// text reads literal text up to the next tag, and that tag.
func (l *lexer) text() error {
	n := tagStart(l.rest())
	if n < 0 {
		l.emit(tokData, l.rest())
		l.take(len(l.rest()))
		return nil
	}
	l.data(n)
	open := l.take(2)
	if open == "{#" {
		return l.comment()
	}
	if open == "{%" {
		if ok, err := l.raw(); ok || err != nil {
			return err
		}
	}
	l.sign()
	if open == "{{" {
		l.emit(tokPrintBegin, open)
		return l.code("}}", tokPrintEnd)
	}
	l.emit(tokBlockBegin, open)
	return l.code("%}", tokBlockEnd)
}

func tagStart(s string) int {
	for from := 0; ; {
		i := strings.IndexByte(s[from:], '{')
		if i < 0 || from+i+1 >= len(s) {
			return -1
		}
		from += i
		switch s[from+1] {
		case '{', '%', '#':
			return from
		}
		from++
	}
}

// data emits the n bytes before a tag, without the white space that the tag
// takes away.
func (l *lexer) data(n int) {
	fresh, line := l.fresh, l.line
	s := l.take(n)
	tag := l.rest()
	switch {
	case len(tag) > 2 && tag[2] == '-':
		s = strings.TrimRightFunc(s, isSpace)
	case len(tag) > 2 && tag[2] == '+' || tag[1] == '{':
	default:
		if start := strings.LastIndexByte(s, '\n') + 1; (start > 0 || fresh) && strings.TrimLeftFunc(s[start:], isSpace) == "" {
			s = s[:start]
		}
	}
	if s != "" {
		l.tokens = append(l.tokens, token{tokData, s, line})
	}
}

func (l *lexer) sign() {
	if rest := l.rest(); rest != "" && (rest[0] == '-' || rest[0] == '+') {
		l.take(1)
	}
}

// close consumes the end of a tag, if it stands here, with the white space
// that it takes away.
func (l *lexer) close(end string) bool {
	rest := l.rest()
	switch {
	case strings.HasPrefix(rest, "-"+end):
		l.take(1 + len(end))
		l.skipSpace()
	case end != "}}" && strings.HasPrefix(rest, "+"+end):
		l.take(1 + len(end))
	case strings.HasPrefix(rest, end):
		l.take(len(end))
		if end != "}}" && strings.HasPrefix(l.rest(), "\n") {
			l.take(1)
		}
	default:
		return false
	}
	return true
}

func (l *lexer) comment() error {
	l.sign()
	i := strings.Index(l.rest(), "#}")
	if i < 0 {
		return l.fail("missing end of comment tag")
	}
	if i > 0 && strings.ContainsRune("-+", rune(l.rest()[i-1])) {
		i--
	}
	l.take(i)
	l.close("#}")
	return nil
}

// raw reads a raw block, if one begins right after "{%".
func (l *lexer) raw() (bool, error) {
	n, ok := keyword(l.rest(), "raw")
	if !ok {
		return false, nil
	}
	switch rest := l.rest()[n:]; {
	case strings.HasPrefix(rest, "-%}"):
		l.take(n + 3)
		l.skipSpace()
	case strings.HasPrefix(rest, "%}"):
		l.take(n + 2)
	default:
		return false, nil
	}
	for from := 0; ; {
		i := strings.Index(l.rest()[from:], "{%")
		if i < 0 {
			return true, l.fail("missing end of raw directive")
		}
		from += i
		n, ok := keyword(l.rest()[from+2:], "endraw")
		end := l.rest()[from+2+n:]
		if !ok || !strings.HasPrefix(strings.TrimLeft(end, "-+"), "%}") {
			from += 2
			continue
		}
		l.data(from)
		l.take(2 + n)
		l.close("%}")
		return true, nil
	}
}

// keyword measures a tag's sign, white space, word, white space.
func keyword(s, word string) (int, bool) {
	t := s
	if t != "" && (t[0] == '-' || t[0] == '+') {
		t = t[1:]
	}
	t, ok := strings.CutPrefix(strings.TrimLeftFunc(t, isSpace), word)
	if !ok {
		return 0, false
	}
	return len(s) - len(strings.TrimLeftFunc(t, isSpace)), true
}

// code reads tokens up to the end of a tag.
func (l *lexer) code(end string, kind tokenKind) error {
	var open []byte
	for {
		l.skipSpace()
		if l.pos >= len(l.src) {
			return l.fail("unexpected end of template, expected '%s'", end)
		}
		if len(open) == 0 {
			line := l.line
			if l.close(end) {
				l.tokens = append(l.tokens, token{kind, end, line})
				return nil
			}
		}
		if err := l.token(); err != nil {
			return err
		}
		last := l.tokens[len(l.tokens)-1]
		if last.kind != tokOp {
			continue
		}
		switch last.text {
		case "(", "[", "{":
			open = append(open, last.text[0])
		case ")", "]", "}":
			if len(open) == 0 || closing(open[len(open)-1]) != last.text[0] {
				return l.fail("unexpected '%s'", last.text)
			}
			open = open[:len(open)-1]
		}
	}
}

func closing(open byte) byte {
	if open == '(' {
		return ')'
	}
	return open + 2
}

func (l *lexer) token() error {
	rest := l.rest()
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case r == '"' || r == '\'':
		return l.quoted()
	case '0' <= r && r <= '9':
		l.number()
		return nil
	case isWord(r):
		n := strings.IndexFunc(rest, func(r rune) bool { return !isWord(r) })
		if n < 0 {
			n = len(rest)
		}
		l.emit(tokName, rest[:n])
		l.take(n)
		return nil
	}
	for _, op := range []string{"//", "**", "==", "!=", ">=", "<="} {
		if strings.HasPrefix(rest, op) {
			l.emit(tokOp, op)
			l.take(2)
			return nil
		}
	}
	if !strings.ContainsRune("+-/*%~[](){}><=.:|,;", r) {
		return l.fail("unexpected character %q", r)
	}
	l.emit(tokOp, rest[:1])
	l.take(1)
	return nil
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

func (l *lexer) number() {
	rest := l.rest()
	if len(rest) > 2 && rest[0] == '0' && strings.ContainsRune("xXoObB", rune(rest[1])) {
		if n := 2 + digits(rest[2:], "0123456789abcdefABCDEF_"); n > 2 {
			l.emit(tokInt, rest[:n])
			l.take(n)
			return
		}
	}
	const decimal = "0123456789_"
	n, kind := digits(rest, decimal), tokInt
	afterDot := l.pos > 0 && l.src[l.pos-1] == '.'
	if !afterDot && n+1 < len(rest) && rest[n] == '.' && isDigit(rest[n+1]) {
		n += 1 + digits(rest[n+1:], decimal)
		kind = tokFloat
	}
	if !afterDot && n+1 < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
		m := n + 1
		if rest[m] == '+' || rest[m] == '-' {
			m++
		}
		if m < len(rest) && isDigit(rest[m]) {
			n = m + digits(rest[m:], decimal)
			kind = tokFloat
		}
	}
	l.emit(kind, rest[:n])
	l.take(n)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func digits(s, set string) int {
	n := 0
	for n < len(s) && strings.IndexByte(set, s[n]) >= 0 {
		n++
	}
	return n
}

func (l *lexer) quoted() error {
	rest := l.rest()
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case rest[0]:
			s, ok := unescape(rest[1:i])
			if !ok {
				return l.fail("invalid escape in string %s", rest[:i+1])
			}
			l.emit(tokString, s)
			l.take(i + 1)
			return nil
		}
	}
	return l.fail("unexpected char %q: string without end", rest[0])
}

// unescape resolves Python's backslash escapes; those that Python does not know
// stay as they are.
func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, true
	}
	const plain, meaning = `\'"abfnrtv`, "\\'\"\a\b\f\n\r\t\v"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		c := s[i]
		width := 0
		switch {
		case c == '\n':
			continue
		case strings.IndexByte(plain, c) >= 0:
			b.WriteByte(meaning[strings.IndexByte(plain, c)])
			continue
		case '0' <= c && c <= '7':
			n := min(3, digits(s[i:], "01234567"))
			v, _ := strconv.ParseUint(s[i:i+n], 8, 32)
			b.WriteRune(rune(v))
			i += n - 1
			continue
		case c == 'x':
			width = 2
		case c == 'u':
			width = 4
		case c == 'U':
			width = 8
		case c == 'N':
			return "", false
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
			continue
		}
		if i+width >= len(s) {
			return "", false
		}
		v, err := strconv.ParseUint(s[i+1:i+1+width], 16, 32)
		if err != nil || v > unicode.MaxRune {
			return "", false
		}
		b.WriteRune(rune(v))
		i += width
	}
	return b.String(), true
}
