package parser

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonGrammars are the grammars whose arguments are JSON or a literal of another
// language.
var jsonGrammars = map[string]*callGrammar{
	"kimi_k2":       kimiK2,
	"nemotron_deci": nemotronDeci, "jamba": jamba, "phi4": phi4, "llama3_json": llama3,
	"kimi_k3": kimiK3, "kimi-k3": kimiK3,
	"inkling": inkling, "muse": muse, "muse_glimmer": muse,
	"pythonic": pythonic, "gemma4": gemma4, "gemma-4": gemma4,
	"mistral":     mistral,
	"deepseek_v3": deepseekCalls, "deepseek_v3_1": deepseekCalls,
}

// jsonForm is how a family departs from {"name": …, "arguments": {…}} inside two
// markers.
type jsonForm struct {
	// unclosed calls need no marker behind them. What is no call is text.
	unclosed bool
	close    string // the marker, if it is there nevertheless
	word     string // what they begin with, up to the bracket of an array, which is its last byte
	semi     bool   // a semicolon may stand between calls
	// argsKey is another key of the arguments, in quotes.
	argsKey string
	// ids stand in calls, be it behind the arguments: a call is opened when it has
	// been read.
	ids bool
}

// jsonCalls reads calls of the form {"name": …, "arguments": {…}}: one, several
// behind each other, or an array of them.
type jsonCalls struct {
	form  jsonForm
	at    place
	list  bool // inside an array
	begun bool // its first call was announced
	items int  // calls read
	val   value
	key   string
	raw   []byte // a key, a name or escaped arguments, as far as read

	called   string
	id       string
	given    bool // the key of the arguments was there
	opened   bool
	argsDone bool
	finished bool
	args     []byte // read before the call was opened
}

// place is where in a body the reader is.
type place uint8

const (
	atItem    place = iota // between calls
	atBracket              // of an array that may turn out to be text
	atBrace
	atKey // or the closing brace
	inKey
	atColon
	atValue
	inName
	inID
	inArgs       // an object
	inQuotedArgs // a string that holds an object, or null
	inOther      // a value that we do not use
	atComma      // or the closing brace
	atEnd        // behind an array, or what cannot go on
)

func (b *jsonCalls) reset() {
	*b = jsonCalls{form: b.form, val: b.val, raw: b.raw[:0], args: b.args[:0]}
}

func (b *jsonCalls) name() string   { return b.called }
func (b *jsonCalls) native() string { return b.id }
func (b *jsonCalls) explicit() bool { return b.given }

func (b *jsonCalls) scan(s string, final bool) (n int, t token, args string) {
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
		if b.form.unclosed && (b.at == atEnd || b.at == atItem && b.items > 0 && !b.list) {
			m, t := b.follow(s[n:], final)
			return n + m, t, ""
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
	switch {
	case !final:
	case b.argsDone && b.open() == tokOpen:
		return n, tokOpen, ""
	case b.form.unclosed && (b.at == atEnd || b.at == atItem && b.items > 0):
		return n, tokEnd, ""
	}
	return n, tokSyntax, ""
}

// follow looks for another call, or for the end, behind a call that needs no
// marker. White space in front of anything else is not ours.
func (b *jsonCalls) follow(s string, final bool) (n int, t token) {
	n = spaces(s)
	rest := s[n:]
	switch end := b.form.close; {
	case n > maxGap:
		return 0, tokEnd
	case rest == "" && !final, end != "" && len(rest) < len(end) && strings.HasPrefix(end, rest) && !final:
		return 0, tokSyntax
	case end != "" && strings.HasPrefix(rest, end):
		return n + len(end), tokEnd
	case b.at == atEnd:
		return 0, tokEnd
	}
	if b.form.semi && strings.HasPrefix(rest, ";") {
		n += 1 + spaces(rest[1:])
		switch {
		case n > maxGap:
			return 0, tokEnd
		case n == len(s) && !final:
			return 0, tokSyntax
		}
	}
	if !strings.HasPrefix(s[n:], "{") {
		return 0, tokEnd
	}
	b.at = atBrace
	return n, tokItem
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
	case atItem:
		if b.form.word != "" && !b.list {
			b.list, b.begun = true, true
			return len(b.form.word), tokItem
		}
	case inKey, inName, inID, inOther, inArgs, inQuotedArgs:
		return b.value(s)
	}
	if isSpace(c) {
		return 1, tokSyntax
	}
	switch {
	case b.at == atItem && c == '{':
		if b.at = atBrace; b.begun {
			b.begun = false
			return 0, tokSyntax
		}
		return 0, tokItem
	case b.at == atItem && c == '[' && !b.list && b.items == 0 && b.form.unclosed:
		b.at = atBracket
		return 0, tokItem
	case b.at == atBracket:
		b.at, b.list, b.begun = atItem, true, true
	case b.at == atItem && c == '[' && !b.list && b.items == 0:
		b.list = true
	case b.at == atItem && c == ',' && b.list && b.items > 0:
	case b.at == atItem && c == ']' && b.list:
		b.at = atEnd
		if b.form.unclosed {
			return 1, tokSyntax
		}
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
		return 0, b.wrong()
	}
	return 1, tokSyntax
}

// wrong says what becomes of what is no call.
func (b *jsonCalls) wrong() token {
	if b.form.unclosed && b.items == 0 && !b.opened {
		return tokText
	}
	return tokBad
}

// begin starts to read a value at p.
func (b *jsonCalls) begin(p place) {
	b.at, b.raw = p, b.raw[:0]
	b.val.reset()
}

// choose decides by the key what the value is that begins with c. Once a call is
// complete, none of its values means anything.
func (b *jsonCalls) choose(c byte) (n int, t token) {
	args := b.key == `"arguments"` || b.key == `"parameters"` || b.key == b.form.argsKey
	switch {
	case b.form.ids && b.key == `"id"` && c == '"' && b.id == "":
		b.begin(inID)
	case b.finished, !args && b.key != `"name"`:
		b.begin(inOther)
	case !args && c == '"' && b.called == "":
		b.begin(inName)
	case args && c == '{' && !b.given:
		b.begin(inArgs)
	case args && (c == '"' || c == 'n') && !b.given:
		b.begin(inQuotedArgs)
	default:
		return 0, b.wrong()
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
		begun := b.val.want != wantKeyOrEnd || len(b.val.stack) > 1
		if b.called != "" && (b.argsDone || begun) && !b.form.ids {
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
		return 0, b.wrong()
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
			return b.wrong()
		}
		b.called = string(name)
		return b.openEarly()
	case inID:
		if id, err := jsontext.AppendUnquote(nil, b.raw); err == nil {
			b.id = string(id)
		}
	case inQuotedArgs:
		text, ok := unquoteObject(b.raw)
		if !ok {
			b.at = atEnd
			return b.wrong()
		}
		b.args, b.argsDone = append(b.args, text...), true
		return b.openEarly()
	}
	return tokSyntax
}

// openEarly opens the call, unless its id may follow.
func (b *jsonCalls) openEarly() token {
	if b.form.ids {
		return tokSyntax
	}
	return b.open()
}

// open opens the call if its name and its arguments are there.
func (b *jsonCalls) open() token {
	if b.called == "" || !b.argsDone || b.opened {
		return tokSyntax
	}
	b.opened = true
	return tokOpen
}

// close reads the closing brace of a call. A call that is not open is opened
// first, without arguments with an empty object.
func (b *jsonCalls) close() (n int, t token) {
	switch {
	case b.called == "":
		return 0, b.wrong()
	case !b.opened:
		if !b.argsDone {
			b.args = append(b.args, "{}"...)
		}
		b.argsDone, b.opened = true, true
		return 0, tokOpen
	}
	*b = jsonCalls{form: b.form, list: b.list, items: b.items + 1, val: b.val, raw: b.raw[:0], args: b.args[:0]}
	if b.form.unclosed {
		return 1, tokSyntax
	}
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
