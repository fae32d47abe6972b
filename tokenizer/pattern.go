package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// dialect is the language of a regular expression.
type dialect int

const (
	oniguruma dialect = iota // of tokenizer.json
	rust                     // of tiktoken
)

// Spellings of split patterns for which there are scanners, besides those of
// knownPatterns.
const (
	spelledGPT2       = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	possessiveGPT2    = `'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`
	possessiveLlama3  = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	possessiveCL100k  = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`
	possessiveNumbers = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s`
)

var spellings = map[string]scanner{
	spelledGPT2:       scanGPT2,
	possessiveLlama3:  knownPatterns[PatternLlama3],
	possessiveNumbers: knownPatterns[PatternLlama3],
}

// rustSpellings mean something else to Oniguruma, whose $ is the end of a line
// and whose {1,3}+ is {1,3} again and again.
var rustSpellings = map[string]scanner{
	possessiveGPT2:   scanGPT2,
	possessiveCL100k: scanCL100kToEnd,
}

// scanner returns the scanner for a pattern.
func (d dialect) scanner(pattern string) (scanner, bool) {
	s, ok := knownPatterns[pattern]
	if !ok {
		s, ok = spellings[pattern]
	}
	if !ok && d == rust {
		s, ok = rustSpellings[pattern]
	}
	return s, ok
}

// scanCL100kToEnd is the pattern of cl100k that takes whitespace at the end of
// the text as a whole, newlines or not.
func scanCL100kToEnd(text string, i int) int {
	if c, _ := classAt(text, i); c&sp != 0 {
		if end, _, _ := whitespace(text, i); end == len(text) {
			return end
		}
	}
	return scanCL100k(text, i, 3, letter)
}

// translate writes a pattern in the language of the engine, which is that of
// .NET. It knows what split patterns use: possessive quantifiers, the ends of
// lines and texts, and properties, which it brings to the Unicode of our tables.
func translate(pattern string, d dialect) (string, error) {
	t := translator{in: pattern, dialect: d, atom: -1}
	for t.at < len(pattern) {
		if err := t.next(); err != nil {
			return "", err
		}
	}
	return string(t.out), nil
}

type translator struct {
	in      string
	at      int
	dialect dialect
	out     []byte
	atom    int   // where in out the last atom begins, or -1
	groups  []int // where in out the open groups begin
}

// copy takes n bytes over.
func (t *translator) copy(n int) {
	t.out = append(t.out, t.in[t.at:t.at+n]...)
	t.at += n
}

func (t *translator) next() error {
	switch c := t.in[t.at]; c {
	case '\\':
		t.atom = len(t.out)
		return t.escape(false)
	case '[':
		t.atom = len(t.out)
		return t.class()
	case '(':
		t.groups = append(t.groups, len(t.out))
		t.atom = -1
		t.copy(1)
		if strings.HasPrefix(t.in[t.at:], "?") {
			t.copy(1)
		}
		return nil
	case ')':
		if len(t.groups) == 0 {
			return errors.New("a ) has no (")
		}
		t.atom = t.groups[len(t.groups)-1]
		t.groups = t.groups[:len(t.groups)-1]
		t.copy(1)
		return nil
	case '?', '*', '+', '{':
		return t.quantifier()
	case '^', '$':
		t.anchor(c)
		return nil
	case '|':
		t.atom = -1
		t.copy(1)
		return nil
	}
	t.atom = len(t.out)
	_, n := utf8.DecodeRuneInString(t.in[t.at:])
	t.copy(n)
	return nil
}

func (t *translator) anchor(c byte) {
	t.at++
	t.atom = -1
	switch {
	case t.dialect == oniguruma:
		t.out = fmt.Appendf(t.out, "(?m:%c)", c)
	case c == '^':
		t.out = append(t.out, `\A`...)
	default:
		t.out = append(t.out, `\z`...)
	}
}

// quantifier wraps an atom with a possessive quantifier in an atomic group.
func (t *translator) quantifier() error {
	n := 1
	if t.in[t.at] == '{' {
		if n = interval(t.in[t.at:]); n == 0 {
			t.atom = len(t.out)
			t.out = append(t.out, '\\')
			t.copy(1)
			return nil
		}
	}
	if t.atom < 0 {
		// Such as (?i:, where it is none.
		t.copy(n)
		return nil
	}
	counted := t.in[t.at] == '{'
	t.copy(n)
	switch rest := t.in[t.at:]; {
	case strings.HasPrefix(rest, "?"):
		t.copy(1)
	case strings.HasPrefix(rest, "+"):
		t.at++
		start, end := "(?>", ")"
		if counted && t.dialect == oniguruma {
			start, end = "(?:", ")+"
		}
		atom := string(t.out[t.atom:])
		t.out = append(append(append(t.out[:t.atom], start...), atom...), end...)
	}
	return nil
}

// interval returns the length of {n}, {n,} or {n,m} at the start of s, or 0.
func interval(s string) int {
	end := strings.IndexByte(s, '}')
	if end < 2 || strings.Trim(s[1:end], "0123456789,") != "" || strings.Count(s[:end], ",") > 1 || s[1] == ',' {
		return 0
	}
	return end + 1
}

// class takes a class in brackets over.
func (t *translator) class() error {
	t.copy(1)
	if strings.HasPrefix(t.in[t.at:], "^") {
		t.copy(1)
	}
	if strings.HasPrefix(t.in[t.at:], "]") {
		t.out = append(t.out, '\\')
		t.copy(1)
	}
	for t.at < len(t.in) {
		switch rest := t.in[t.at:]; {
		case rest[0] == ']':
			t.copy(1)
			return nil
		case rest[0] == '\\':
			if err := t.escape(true); err != nil {
				return err
			}
		case rest[0] == '[':
			return errors.New("a class within a class is not supported")
		case strings.HasPrefix(rest, "&&"):
			return errors.New("an intersection of classes (&&) is not supported")
		default:
			_, n := utf8.DecodeRuneInString(rest)
			t.copy(n)
		}
	}
	return errors.New("a [ has no ]")
}

// escape takes a backslash and what it escapes over.
func (t *translator) escape(class bool) error {
	rest := t.in[t.at:]
	if len(rest) < 2 {
		return errors.New(`a \ escapes nothing`)
	}
	if end := strings.IndexByte(rest, '}'); strings.HasPrefix(rest, `\x{`) && end > 0 {
		r, err := strconv.ParseUint(rest[len(`\x{`):end], 16, 32)
		if err != nil || r > unicode.MaxRune {
			return fmt.Errorf("%s is no character", rest[:end+1])
		}
		if r < utf8.RuneSelf {
			t.out = fmt.Appendf(t.out, `\x%02x`, r)
		} else {
			t.out = utf8.AppendRune(t.out, rune(r))
		}
		t.at += end + 1
		return nil
	}
	for _, p := range properties() {
		if !strings.HasPrefix(rest, p.name) {
			continue
		}
		switch {
		case class:
			t.out = append(append(t.out, p.name...), p.later...)
		default:
			t.out = append(append(append(append(t.out, '['), p.name...), p.later...), ']')
		}
		t.at += len(p.name)
		return nil
	}
	// Any other property, such as \p{P}, is the engine's.
	if end := strings.IndexByte(rest, '}'); end > 0 && (strings.HasPrefix(rest, `\p{`) || strings.HasPrefix(rest, `\P{`)) {
		t.copy(end + 1)
		return nil
	}
	_, n := utf8.DecodeRuneInString(rest[1:])
	t.copy(1 + n)
	return nil
}

// property is a property that has gained characters since the Unicode of the
// engine, which is that of package unicode.
type property struct{ name, later string }

var properties = sync.OnceValue(func() []property {
	all := []property{{name: `\p{L}`}, {name: `\p{M}`}, {name: `\p{N}`}, {name: `\p{Lu}`}, {name: `\p{Ll}`}}
	sets := []class{letter, mk, nu, lu, ll}
	tables := []*unicode.RangeTable{unicode.L, unicode.M, unicode.N, unicode.Lu, unicode.Ll}
	for i := range all {
		var later []rune // first and last of each run
		for k, run := range classRuns {
			if run.class&sets[i] == 0 || k+1 == len(classRuns) {
				continue
			}
			for r := run.first; r < classRuns[k+1].first; r++ {
				// Title case counts as upper case in our tables alone.
				if unicode.Is(tables[i], r) || unicode.Is(unicode.Lt, r) {
					continue
				}
				if n := len(later); n > 0 && later[n-1] == r-1 {
					later[n-1] = r
				} else {
					later = append(later, r, r)
				}
			}
		}
		for k := 0; k < len(later); k += 2 {
			all[i].later += string(later[k]) + "-" + string(later[k+1])
		}
	}
	return all
})
