package parser

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonGrammars are the grammars whose arguments are JSON or a literal of another
// language.
var jsonGrammars = map[string]*callGrammar{
	"kimi_k2":     kimiK2,
	"deepseek_v3": deepseekCalls, "deepseek_v3_1": deepseekCalls,
}

// jsonCalls reads calls of the form {"name": …, "arguments": {…}}: one, several
// behind each other, or an array of them.
type jsonCalls struct {
	at    place
	list  bool // inside an array
	items int  // calls read
	val   value
	key   string
	raw   []byte // a key, a name or escaped arguments, as far as read

	called   string
	given    bool // the key of the arguments was there
	opened   bool
	argsDone bool
	finished bool
	args     []byte // read before the call was opened
}

// place is where in a body the reader is.
type place uint8

const (
	atItem place = iota // between calls
	atBrace
	atKey // or the closing brace
	inKey
	atColon
	atValue
	inName
	inArgs       // an object
	inQuotedArgs // a string that holds an object, or null
	inOther      // a value that we do not use
	atComma      // or the closing brace
	atEnd        // behind an array
)

func (b *jsonCalls) reset() {
	*b = jsonCalls{val: b.val, raw: b.raw[:0], args: b.args[:0]}
}

func (b *jsonCalls) name() string   { return b.called }
func (b *jsonCalls) native() string { return "" }
func (b *jsonCalls) explicit() bool { return b.given }

func (b *jsonCalls) scan(s string, _ bool) (n int, t token, args string) {
	switch {
	case b.opened && len(b.args) > 0:
		args = string(b.args)
		b.args = b.args[:0]
		return 0, tokArgs, args
	case b.opened && b.argsDone && !b.finished:
		b.finished, b.at = true, atComma
		return 0, tokDone, ""
	}
	for n < len(s) {
		if b.at == inArgs && b.opened {
			if n > 0 {
				return n, tokSyntax, ""
			}
			return b.stream(s)
		}
		m, t := b.step(s[n:])
		n += m
		if t == tokOpen && b.at == inArgs {
			args = string(b.args)
			b.args = b.args[:0]
		}
		if t != tokSyntax {
			return n, t, args
		}
	}
	return n, tokSyntax, ""
}

// stream reads arguments of a call that is open.
func (b *jsonCalls) stream(s string) (n int, t token, args string) {
	n, st := b.val.scan(s)
	b.argsDone = st == done
	if n == 0 && st == bad {
		return 0, tokBad, ""
	}
	return n, tokArgs, s[:n]
}

// step reads at least one byte of s, which is not empty, or says what follows.
func (b *jsonCalls) step(s string) (n int, t token) {
	c := s[0]
	switch b.at {
	case inKey, inName, inOther, inArgs, inQuotedArgs:
		return b.value(s)
	}
	if isSpace(c) {
		return 1, tokSyntax
	}
	switch {
	case b.at == atItem && c == '{':
		b.at = atBrace
		return 0, tokItem
	case b.at == atItem && c == '[' && !b.list && b.items == 0:
		b.list = true
	case b.at == atItem && c == ',' && b.list && b.items > 0:
	case b.at == atItem && c == ']' && b.list:
		b.at = atEnd
		return 1, tokItemEnd
	case b.at == atBrace:
		b.at = atKey
	case b.at == atKey && c == '"':
		b.begin(inKey)
		return 0, tokSyntax
	case (b.at == atKey || b.at == atComma) && c == '}':
		return b.close()
	case b.at == atComma && c == ',':
		b.at = atKey
	case b.at == atColon && c == ':':
		b.at = atValue
	case b.at == atValue:
		return b.choose(c)
	default:
		return 0, tokBad
	}
	return 1, tokSyntax
}

// begin starts to read a value at p.
func (b *jsonCalls) begin(p place) {
	b.at, b.raw = p, b.raw[:0]
	b.val.reset()
}

// choose decides by the key what the value is that begins with c. Once a call is
// complete, none of its values means anything.
func (b *jsonCalls) choose(c byte) (n int, t token) {
	args := b.key == `"arguments"` || b.key == `"parameters"`
	switch {
	case b.finished, !args && b.key != `"name"`:
		b.begin(inOther)
	case !args && c == '"' && b.called == "":
		b.begin(inName)
	case args && c == '{' && !b.given:
		b.begin(inArgs)
	case args && (c == '"' || c == 'n') && !b.given:
		b.begin(inQuotedArgs)
	default:
		return 0, tokBad
	}
	b.given = b.given || args
	return 0, tokSyntax
}

// value reads on in a key or value.
func (b *jsonCalls) value(s string) (n int, t token) {
	n, st := b.val.scan(s)
	switch b.at {
	case inArgs:
		b.args = append(b.args, s[:n]...)
		b.argsDone = st == done
		if begun := b.val.want != wantKeyOrEnd || len(b.val.stack) > 1; b.called != "" && (b.argsDone || begun) {
			b.opened = true
			return n, tokOpen
		}
	case inOther:
	default:
		b.raw = append(b.raw, s[:n]...)
	}
	switch {
	case st == done:
		return n, b.take()
	case st == bad && n == 0:
		return 0, tokBad
	}
	return n, tokSyntax
}

// take uses a key or value that is complete.
func (b *jsonCalls) take() token {
	was := b.at
	b.at = atComma
	switch was {
	case inKey:
		b.key, b.at = string(b.raw), atColon
	case inName:
		name, err := jsontext.AppendUnquote(nil, b.raw)
		if err != nil || len(name) == 0 {
			b.at = atEnd
			return tokBad
		}
		b.called = string(name)
		return b.open()
	case inQuotedArgs:
		text, ok := unquoteObject(b.raw)
		if !ok {
			b.at = atEnd
			return tokBad
		}
		b.args, b.argsDone = append(b.args, text...), true
		return b.open()
	}
	return tokSyntax
}

// open opens the call if its name and its arguments are there.
func (b *jsonCalls) open() token {
	if b.called == "" || !b.argsDone {
		return tokSyntax
	}
	b.opened = true
	return tokOpen
}

// close reads the closing brace of a call. A call without arguments is opened
// first, with an empty object.
func (b *jsonCalls) close() (n int, t token) {
	switch {
	case b.called == "":
		return 0, tokBad
	case !b.opened:
		b.args, b.argsDone, b.opened = append(b.args, "{}"...), true, true
		return 0, tokOpen
	}
	*b = jsonCalls{list: b.list, items: b.items + 1, val: b.val, raw: b.raw[:0], args: b.args[:0]}
	return 1, tokItemEnd
}

// unquoteObject returns the object that a JSON string holds. Null and an empty
// string stand for an empty object.
func unquoteObject(quoted []byte) (object []byte, ok bool) {
	if string(quoted) == "null" {
		return []byte("{}"), true
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return nil, false
	}
	trimmed := strings.TrimSpace(string(text))
	if trimmed == "" {
		return []byte("{}"), true
	}
	var v value
	n, st := v.scan(trimmed)
	return text, trimmed[0] == '{' && st == done && n == len(trimmed)
}
