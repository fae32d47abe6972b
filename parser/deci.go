package parser

import "strings"

const phi4Word = "functools["

// The grammars of calls in JSON between other markers than Hermes's.
var (
	// nemotronDeci is that of Llama-Nemotron Super and Ultra. What is between its
	// markers and is no call is text; the opening one may be missing.
	nemotronDeci = &callGrammar{
		name: "nemotron_deci", open: []string{"<TOOLCALL>"}, close: []string{"</TOOLCALL>"},
		bare: beginsArray,
		body: func(*Options) body {
			return &jsonCalls{form: jsonForm{unclosed: true, close: "</TOOLCALL>"}}
		},
	}
	jamba = &callGrammar{
		name: "jamba", open: []string{"<tool_calls>"}, close: []string{"</tool_calls>"},
		body: func(*Options) body { return new(jsonCalls) },
	}
	// phi4 is the word functools and, if calls are meant and not the word, the
	// bracket of an array right behind it. The bracket closes the call.
	phi4 = &callGrammar{
		name: "phi4", inner: []string{phi4Word},
		body: func(*Options) body { return &jsonCalls{form: jsonForm{unclosed: true, word: phi4Word}} },
	}
)

// beginsArray says whether s begins with an array of calls.
func beginsArray(s string) (ok, more bool) {
	if s == "" || s[0] != '[' {
		return false, s == ""
	}
	n := 1 + spaces(s[1:])
	if n > maxGap {
		return false, false
	}
	return beginsObject(s[n:], `"name"`)
}

// beginsObject says whether s begins with an object whose first key is one of
// these.
func beginsObject(s string, keys ...string) (ok, more bool) {
	if s == "" || s[0] != '{' {
		return false, s == ""
	}
	n := 1 + spaces(s[1:])
	if s = s[n:]; n > maxGap {
		return false, false
	}
	for _, key := range keys {
		ok = ok || strings.HasPrefix(s, key)
		more = more || len(s) < len(key) && strings.HasPrefix(key, s)
	}
	return ok, more
}
