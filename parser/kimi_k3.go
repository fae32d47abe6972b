package parser

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chat"
)

const (
	xtmlOpen  = "<|open|>"
	xtmlClose = "<|close|>"
	xtmlSep   = "<|sep|>"
)

// kimiK3 is the grammar of Kimi K3: sections between <|open|>NAME<|sep|> and
// <|close|>NAME<|sep|>, in which a call has an attribute for its tool and another
// for its number, and every argument names its type.
var kimiK3 = &callGrammar{
	name: "kimi_k3",
	open: xtml(xtmlOpen, "tools"), close: xtml(xtmlClose, "tools"),
	inner: []string{xtmlOpen + "call ", xtmlOpen + " call "},
	strip: slices.Concat(xtmlMessage, xtml(xtmlOpen, "think"), xtml(xtmlClose, "think"), xtml(xtmlClose, "call"), xtml(xtmlClose, "argument"), xtml(xtmlClose, "json")),
	ids:   chat.NameIDs,
	body:  func(*Options) body { return newXTMLCalls() },
}

// xtmlMessage are the markers around what a message says, which mean nothing and
// which every answer has, and the tokens that all markers are made of.
var xtmlMessage = append(slices.Concat(
	xtml(xtmlOpen, "response"), xtml(xtmlClose, "response"), xtml(xtmlOpen, "message"), xtml(xtmlClose, "message"),
), "<|end_of_msg|>", xtmlOpen, xtmlClose, xtmlSep)

// xtml returns the spellings of a marker: there may be a space on either side of
// the word.
func xtml(kind, word string) []string {
	return []string{kind + word + xtmlSep, kind + " " + word + xtmlSep, kind + word + " " + xtmlSep, kind + " " + word + " " + xtmlSep}
}

// xtmlCalls reads a section of calls. Arguments are written as JSON while they
// arrive, strings byte by byte and others when they are complete.
type xtmlCalls struct {
	valueEnd markers // of an argument
	jsonEnd  markers // of arguments that are written as one object

	at     xtmlPlace
	called string
	id     string
	typed  string // the type of the argument that is being read
	value  []byte // of an argument that is no string
	object markedArgs

	out    []byte // arguments not yet handed on
	opened bool
}

// xtmlPlace is where in a section the reader is.
type xtmlPlace uint8

const (
	xtmlItem   xtmlPlace = iota // between calls
	xtmlCall                    // before the tag that begins one
	xtmlArg                     // before an argument, or the end of the call
	xtmlString                  // in an argument that is a string
	xtmlValue                   // in another
	xtmlJSON                    // in arguments that are one object
	xtmlDone                    // behind the last argument
	xtmlEnd                     // of the call
)

func newXTMLCalls() *xtmlCalls {
	b := new(xtmlCalls)
	b.valueEnd.all(xtml(xtmlClose, "argument"), actEnd)
	b.jsonEnd.all(xtml(xtmlClose, "json"), actEnd)
	return b
}

func (b *xtmlCalls) reset() {
	b.at = xtmlItem
	b.clear()
}

// clear forgets the call.
func (b *xtmlCalls) clear() {
	b.called, b.id, b.typed, b.value, b.out, b.opened = "", "", "", b.value[:0], b.out[:0], false
	b.object.reset()
}

func (b *xtmlCalls) name() string   { return b.called }
func (b *xtmlCalls) native() string { return b.id }
func (b *xtmlCalls) explicit() bool { return true }

func (b *xtmlCalls) scan(s string, final bool) (n int, t token, args string) {
	switch b.at {
	case xtmlDone:
		b.at = xtmlEnd
		return 0, tokDone, ""
	case xtmlEnd:
		return b.readEnd(s)
	case xtmlString: // most of what there is to read
		if n, _, _ = b.valueEnd.next(s, false); n > 0 && b.opened {
			return n, tokArgs, escapeText(s[:n])
		}
		n = 0
	}
	for wait := false; !wait && t == tokSyntax && b.at != xtmlDone; {
		if len(b.out) > 0 && (b.at == xtmlArg || b.at == xtmlValue) {
			break // what may be cut before it says anything is not read with what stands before
		}
		var m int
		m, t, wait = b.step(s[n:], final)
		n += m
	}
	switch {
	case len(b.out) == 0 && b.at == xtmlDone:
		b.at = xtmlEnd
		return n, tokDone, ""
	case len(b.out) == 0:
		return n, t, ""
	}
	args, b.out = string(b.out), b.out[:0]
	if !b.opened {
		b.opened = true
		return n, tokOpen, args
	}
	return n, tokArgs, args
}

// step reads a part of s. If that means nothing yet, it says whether it needs
// more than s to go on.
func (b *xtmlCalls) step(s string, final bool) (n int, t token, wait bool) {
	switch b.at {
	case xtmlString, xtmlValue:
		return b.readValue(s, final)
	case xtmlJSON:
		n, args, st := b.object.scan(s, &b.jsonEnd, false, false, final)
		b.out = append(b.out, args...)
		if st == done {
			b.at = xtmlDone
		}
		return n, tokSyntax, st == more && (n == len(s) || n == 0)
	}
	if n = spaces(s); n > 0 || s == "" {
		if s == "" && final && b.at == xtmlArg && b.opened {
			return 0, b.finish(), false
		}
		return n, tokSyntax, s == ""
	}
	tag, st := readTag(s)
	switch {
	case st == more:
		return 0, tokSyntax, true
	case b.at == xtmlArg:
		return b.readArg(s, tag, st)
	case st == done && !(tag.opens && tag.word == "call"):
		return 0, tokEnd, false
	case st == bad || tag.attr("tool") == "":
		return 0, tokBad, false
	case b.at == xtmlItem:
		b.at = xtmlCall
		return 0, tokItem, false
	}
	b.clear()
	b.at, b.called = xtmlArg, tag.attr("tool")
	b.id = b.called
	if index := tag.attr("index"); index != "" {
		if i, err := strconv.Atoi(index); err == nil {
			index = strconv.Itoa(max(i-1, 0))
		}
		b.id += ":" + index
	}
	return tag.bytes, tokSyntax, false
}

// readArg reads a tag inside a call. One that belongs to none ends the call, as
// it does where its end was forgotten.
func (b *xtmlCalls) readArg(s string, tag xtmlTag, st status) (n int, t token, wait bool) {
	key := tag.attr("key")
	switch {
	case st == bad:
		return 0, tokBad, false
	case tag.opens && tag.word == "argument" && key != "":
		lead := byte(',')
		if !b.opened && len(b.out) == 0 {
			lead = '{'
		}
		b.out = append(append(append(b.out, lead), quoteJSON(key)...), ':')
		b.typed, b.value = tag.attr("type"), b.value[:0]
		if b.at = xtmlValue; b.typed == "string" {
			b.at, b.out = xtmlString, append(b.out, '"')
		}
	case tag.opens && tag.word == "json" && !b.opened && len(b.out) == 0:
		b.at = xtmlJSON
	case !tag.opens && tag.word == "call":
		return 0, b.finish(), false
	case !tag.opens && (tag.word == "argument" || tag.word == "json"):
	case b.opened || len(b.out) > 0:
		return 0, b.finish(), false
	default:
		return 0, tokBad, false
	}
	return tag.bytes, tokSyntax, false
}

// finish completes the arguments.
func (b *xtmlCalls) finish() token {
	if !b.opened && len(b.out) == 0 {
		b.out = append(b.out, '{')
	}
	b.out, b.at = append(b.out, '}'), xtmlDone
	return tokSyntax
}

// readValue reads up to the end of an argument. Agents write files, so that what
// looks like the end of a string may be data: it counts if the format goes on
// behind it.
func (b *xtmlCalls) readValue(s string, final bool) (n int, t token, wait bool) {
	at, n, act := b.valueEnd.next(s, false)
	ends := act == actEnd
	if ends && at == 0 && b.at == xtmlString {
		st := behindValue(s[n:], final)
		if st == more {
			return 0, tokSyntax, true
		}
		if ends = st == done; !ends {
			at = n
		}
	}
	if b.at == xtmlString {
		b.out = appendEscaped(b.out, s[:at])
	} else {
		b.value = append(b.value, s[:at]...)
	}
	switch {
	case !ends:
		return at, tokSyntax, act != actEnd
	case at > 0: // and only then the end
		return at, tokSyntax, false
	case b.at == xtmlString:
		b.out = append(b.out, '"')
	default:
		b.out = append(b.out, xtmlLiteral(b.value)...)
	}
	b.at = xtmlArg
	return n, tokSyntax, false
}

// behindValue says whether what follows the end of an argument is what the format
// has there: another argument, the end of the call, or anything that ends it.
func behindValue(s string, final bool) status {
	gap := spaces(s)
	tag, st := readTag(s[gap:])
	switch {
	case gap > maxGap:
		return bad
	case st == more && final:
		return done
	case st != done:
		return st
	case tag.opens && tag.word == "argument" && tag.attr("key") == "", tag.opens && tag.word == "call" && tag.attr("tool") == "":
		return bad
	case !tag.opens && (tag.word == "argument" || tag.word == "json"):
		return bad
	}
	return done
}

// xtmlLiteral returns a value that claims to be no string as JSON.
func xtmlLiteral(text []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, text) == nil {
		return out.Bytes()
	}
	return []byte(quoteJSON(string(text)))
}

// readEnd reads the end of a call.
func (b *xtmlCalls) readEnd(s string) (n int, t token, args string) {
	for {
		n += spaces(s[n:])
		if n == len(s) {
			return n, tokSyntax, ""
		}
		tag, st := readTag(s[n:])
		if st == more {
			return n, tokSyntax, ""
		}
		ends := st == done && !tag.opens
		if ends && (tag.word == "json" || tag.word == "call") {
			n += tag.bytes
		}
		if !ends || tag.word != "json" {
			b.reset()
			return n, tokItemEnd, ""
		}
	}
}

// xtmlTag is a marker of XTML with its word and attributes.
type xtmlTag struct {
	opens bool
	word  string
	attrs string
	bytes int
}

// longestTag is more than any tag with the name of a tool or a parameter has.
const longestTag = 4096

// readTag reads the tag that s begins with.
func readTag(s string) (tag xtmlTag, st status) {
	body, opens := strings.CutPrefix(s, xtmlOpen)
	if !opens {
		var closes bool
		if body, closes = strings.CutPrefix(s, xtmlClose); !closes {
			if strings.HasPrefix(xtmlOpen, s) || strings.HasPrefix(xtmlClose, s) {
				return tag, more
			}
			return tag, bad
		}
	}
	end := strings.Index(body, xtmlSep)
	switch {
	case end < 0 && len(body) < longestTag:
		return tag, more
	case end < 0 || end > longestTag:
		return tag, bad
	}
	word, attrs, _ := strings.Cut(strings.TrimSpace(body[:end]), " ")
	return xtmlTag{opens, word, attrs, len(s) - len(body) + end + len(xtmlSep)}, done
}

// unescapeAttr undoes what is escaped in attributes.
var unescapeAttr = strings.NewReplacer("&quot;", `"`, "&amp;", "&")

// attr returns the value of an attribute, or nothing.
func (t xtmlTag) attr(name string) string {
	for rest := t.attrs; ; {
		key, after, ok := strings.Cut(rest, `="`)
		if !ok {
			return ""
		}
		value, after, ok := strings.Cut(after, `"`)
		if !ok {
			return ""
		}
		if strings.TrimSpace(key) == name {
			return unescapeAttr.Replace(value)
		}
		rest = after
	}
}
