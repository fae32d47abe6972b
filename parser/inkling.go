package parser

import "strings"

// Inkling writes messages, each with a marker for who speaks, one for what it
// holds, and one at its end. That of a call has the name of the tool in front of
// the marker of what it holds:
//
//	<|message_model|>NAME<|content_invoke_tool_json|>{"name":NAME,"args":{…}}<|end_message|>
//
// The prompt ends with the first <|message_model|>, so that a generation begins
// behind it. As one marker ends messages of all kinds, a thought ends where any
// other begins, be it that of a call.
const (
	inklingMessage = "<|message_model|>"
	inklingText    = "<|content_text|>"
	inklingThought = "<|content_thinking|>"
	inklingCall    = "<|content_invoke_tool_json|>"
	inklingEnd     = "<|end_message|>"
	inklingLast    = "<|content_model_end_sampling|>"
)

var (
	inklingThinks = &thoughtGrammar{
		name: "inkling",
		open: []string{inklingThought, inklingMessage + inklingThought}, close: []string{inklingEnd, inklingLast},
		exits: []string{inklingMessage, inklingText, inklingCall},
		strip: inklingMarks,
	}
	inkling = &callGrammar{
		name: "inkling", open: []string{inklingCall, inklingMessage}, close: []string{inklingEnd, inklingLast},
		strip: append(inklingMarks, inklingThought, inklingMessage+inklingThought), bare: namesCall(inklingCall), certain: true,
		body: func(*Options) body {
			return &messageCalls{body: &jsonCalls{form: jsonForm{argsKey: `"args"`}}, sep: inklingCall, begins: "{["}
		},
	}
)

// inklingMarks mean nothing. Calls in free text, and what goes wrong with them,
// are text.
var inklingMarks = []string{
	inklingText, inklingMessage + inklingText, "<|content_invoke_tool_text|>", "<|content_tool_error|>",
}

// namesCall makes the bare function of a grammar whose calls begin with the name
// of a tool and a marker behind it.
func namesCall(sep string) func(s string) (ok, more bool) {
	return func(s string) (ok, more bool) {
		n := nameLen(s)
		rest := s[n:]
		return n > 0 && strings.HasPrefix(rest, sep), n < longestName && strings.HasPrefix(sep, rest)
	}
}

// nameLen returns the length of the name of a tool that s begins with.
func nameLen(s string) int {
	if n := strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`<>"'{}`, r) }); n >= 0 {
		return n
	}
	return len(s)
}

// messageCalls reads messages whose header names a tool, and leaves what they
// hold to the body.
type messageCalls struct {
	body
	sep    string // the marker that ends a header
	begins string // what the body may begin with
	opener string // a marker of the wrapper inside a message, which may be missing

	at messagePlace
}

// messagePlace is where in a message the reader is.
type messagePlace uint8

const (
	messageStart messagePlace = iota
	messageHeader
	messageOpener // behind the header
	messageBody
	messageOther // in a message that is no call
)

func (b *messageCalls) reset() {
	b.at = messageStart
	b.body.reset()
}

func (b *messageCalls) unwrapped(n int) {
	b.at = messageBody
	if inner, ok := b.body.(innerBody); ok {
		inner.unwrapped(n)
	}
}

func (b *messageCalls) scan(s string, final bool) (n int, t token, args string) {
	switch b.at {
	case messageBody:
		return b.body.scan(s, final)
	case messageOther:
		return 0, tokEnd, ""
	case messageHeader, messageOpener:
		return b.readHeader(s, final)
	}
	n = spaces(s)
	if n == len(s) {
		return n, tokSyntax, ""
	}
	b.at = messageHeader
	if strings.IndexByte(b.begins, s[n]) >= 0 {
		b.at = messageBody
	}
	m, t, args := b.scan(s[n:], final)
	return n + m, t, args
}

// readHeader reads the name of a tool and the marker behind it. The name is not
// used: the body has it again. What has no such header is text.
func (b *messageCalls) readHeader(s string, final bool) (n int, t token, args string) {
	if b.at == messageHeader {
		n = nameLen(s)
		switch rest := s[n:]; {
		case n > longestName:
			return 0, tokText, ""
		case len(rest) < len(b.sep) && strings.HasPrefix(b.sep, rest):
			return 0, tokSyntax, ""
		case n == 0 || !strings.HasPrefix(rest, b.sep):
			return 0, tokText, ""
		}
		n += len(b.sep)
		b.at = messageOpener
	}
	gap := spaces(s[n:])
	at := n + gap
	switch rest := s[at:]; {
	case gap > maxGap && b.opener != "":
		b.at = messageOther
		return n, tokEnd, ""
	case strings.HasPrefix(rest, b.opener):
		at += len(b.opener)
		b.at = messageBody
	case strings.HasPrefix(b.opener, rest) && !final:
		return n, tokSyntax, ""
	case rest != "" && strings.IndexByte(b.begins, rest[0]) >= 0:
		b.at = messageBody
	default:
		b.at = messageOther
		return n, tokEnd, ""
	}
	m, t, args := b.body.scan(s[at:], final)
	return at + m, t, args
}
