package parser

import (
	"strings"

	"github.com/dynago/dynago/chat"
)

const mistralOpen = "[TOOL_CALLS]"

var mistral = &callGrammar{
	name:  "mistral",
	open:  []string{mistralOpen},
	close: []string{"[/TOOL_CALLS]"},
	strip: []string{"[ARGS]", "[CALL_ID]"},
	ids:   chat.NineIDs,
	body:  func(*Options) body { return newMistralCalls() },
}

// mistralCalls reads what Mistral's models write behind [TOOL_CALLS]. Up to the
// tenth version of their tokenizer it is an array of JSON objects; since then
// every call has a marker of its own, and behind it NAME{…}, or with the control
// tokens that newer versions added NAME[ARGS]{…} or NAME[CALL_ID]ID[ARGS]{…}.
type mistralCalls struct {
	list  jsonCalls // the old form
	marks markers

	at     mistralPlace
	called []byte
	id     []byte
	val    value
	opened bool
}

// mistralPlace is where behind the marker the reader is.
type mistralPlace uint8

const (
	mistralStart mistralPlace = iota
	mistralList               // in the old form
	mistralName
	mistralID
	mistralArgs
	mistralDone // the arguments are complete
	mistralEnd  // the call is over
)

func newMistralCalls() *mistralCalls {
	b := &mistralCalls{list: jsonCalls{form: jsonForm{unclosed: true, close: "[/TOOL_CALLS]", ids: true}}}
	b.marks.add(mistralOpen, actCall)
	b.marks.add("[/TOOL_CALLS]", actCallEnd)
	b.marks.add("[CALL_ID]", actFormat)
	b.marks.add("[ARGS]", actMessage)
	return b
}

func (b *mistralCalls) reset() {
	b.list.reset()
	b.at, b.called, b.id, b.opened = mistralStart, b.called[:0], b.id[:0], false
	b.val.reset()
}

func (b *mistralCalls) name() string {
	if b.at == mistralList {
		return b.list.name()
	}
	return strings.TrimSpace(string(b.called))
}

func (b *mistralCalls) native() string {
	if b.at == mistralList {
		return b.list.native()
	}
	return strings.TrimSpace(string(b.id))
}

func (b *mistralCalls) explicit() bool { return true }

func (b *mistralCalls) scan(s string, final bool) (n int, t token, args string) {
	switch b.at {
	case mistralStart:
		return b.choose(s, final)
	case mistralList:
		return b.list.scan(s, final)
	case mistralArgs:
		return b.readArgs(s, final)
	case mistralDone:
		b.at = mistralEnd
		return 0, tokDone, ""
	case mistralEnd:
		return 0, tokEnd, ""
	}
	return b.readHeader(s, final)
}

// choose tells the forms apart.
func (b *mistralCalls) choose(s string, final bool) (n int, t token, args string) {
	n = spaces(s)
	if n == len(s) {
		return n, tokSyntax, ""
	}
	_, act := b.marks.match(s[n:], final)
	switch {
	case act == actPartial:
		return n, tokSyntax, ""
	case act != actNone:
		return n, tokText, ""
	case s[n] == '[' || s[n] == '{':
		b.at = mistralList
		m, t, args := b.list.scan(s[n:], final)
		return n + m, t, args
	}
	b.at = mistralName
	return n, tokItem, ""
}

// readHeader reads the name and the id. A call whose arguments were forgotten has
// none; what is no name is text.
func (b *mistralCalls) readHeader(s string, final bool) (n int, t token, args string) {
	for {
		at, m, act := b.marks.next(s[n:], final)
		if brace := strings.IndexByte(s[n:n+at], '{'); brace >= 0 {
			at, m, act = brace, 0, actMessage
		}
		if b.at == mistralName {
			b.called = append(b.called, s[n:n+at]...)
			if len(b.called) > longestName || strings.ContainsAny(b.name(), white) {
				return n + at, tokText, ""
			}
		} else {
			b.id = append(b.id, s[n:n+at]...)
		}
		n += at
		switch act {
		case actNone, actPartial:
			return n, tokSyntax, ""
		case actFormat:
			n, b.at = n+m, mistralID
		case actMessage:
			b.at = mistralArgs
			n += m
			m, t, args = b.readArgs(s[n:], final)
			return n + m, t, args
		default:
			return n, b.open(), "{}"
		}
	}
}

// longestName is the most bytes that the name of a tool has in any API.
const longestName = 256

// open opens a call without arguments.
func (b *mistralCalls) open() token {
	b.opened, b.at = true, mistralDone
	return tokOpen
}

func (b *mistralCalls) readArgs(s string, final bool) (n int, t token, args string) {
	if !b.opened {
		n = spaces(s)
		if n == len(s) {
			return n, tokSyntax, ""
		}
		switch _, act := b.marks.match(s[n:], final); {
		case act == actPartial:
			return n, tokSyntax, ""
		case act == actCall || act == actCallEnd:
			return n, b.open(), "{}"
		case s[n] != '{':
			return n, tokText, ""
		}
	}
	m, st := b.val.scan(s[n:])
	if st == done {
		b.at = mistralDone
	}
	switch args = s[n : n+m]; {
	case !b.opened:
		b.opened = true
		return n + m, tokOpen, args
	case m > 0:
		return n + m, tokArgs, args
	case st == bad:
		return n, tokBad, ""
	}
	return n, tokSyntax, ""
}
