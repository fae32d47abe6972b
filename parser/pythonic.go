package parser

import (
	"bytes"
	"strings"

	"github.com/dynago/dynago/chat"
)

const (
	pythonOpen  = "<|python_start|>"
	pythonClose = "<|python_end|>"
)

// pythonic is the grammar of Llama 4: a list of calls in Python. Its markers are
// often missing, and then any bracket may be the beginning of one.
var pythonic = &callGrammar{
	name: "pythonic", open: []string{pythonOpen}, close: []string{pythonClose},
	inner: []string{"["}, ends: pythonEnds,
	body: func(o *Options) body { return &pythonCalls{tools: o.Tools} },
}

// pythonEnds are the markers that end a turn.
var pythonEnds = []string{"<|eom|>", "<|eot|>"}

// pythonCalls reads a list of calls, [f(a=1), g()]. Each is read whole and then
// turned into JSON.
//
// A list without markers is one of calls if its first call is one of a tool that
// the request has; or else if nothing follows it, because a text that ends in
// [f()] is more likely to call an unknown tool than to say so. Until that is
// known no call of the list is opened.
type pythonCalls struct {
	tools []chat.Tool
	bare  bool

	at     pythonPlace
	text   []byte // of a call
	depth  int    // brackets open in it
	arg    pythonArg
	quote  string // of the string that is open in it
	escape bool   // the next byte of the string is not its end
	sure   bool   // these are calls
	first  bool   // none was read

	ready []pythonCall // read, not yet handed on
	call  pythonCall
	open  uint8 // how much of call was handed on
}

var _ innerBody = (*pythonCalls)(nil)

type pythonCall struct{ name, args string }

// pythonPlace is where in a list the reader is.
type pythonPlace uint8

const (
	pythonStart pythonPlace = iota // before the bracket
	pythonItem                     // before a call, or the end of the list
	pythonBody                     // in a call
	pythonNext                     // behind one
	pythonEnd                      // behind the list
)

// pythonArg is where in an argument the reader is. What has no name and no equals
// sign is no argument, and need not be waited for.
type pythonArg uint8

const (
	argBefore pythonArg = iota // the name
	argName
	argBehind // the name
	argValue
	argWrong
)

// next returns the place behind c.
func (a pythonArg) next(c byte) pythonArg {
	switch {
	case isSpace(c) && a == argName:
		return argBehind
	case isSpace(c):
		return a
	case c == '=' && a != argBefore:
		return argValue
	case a != argBehind && (isAlnum(c) || c == '_' || c >= 0x80):
		return argName
	}
	return argWrong
}

func (b *pythonCalls) reset() {
	*b = pythonCalls{tools: b.tools, text: b.text[:0], ready: b.ready[:0], sure: true, first: true}
}

func (b *pythonCalls) unwrapped(int)  { b.bare, b.sure = true, false }
func (b *pythonCalls) name() string   { return b.call.name }
func (b *pythonCalls) native() string { return "" }
func (b *pythonCalls) explicit() bool { return true }

func (b *pythonCalls) scan(s string, final bool) (n int, t token, args string) {
	for {
		if t, args, ok := b.hand(); ok {
			return n, t, args
		}
		m, t := b.step(s[n:], final)
		n += m
		switch {
		case t != tokSyntax:
			return n, t, ""
		case m > 0 || b.sure && len(b.ready) > 0:
		case final && n == len(s) && b.conclude():
		case final && b.bare && !b.sure && !b.knows():
			return n, tokText, ""
		default:
			return n, tokSyntax, ""
		}
	}
}

// conclude takes a call behind which the text ends, and says whether it did.
func (b *pythonCalls) conclude() bool {
	if b.at != pythonNext || !b.sure && !(b.first && knownTool(b.tools, b.call.name)) {
		return false
	}
	b.take()
	b.at = pythonEnd
	return true
}

// knows says whether the call that is being read is the first of its list, and
// one of a tool that the request has.
func (b *pythonCalls) knows() bool {
	name, _, ok := strings.Cut(string(b.text), "(")
	return ok && b.first && b.at == pythonBody && knownTool(b.tools, strings.TrimSpace(name))
}

// hand hands on the next step of a call that was read.
func (b *pythonCalls) hand() (t token, args string, ok bool) {
	switch {
	case b.open == 1:
		b.open = 2
		return tokOpen, b.call.args, true
	case b.open == 2:
		b.open = 0
		return tokDone, "", true
	case b.sure && len(b.ready) > 0:
		b.call, b.ready, b.open = b.ready[0], b.ready[1:], 1
		return tokItem, "", true
	}
	return 0, "", false
}

// step reads a part of s. Having read nothing, it wants to see more.
func (b *pythonCalls) step(s string, final bool) (n int, t token) {
	if b.at == pythonBody {
		return b.readCall(s)
	}
	if b.at == pythonEnd {
		return b.readEnd(s, final)
	}
	if n = spaces(s); n > 0 || s == "" {
		return n, tokSyntax
	}
	switch c := s[0]; {
	case b.at == pythonStart && c == '[':
		b.at = pythonItem
	case b.at == pythonItem && (isAlnum(c) || c == '_'):
		b.at, b.text, b.depth = pythonBody, b.text[:0], 0
		return b.readCall(s)
	case b.at == pythonNext && c == ',':
		b.take()
		b.at = pythonItem
	case b.at == pythonNext && c == ']':
		b.take()
		b.at = pythonEnd
	case b.at == pythonItem && c == ']' && !b.first:
		b.at = pythonEnd
	default:
		return 0, b.wrong()
	}
	return 1, tokSyntax
}

// wrong says what becomes of what is no call.
func (b *pythonCalls) wrong() token {
	if b.sure && !b.first {
		return tokBad
	}
	return tokText
}

// readCall reads up to the closing parenthesis of a call.
func (b *pythonCalls) readCall(s string) (n int, t token) {
	for n < len(s) {
		c := s[n]
		n++
		b.text = append(b.text, c)
		switch {
		case b.quote != "":
			b.readString(c)
		case b.depth == 0 && c == '(':
			b.depth, b.arg = 1, argBefore
		case b.depth == 0:
			if !inPythonName(c) || len(b.text) > longestName {
				return n, b.wrong()
			}
		case b.depth == 1 && b.arg != argValue && c != ')':
			if b.arg = b.arg.next(c); b.arg == argWrong {
				return n, b.wrong()
			}
		case b.depth == 1 && c == ',':
			b.arg = argBefore
		case c == '\'' || c == '"':
			b.quote = string(c)
			if three := strings.Repeat(b.quote, 3); bytes.HasSuffix(b.text, []byte(three)) {
				b.quote = three
			}
		case c == '(' || c == '[' || c == '{':
			b.depth++
		case c == ')' || c == ']' || c == '}':
			if b.depth--; b.depth == 0 {
				return n, b.parse()
			}
		}
	}
	return n, tokSyntax
}

// readString reads a byte of a string.
func (b *pythonCalls) readString(c byte) {
	switch {
	case b.escape:
		b.escape = false
	case c == '\\':
		b.escape = true
	case bytes.HasSuffix(b.text, []byte(b.quote)):
		b.quote = ""
	}
}

// inPythonName says whether c may stand in the name of a tool.
func inPythonName(c byte) bool { return isAlnum(c) || c == '_' || c == '.' || c == '-' || isSpace(c) }

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// parse makes a call of the text that was read. It counts when it is known that
// the list goes on or ends behind it.
func (b *pythonCalls) parse() token {
	name, args, ok := parsePythonCall(string(b.text))
	if !ok {
		return b.wrong()
	}
	b.call, b.at = pythonCall{name, args}, pythonNext
	return tokSyntax
}

// take takes the call that was read.
func (b *pythonCalls) take() {
	b.ready = append(b.ready, b.call)
	if b.first && knownTool(b.tools, b.call.name) {
		b.sure = true
	}
	b.first = false
}

// readEnd reads what follows a list.
func (b *pythonCalls) readEnd(s string, final bool) (n int, t token) {
	if b.bare && b.sure {
		return 0, tokEnd
	}
	n = spaces(s)
	rest := s[n:]
	if !b.bare {
		switch {
		case strings.HasPrefix(rest, pythonClose):
			return n + len(pythonClose), tokEnd
		case strings.HasPrefix(pythonClose, rest) && !final:
			return 0, tokSyntax
		}
		return 0, tokEnd
	}
	for _, end := range append([]string{pythonClose}, pythonEnds...) {
		switch {
		case strings.HasPrefix(rest, end), rest == "" && final:
			b.sure = true
			return 0, tokSyntax
		case strings.HasPrefix(end, rest) && !final:
			return 0, tokSyntax
		}
	}
	return n, tokText
}

// parsePythonCall turns a call with named arguments into a name and a JSON object.
func parsePythonCall(text string) (name, args string, ok bool) {
	i := strings.IndexByte(text, '(')
	name = strings.TrimSpace(text[:i])
	if strings.ContainsAny(name, white) {
		return "", "", false
	}
	r := literalReader{s: text[i+1:], out: []byte{'{'}}
	for comma := true; !r.take(')'); comma = r.take(',') {
		n := 0
		r.space()
		for n < len(r.s) && (isAlnum(r.s[n]) || r.s[n] == '_' || r.s[n] >= 0x80) {
			n++
		}
		if !comma || n == 0 {
			return "", "", false
		}
		if len(r.out) > 1 {
			r.out = append(r.out, ',')
		}
		r.out = append(append(r.out, quoteJSON(r.s[:n])...), ':')
		r.s = r.s[n:]
		if !r.take('=') || !r.value(0) {
			return "", "", false
		}
	}
	return name, string(append(r.out, '}')), r.s == ""
}
