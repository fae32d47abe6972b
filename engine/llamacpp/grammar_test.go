package llamacpp

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestGrammars(t *testing.T) {
	for pattern, want := range map[string]string{
		``:                  `""`,
		`abc`:               `"abc"`,
		`^abc$`:             `("" "abc" "")`,
		`a|bc`:              `("a" | "bc")`,
		`a*b+c?`:            `(("a")* ("b")+ ("c")?)`,
		`(ab){2,3}`:         `("ab"){2,3}`,
		`x{2,}`:             `("x"){2,}`,
		`x{4}`:              `("x"){4}`,
		`(?:a+)*`:           `(("a")+)*`,
		`[^a]`:              `[\x00-` + "`b-\U0010ffff]",
		`.`:                 `[^\n]`,
		`(?s).`:             `.`,
		`\d`:                `[0-9]`,
		`[\]\-^]`:           `[\x2D\x5D-\x5E]`,
		`"\\`:               `"\x22\x5C"`,
		`(?i)ab`:            `([Aa] [Bb])`,
		"\n\t":              `"\x0A\x09"`,
		`日本`:                `"日本"`,
		`(?P<year>\d{4})-0`: `(([0-9]){4} "\x2D0")`,
	} {
		got, err := regexGrammar(pattern)
		if want = strings.ReplaceAll(want, "\U0010ffff", `\U0010FFFF`); err != nil || got != "root ::= "+want {
			t.Errorf("%q: %s, %v; want %s", pattern, got, err, want)
		}
	}
	for _, pattern := range []string{`(`, `a\b`, `[^\x00-\x{10FFFF}]`, `(?=x)`} {
		if got, err := regexGrammar(pattern); err == nil {
			t.Errorf("%q: %s, want an error", pattern, got)
		}
	}
	if got, want := choiceGrammar([]string{"a b", "", `"`}), `root ::= "a b" | "" | "\x22"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A grammar of the forms made here, read back as an expression, matches what the
// expression that it was made of matches.
func TestGrammarsMeanTheSame(t *testing.T) {
	piece := rapid.SampledFrom([]string{`a`, `b`, `-`, `\.`, `"`, `[ab]`, `[^a]`, `[a-c-]`, `.`, `\d`, `\n`, `(?i)a`, `é`})
	times := rapid.SampledFrom([]string{"", "", "*", "+", "?", "{2}", "{1,2}", "{1,}"})
	rapid.Check(t, func(t *rapid.T) {
		var pattern strings.Builder
		for range rapid.IntRange(0, 4).Draw(t, "pieces") {
			part := piece.Draw(t, "piece")
			if rapid.Bool().Draw(t, "either") {
				part = "(?:" + part + "|" + piece.Draw(t, "other") + ")"
			}
			pattern.WriteString("(?:" + part + ")" + times.Draw(t, "times"))
		}
		grammar, err := regexGrammar(pattern.String())
		if err != nil {
			t.Fatalf("%q: %v", pattern.String(), err)
		}
		back, err := regexp.Compile(`\A(?:` + reading(t, grammar) + `)\z`)
		if err != nil {
			t.Fatalf("%q became %s, which reads as no expression: %v", pattern.String(), grammar, err)
		}
		want := regexp.MustCompile(`\A(?:` + pattern.String() + `)\z`)
		for range 20 {
			text := rapid.StringOfN(rapid.SampledFrom([]rune("abcA-.\"1\né")), 0, 5, -1).Draw(t, "text")
			if back.MatchString(text) != want.MatchString(text) {
				t.Fatalf("%q became %s, which differs on %q", pattern.String(), grammar, text)
			}
		}
	})
}

// reading turns a grammar of one rule into an expression.
func reading(t *rapid.T, grammar string) string {
	rest, ok := strings.CutPrefix(grammar, "root ::= ")
	if !ok {
		t.Fatalf("%s has no root", grammar)
	}
	var out strings.Builder
	in := byte(0) // '"' or '[' while inside of one
	for rest != "" {
		r, n := utf8.DecodeRuneInString(rest)
		token := rest[:n]
		if r == '\\' {
			size := map[byte]int{'x': 4, 'U': 10, 'n': 2}[rest[1]]
			token = rest[:size]
			n = size
			if size == 10 {
				token = `\x{` + rest[2:size] + `}`
			}
		}
		rest = rest[n:]
		switch {
		case in == 0 && token == `"`:
			in = '"'
			out.WriteString("(?:")
		case in == '"' && token == `"`:
			in = 0
			out.WriteString(")")
		case in == 0 && token == "[":
			in = '['
			out.WriteString(token)
		case in == '[' && token == "]":
			in = 0
			out.WriteString(token)
		case in == '"' && len(token) == 1:
			out.WriteString(regexp.QuoteMeta(token))
		case in == 0 && token == " ":
		case in == 0 && token == ".":
			out.WriteString(`(?s:.)`)
		default:
			out.WriteString(token)
		}
	}
	return out.String()
}
