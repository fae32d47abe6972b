package mask_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided/mask"
)

func grammarFormat(s string) *chat.OutputFormat {
	return &chat.OutputFormat{Kind: chat.FormatGrammar, Pattern: s}
}

const jsonGrammar = `
# JSON, smaller than life
root   ::= object
value  ::= object | array | string | number |
           ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,2})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
`

func TestGrammars(t *testing.T) {
	v := byBytes(t, `{"`, `":`, "true", "ab", "ä")
	for _, tc := range []struct {
		grammar string
		yes, no []string
	}{
		{`root ::= "a" | 'b' "c"`, []string{"a", "bc"}, []string{"", "b", "ac"}},
		{`root ::= x{2,3} y? x ::= [a-c] y ::= [^a-cé]`, []string{"ab", "abc", "abd", "abcü"}, []string{"a", "abé", "abcd!"}},
		{"root ::= \"(\" root \")\" | \"x\"+", []string{"x", "((xx))"}, []string{"((x)", ""}},
		{`root ::= "\x41\u00e9\U0001F600\"" .`, []string{"Aé😀\"ü"}, []string{"Aé😀\""}},
		{`root ::= ("a" | ) "-"{1,} [\]^\-]{2}`, []string{"a-]^", "--^-"}, []string{"a]]"}},
		{jsonGrammar, []string{`{"a":[1, -2.5e3,{}], "b":true}`}, []string{`{"a":01}`, `{"a"}`}},
	} {
		g, err := mask.NewCompiler(v).Compile(grammarFormat(tc.grammar))
		if err != nil {
			t.Errorf("%s: %v", tc.grammar, err)
			continue
		}
		for _, text := range tc.yes {
			if err := say(v, g, text, 1); err != nil {
				t.Errorf("%s: %q: %v", tc.grammar, text, err)
			}
		}
		for _, text := range tc.no {
			if say(v, g, text, 1) == nil {
				t.Errorf("%s: %q may be said", tc.grammar, text)
			}
		}
	}
	g := compile(t, v, grammarFormat(jsonGrammar))
	ends := 0
	for seed := range uint64(100) {
		if text, ended := babble(t, v, g, seed, 200); ended {
			ends++
			if !json.Valid([]byte(text)) {
				t.Fatalf("%q is no JSON", text)
			}
		}
	}
	if ends == 0 {
		t.Error("no answer has come to its end")
	}
}

func TestGrammarsRefused(t *testing.T) {
	v := byBytes(t)
	for source, says := range map[string]string{
		"":                                     "there is no rule root",
		"start: \"a\"":                         `line 1: ':' has no meaning here`,
		"root ::= a\n\nb ::= \"x\"":            "line 1: there is no rule a",
		"root ::= \"a":                         "line 1: a text has no end",
		"root ::= [a":                          "a class has no end",
		"root ::= [b-a]":                       "upside down",
		"root ::= (\"a\"":                      "line 1: ( has no )",
		"root ::= \"a\")":                      `line 1: ")" does not fit here`,
		"root ::= *":                           `"*" does not fit here`,
		"root ::= {2}":                         "nothing in front of a count",
		"root ::= \"a\"{3,2}":                  "{3,2} is no count",
		"root ::= \"\\q\"":                     `\q has no meaning`,
		"root ::= \"\\ud800\"":                 "is no character",
		"root ::= \"a\"\nroot ::= \"b\"":       "line 2: there is a rule root before",
		"root ::= root \"a\" | \"b\"":          "it refers to itself before any text",
		"root ::= \"a\" root":                  "no text keeps it",
		"root ::= " + strings.Repeat("(", 999): "200 deep",
		"root ::= \"\xff\"":                    "no UTF-8",
		"\"a\" ::= \"b\"":                      "a rule begins with its name",
	} {
		if _, err := mask.NewCompiler(v).Compile(grammarFormat(source)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; want %q", source, err, says)
		}
	}
}

func FuzzGrammar(f *testing.F) {
	f.Add(jsonGrammar, uint64(1))
	f.Add(`root ::= x{2,3} y? x ::= [a-c] y ::= [^a-cé]`, uint64(2))
	v := byBytes(f, `{"`, "ab")
	f.Fuzz(func(t *testing.T, source string, seed uint64) {
		if g, err := mask.NewCompiler(v).Compile(grammarFormat(source)); err == nil {
			babbled(t, v, g, seed, 40)
		}
	})
}
