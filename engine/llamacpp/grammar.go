package llamacpp

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
)

// The server's grammars (GBNF) are rules of literals, classes of characters,
// groups and repetitions: https://github.com/ggml-org/llama.cpp/tree/master/grammars

// choiceGrammar allows one of some texts.
func choiceGrammar(choices []string) string {
	var b strings.Builder
	b.WriteString("root ::= ")
	for i, c := range choices {
		if i > 0 {
			b.WriteString(" | ")
		}
		literal(&b, c)
	}
	return b.String()
}

// regexGrammar allows the texts that an expression matches as a whole.
func regexGrammar(pattern string) (string, error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("root ::= ")
	if err := write(&b, re); err != nil {
		return "", err
	}
	return b.String(), nil
}

// write appends an expression as one item, so that it can be repeated.
func write(b *strings.Builder, re *syntax.Regexp) error {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine:
		// The whole text is matched, so its ends are where they should be.
		b.WriteString(`""`)
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			folded(b, re.Rune)
			break
		}
		literal(b, string(re.Rune))
	case syntax.OpCharClass:
		if len(re.Rune) == 0 {
			return fmt.Errorf("nothing can match %q", re)
		}
		class(b, re.Rune)
	case syntax.OpAnyChar:
		b.WriteByte('.')
	case syntax.OpAnyCharNotNL:
		b.WriteString(`[^\n]`)
	case syntax.OpCapture:
		return write(b, re.Sub[0])
	case syntax.OpStar:
		return repeat(b, re.Sub[0], "*")
	case syntax.OpPlus:
		return repeat(b, re.Sub[0], "+")
	case syntax.OpQuest:
		return repeat(b, re.Sub[0], "?")
	case syntax.OpRepeat:
		return repeat(b, re.Sub[0], times(re.Min, re.Max))
	case syntax.OpConcat:
		return group(b, re.Sub, " ")
	case syntax.OpAlternate:
		return group(b, re.Sub, " | ")
	case syntax.OpNoMatch:
		return fmt.Errorf("nothing can match %q", re)
	default:
		return fmt.Errorf("%q has no counterpart in a grammar", re)
	}
	return nil
}

func group(b *strings.Builder, parts []*syntax.Regexp, between string) error {
	b.WriteByte('(')
	for i, p := range parts {
		if i > 0 {
			b.WriteString(between)
		}
		if err := write(b, p); err != nil {
			return err
		}
	}
	b.WriteByte(')')
	return nil
}

// repeat puts what is repeated into a group: a repetition of its own may end it.
func repeat(b *strings.Builder, what *syntax.Regexp, times string) error {
	if err := group(b, []*syntax.Regexp{what}, ""); err != nil {
		return err
	}
	b.WriteString(times)
	return nil
}

func times(low, high int) string {
	switch {
	case high < 0:
		return "{" + strconv.Itoa(low) + ",}"
	case low == high:
		return "{" + strconv.Itoa(low) + "}"
	}
	return "{" + strconv.Itoa(low) + "," + strconv.Itoa(high) + "}"
}

// folded writes letters of either case.
func folded(b *strings.Builder, runes []rune) {
	b.WriteByte('(')
	for i, r := range runes {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteByte('[')
		char(b, r)
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			char(b, f)
		}
		b.WriteByte(']')
	}
	b.WriteByte(')')
}

// class writes pairs of first and last characters.
func class(b *strings.Builder, pairs []rune) {
	b.WriteByte('[')
	for i := 0; i < len(pairs); i += 2 {
		char(b, pairs[i])
		if pairs[i] != pairs[i+1] {
			b.WriteByte('-')
			char(b, pairs[i+1])
		}
	}
	b.WriteByte(']')
}

func literal(b *strings.Builder, text string) {
	b.WriteByte('"')
	for _, r := range text {
		char(b, r)
	}
	b.WriteByte('"')
}

// char writes a character for literals and classes alike: whatever could mean
// something there stands as a number.
func char(b *strings.Builder, r rune) {
	switch {
	case r < ' ' || r == 0x7f || strings.ContainsRune(`"\[]^-`, r):
		fmt.Fprintf(b, `\x%02X`, r)
	case r > unicode.MaxLatin1 && !unicode.IsPrint(r) || r > 0xffff:
		fmt.Fprintf(b, `\U%08X`, r)
	default:
		b.WriteRune(r)
	}
}
