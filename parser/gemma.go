package parser

import "strings"

// gemma4 is the grammar of Gemma 4: call:NAME{KEY:VALUE,…} between markers.
var gemma4 = &callGrammar{
	name: "gemma4", open: []string{"<|tool_call>"}, close: []string{gemmaClose}, strip: []string{gemmaQuote},
	body: func(*Options) body { return newGemmaCalls() },
}

const (
	gemmaClose = "<tool_call|>"
	gemmaCall  = "call:"
	gemmaQuote = `<|"|>`
)

// gemmaCalls reads calls in Gemma's notation, which is JSON's but for strings,
// that stand as they are between two tokens, and for keys, that need nothing
// around them. It is written as JSON while it arrives.
type gemmaCalls struct {
	quote markers // the end of a string
	stop  markers // what must not stand outside of strings

	at     gemmaPlace
	called []byte
	stack  []byte // the closers of what is open
	comma  bool   // one was read, and is written in front of what follows
	word   []byte // a key or a value without quotes
	val    value  // a string in quotes of JSON

	out    []byte // arguments not yet handed on
	opened bool
	broken bool
}

// gemmaPlace is where in a call the reader is.
type gemmaPlace uint8

const (
	gemmaItem  gemmaPlace = iota // before a call
	gemmaBegin                   // before the word that begins one
	gemmaName
	gemmaKey    // or the end of the object
	gemmaBare   // in a key
	gemmaQuoted // in a key between quotes
	gemmaColon
	gemmaValue
	gemmaElem   // of a list, or its end
	gemmaWord   // in a value without quotes
	gemmaString // in one between quotes
	gemmaJSON   // in one between quotes of JSON
	gemmaComma  // behind a value
	gemmaDone   // behind the arguments
	gemmaAfter  // behind the call
)

func newGemmaCalls() *gemmaCalls {
	b := new(gemmaCalls)
	b.quote.add(gemmaQuote, actEnd)
	b.stop.add(gemmaClose, actCallEnd)
	b.stop.add("<|tool_call>", actCall)
	return b
}

func (b *gemmaCalls) reset() {
	b.at, b.called, b.stack, b.word, b.out = gemmaItem, b.called[:0], b.stack[:0], b.word[:0], b.out[:0]
	b.comma, b.opened, b.broken = false, false, false
}

func (b *gemmaCalls) name() string   { return strings.TrimSpace(string(b.called)) }
func (b *gemmaCalls) native() string { return "" }
func (b *gemmaCalls) explicit() bool { return true }

func (b *gemmaCalls) scan(s string, final bool) (n int, t token, args string) {
	switch {
	case b.broken:
		return 0, tokBad, ""
	case b.at == gemmaDone:
		b.at = gemmaAfter
		return 0, tokDone, ""
	case b.at == gemmaString && b.opened: // most of what there is to read
		if n, _, _ = b.quote.next(s, false); n > 0 {
			return n, tokArgs, escapeText(s[:n])
		}
	}
	for wait := false; !wait && t == tokSyntax && b.at != gemmaDone; {
		if len(b.out) > 0 && b.silent(s[n:]) {
			break // what may be cut before it says anything is not read with what stands before
		}
		var m int
		m, t, wait = b.step(s[n:], final)
		n += m
	}
	if len(b.out) == 0 {
		return n, t, ""
	}
	b.broken = t == tokBad
	args, b.out = string(b.out), b.out[:0]
	if !b.opened {
		b.opened = true
		return n, tokOpen, args
	}
	return n, tokArgs, args
}

// silent says whether what s begins with adds nothing to the arguments as it is
// read.
func (b *gemmaCalls) silent(s string) bool {
	switch b.at {
	case gemmaBare, gemmaWord:
		return true
	case gemmaQuoted, gemmaString, gemmaJSON:
		return false
	}
	return s != "" && (s[0] == ',' || isSpace(s[0]))
}

// step reads a part of s. If that means nothing yet, it says whether it needs
// more than s to go on.
func (b *gemmaCalls) step(s string, final bool) (n int, t token, wait bool) {
	switch b.at {
	case gemmaName:
		return b.readName(s)
	case gemmaBare, gemmaWord:
		return b.readWord(s)
	case gemmaQuoted, gemmaString:
		return b.readString(s)
	case gemmaJSON:
		n, st := b.val.scan(s)
		b.out = append(b.out, s[:n]...)
		if st == done {
			b.at = gemmaComma
		}
		return n, tokSyntax, st == more
	}
	if n = spaces(s); n > 0 || s == "" {
		return n, tokSyntax, s == ""
	}
	switch b.at {
	case gemmaItem, gemmaBegin, gemmaAfter:
		return b.begin(s, final)
	case gemmaKey, gemmaValue, gemmaElem:
		return b.choose(s)
	case gemmaColon:
		if s[0] != ':' {
			return 0, tokBad, false
		}
		b.out, b.at = append(b.out, ':'), gemmaValue
		return 1, tokSyntax, false
	default: // gemmaComma
		return b.separate(s[0])
	}
}

// begin reads the word that begins a call.
func (b *gemmaCalls) begin(s string, final bool) (n int, t token, wait bool) {
	switch {
	case len(s) < len(gemmaCall) && strings.HasPrefix(gemmaCall, s) && !final:
		return 0, tokSyntax, true
	case b.at == gemmaAfter:
		b.reset()
		return 0, tokItemEnd, false
	case !strings.HasPrefix(s, gemmaCall):
		return 0, tokBad, false
	case b.at == gemmaItem:
		b.at = gemmaBegin
		return 0, tokItem, false
	}
	b.at = gemmaName
	return len(gemmaCall), tokSyntax, false
}

func (b *gemmaCalls) readName(s string) (n int, t token, wait bool) {
	end := strings.IndexAny(s, "{<")
	if end < 0 {
		end = len(s)
	}
	b.called = append(b.called, s[:end]...)
	switch {
	case len(b.called) > longestName:
		return end, tokBad, false
	case end == len(s):
		return end, tokSyntax, true
	case s[end] == '<' || b.name() == "":
		return end, tokBad, false
	}
	b.push('{')
	return end + 1, tokSyntax, false
}

// push enters an object or a list.
func (b *gemmaCalls) push(c byte) {
	b.out = append(b.out, c)
	if c == '{' {
		b.stack, b.at = append(b.stack, '}'), gemmaKey
		return
	}
	b.stack, b.at = append(b.stack, ']'), gemmaElem
}

// choose decides by its first byte what a key or a value is.
func (b *gemmaCalls) choose(s string) (n int, t token, wait bool) {
	key := b.at == gemmaKey
	_, quoted := b.quote.match(s, false)
	_, stop := b.stop.match(s, false)
	switch {
	case quoted == actPartial || stop == actPartial:
		return 0, tokSyntax, true
	case stop != actNone:
		return 0, tokBad, false
	case b.at != gemmaValue && s[0] == b.stack[len(b.stack)-1]:
		return b.separate(s[0])
	case b.at != gemmaValue && b.comma:
		b.out, b.comma = append(b.out, ','), false
	}
	b.word = b.word[:0]
	switch c := s[0]; {
	case quoted == actEnd:
		b.out = append(b.out, '"')
		if b.at = gemmaString; key {
			b.at = gemmaQuoted
		}
		return len(gemmaQuote), tokSyntax, false
	case key:
		b.at = gemmaBare
	case c == '{' || c == '[':
		b.push(c)
		return 1, tokSyntax, false
	case c == '"':
		b.at = gemmaJSON
		b.val.reset()
	default:
		b.at = gemmaWord
	}
	return 0, tokSyntax, false
}

// readWord reads a key or a value without quotes.
func (b *gemmaCalls) readWord(s string) (n int, t token, wait bool) {
	ends := ",}]"
	if b.at == gemmaBare {
		ends = ":,}]"
	}
	n, _, act := b.stop.next(s, false)
	end := strings.IndexAny(s[:n], ends)
	if end >= 0 {
		n = end
	}
	b.word = append(b.word, s[:n]...)
	switch {
	case end < 0 && (act == actNone || act == actPartial):
		return n, tokSyntax, true
	case end < 0:
		return n, tokBad, false
	case b.at == gemmaBare:
		b.out = append(b.out, quoteJSON(strings.TrimSpace(string(b.word)))...)
		b.at = gemmaColon
	default:
		b.out = append(b.out, gemmaScalar(strings.TrimSpace(string(b.word)))...)
		b.at = gemmaComma
	}
	return n, tokSyntax, false
}

// gemmaScalar returns a value without quotes as JSON. What is neither a number
// nor a constant is a string whose quotes were forgotten.
func gemmaScalar(word string) string {
	switch lower := strings.ToLower(word); {
	case lower == "true" || lower == "false":
		return lower
	case lower == "null" || lower == "none" || lower == "nil":
		return "null"
	case isJSONNumber(word):
		return word
	}
	return quoteJSON(word)
}

// readString reads between quotes.
func (b *gemmaCalls) readString(s string) (n int, t token, wait bool) {
	at, n, act := b.quote.next(s, false)
	b.out = appendEscaped(b.out, s[:at])
	if act != actEnd {
		return at, tokSyntax, true
	}
	b.out = append(b.out, '"')
	if b.at == gemmaQuoted {
		b.at = gemmaColon
	} else {
		b.at = gemmaComma
	}
	return at + n, tokSyntax, false
}

// separate reads what stands between values.
func (b *gemmaCalls) separate(c byte) (n int, t token, wait bool) {
	switch top := len(b.stack) - 1; {
	case c == ',':
		b.comma = true
	case c == b.stack[top]:
		b.out, b.stack, b.comma = append(b.out, c), b.stack[:top], false
		if top == 0 {
			b.at = gemmaDone
			return 1, tokSyntax, false
		}
		b.at = gemmaComma
		return 1, tokSyntax, false
	default:
		return 0, tokBad, false
	}
	if b.at = gemmaElem; b.stack[len(b.stack)-1] == '}' {
		b.at = gemmaKey
	}
	return 1, tokSyntax, false
}
