package mask

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// grammar reads a grammar in the notation of llama.cpp, GBNF, whose rule root is the
// answer. A rule may go on over several lines, as with XGrammar: it ends where the
// next one begins.
func grammar(source string, r *rules) (*expr, error) {
	words, err := lex(source)
	if err != nil {
		return nil, err
	}
	g := &grammarReader{words: words, rules: r, known: map[string]int32{}}
	return g.read()
}

// word is one piece of a grammar.
type word struct {
	kind wordKind
	line int
	text string // of a name or a mark
	expr *expr  // of a text or a class
	low  int    // of a count
	high int
}

type wordKind uint8

const (
	wordName wordKind = iota
	wordMark          // ::= | ( ) * + ?
	wordExpr
	wordCount
)

func lex(source string) ([]word, error) {
	if !utf8.ValidString(source) {
		return nil, errors.New("it is no UTF-8")
	}
	var words []word
	line := 1
	for source != "" {
		w, n := word{line: line}, 1
		var err error
		switch c := source[0]; {
		case c == '\n':
			line++
			source = source[1:]
			continue
		case c == ' ' || c == '\t' || c == '\r':
			source = source[1:]
			continue
		case c == '#':
			end := strings.IndexByte(source, '\n')
			if end < 0 {
				end = len(source)
			}
			source = source[end:]
			continue
		case strings.HasPrefix(source, "::="):
			w.kind, w.text, n = wordMark, "::=", 3
		case strings.ContainsRune("|()*+?", rune(c)):
			w.kind, w.text = wordMark, source[:1]
		case c == '.':
			w.kind, w.expr = wordExpr, plain.any()
		case c == '"' || c == '\'':
			w.kind = wordExpr
			w.expr, n, err = lexText(source, c)
		case c == '[':
			w.kind = wordExpr
			w.expr, n, err = lexClass(source)
		case c == '{':
			w.kind = wordCount
			w.low, w.high, n, err = lexCount(source)
		default:
			for n = 0; n < len(source) && isName(source[n]); n++ {
			}
			if w.text = source[:n]; n == 0 {
				r, _ := utf8.DecodeRuneInString(source)
				err = fmt.Errorf("%q has no meaning here", r)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		words = append(words, w)
		source = source[n:]
	}
	return words, nil
}

func isName(c byte) bool {
	return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func lexText(source string, quote byte) (*expr, int, error) {
	var b strings.Builder
	for i := 1; i < len(source); {
		if source[i] == quote {
			return lit(b.String()), i + 1, nil
		}
		r, n, err := lexChar(source[i:])
		if err != nil {
			return nil, 0, err
		}
		b.WriteRune(r)
		i += n
	}
	return nil, 0, errors.New("a text has no end")
}

func lexClass(source string) (*expr, int, error) {
	var class []rune
	i, negated := 1, false
	if strings.HasPrefix(source, "[^") {
		i, negated = 2, true
	}
	for i < len(source) && source[i] != ']' {
		low, n, err := lexChar(source[i:])
		if err != nil {
			return nil, 0, err
		}
		i += n
		high := low
		if i+1 < len(source) && source[i] == '-' && source[i+1] != ']' {
			if high, n, err = lexChar(source[i+1:]); err != nil {
				return nil, 0, err
			}
			i += 1 + n
		}
		if low > high {
			return nil, 0, fmt.Errorf("the range %q-%q is upside down", low, high)
		}
		class = append(class, low, high)
	}
	if i >= len(source) {
		return nil, 0, errors.New("a class has no end")
	}
	if negated {
		class = others(class)
	}
	return plain.chars(class), i + 1, nil
}

// others lists the characters that are not in a class.
func others(class []rune) []rune {
	ranges := slices.Collect(slices.Chunk(class, 2))
	slices.SortFunc(ranges, func(a, b []rune) int { return cmp.Compare(a[0], b[0]) })
	var rest []rune
	next := rune(0)
	for _, r := range ranges {
		if r[0] > next {
			rest = append(rest, next, r[0]-1)
		}
		next = max(next, r[1]+1)
	}
	if next <= unicode.MaxRune {
		rest = append(rest, next, unicode.MaxRune)
	}
	return rest
}

// lexChar reads one character of a text or a class.
func lexChar(source string) (rune, int, error) {
	if source[0] != '\\' {
		r, n := utf8.DecodeRuneInString(source)
		return r, n, nil
	}
	if len(source) < 2 {
		return 0, 0, errors.New(`nothing stands behind \`)
	}
	switch c := source[1]; c {
	case 'n':
		return '\n', 2, nil
	case 'r':
		return '\r', 2, nil
	case 't':
		return '\t', 2, nil
	case 'x', 'u', 'U':
		n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		if len(source) < 2+n {
			return 0, 0, fmt.Errorf(`\%c wants %d digits behind it`, c, n)
		}
		v, err := strconv.ParseUint(source[2:2+n], 16, 32)
		if err != nil || !utf8.ValidRune(rune(v)) || v > unicode.MaxRune {
			return 0, 0, fmt.Errorf(`\%c%s is no character`, c, source[2:2+n])
		}
		return rune(v), 2 + n, nil
	case '"', '\'', '\\', '[', ']', '^', '-':
		return rune(c), 2, nil
	default:
		return 0, 0, fmt.Errorf(`\%c has no meaning`, c)
	}
}

// lexCount reads {n}, {n,} or {n,m}.
func lexCount(source string) (low, high, n int, err error) {
	end := strings.IndexByte(source, '}')
	if end < 0 {
		return 0, 0, 0, errors.New("{ has no }")
	}
	left, right, comma := strings.Cut(source[1:end], ",")
	low, err = strconv.Atoi(strings.TrimSpace(left))
	high = low
	if right = strings.TrimSpace(right); comma && right == "" {
		high = noLimit
	} else if comma && err == nil {
		high, err = strconv.Atoi(right)
	}
	if err != nil || low < 0 || low > maxCount || high > maxCount || high != noLimit && high < low {
		return 0, 0, 0, fmt.Errorf("%s is no count", source[:end+1])
	}
	return low, high, end + 1, nil
}

// grammarReader puts words together.
type grammarReader struct {
	words []word
	rules *rules
	known map[string]int32
	used  map[string]int // lines
	depth int
}

func (g *grammarReader) read() (*expr, error) {
	g.used = map[string]int{}
	for len(g.words) > 0 {
		if !g.atRule() {
			return nil, fmt.Errorf("line %d: a rule begins with its name and ::=", g.words[0].line)
		}
		name, line := g.words[0].text, g.words[0].line
		g.words = g.words[2:]
		e, err := g.alternatives()
		if err != nil {
			return nil, err
		}
		if len(g.words) > 0 && !g.atRule() {
			return nil, fmt.Errorf("line %d: %q does not fit here", g.words[0].line, g.words[0].text)
		}
		rule := g.rule(name)
		if (*g.rules)[rule] != nil {
			return nil, fmt.Errorf("line %d: there is a rule %s before", line, name)
		}
		(*g.rules)[rule] = frame(e)
	}
	for name, rule := range g.known {
		if (*g.rules)[rule] == nil {
			return nil, fmt.Errorf("line %d: there is no rule %s", g.used[name], name)
		}
	}
	if _, ok := g.known["root"]; !ok {
		return nil, errors.New("there is no rule root: grammars are read in the notation GBNF of llama.cpp")
	}
	return call(g.known["root"]), nil
}

func (g *grammarReader) rule(name string) int32 {
	rule, ok := g.known[name]
	if !ok {
		rule = g.rules.reserve()
		g.known[name] = rule
	}
	return rule
}

func (g *grammarReader) atRule() bool {
	return len(g.words) > 1 && g.words[0].kind == wordName && g.words[1].text == "::="
}

func (g *grammarReader) at(mark string) bool {
	return len(g.words) > 0 && g.words[0].kind == wordMark && g.words[0].text == mark
}

const maxGroups = 200

func (g *grammarReader) alternatives() (*expr, error) {
	if g.depth++; g.depth > maxGroups {
		return nil, fmt.Errorf("its groups are nested more than %d deep", maxGroups)
	}
	defer func() { g.depth-- }()
	var parts []*expr
	for {
		e, err := g.sequence()
		if err != nil {
			return nil, err
		}
		parts = append(parts, e)
		if !g.at("|") {
			return alt(parts...), nil
		}
		g.words = g.words[1:]
	}
}

func (g *grammarReader) sequence() (*expr, error) {
	var parts []*expr
	for len(g.words) > 0 && !g.atRule() && !g.at("|") && !g.at(")") {
		e, err := g.item()
		if err != nil {
			return nil, err
		}
		parts = append(parts, g.counted(e))
	}
	return seq(parts...), nil
}

// counted reads how often an item comes.
func (g *grammarReader) counted(e *expr) *expr {
	for ; len(g.words) > 0; g.words = g.words[1:] {
		switch w := g.words[0]; {
		case w.kind == wordCount:
			e = repeat(e, w.low, w.high)
		case g.at("*"):
			e = star(e)
		case g.at("+"):
			e = repeat(e, 1, noLimit)
		case g.at("?"):
			e = option(e)
		default:
			return e
		}
	}
	return e
}

func (g *grammarReader) item() (*expr, error) {
	w := g.words[0]
	g.words = g.words[1:]
	switch {
	case w.kind == wordExpr:
		return w.expr, nil
	case w.kind == wordName:
		if _, ok := g.used[w.text]; !ok {
			g.used[w.text] = w.line
		}
		return call(g.rule(w.text)), nil
	case w.text == "(":
		e, err := g.alternatives()
		if err != nil {
			return nil, err
		}
		if !g.at(")") {
			return nil, fmt.Errorf("line %d: ( has no )", w.line)
		}
		g.words = g.words[1:]
		return e, nil
	case w.kind == wordCount:
		return nil, fmt.Errorf("line %d: there is nothing in front of a count", w.line)
	}
	return nil, fmt.Errorf("line %d: %q does not fit here", w.line, w.text)
}
