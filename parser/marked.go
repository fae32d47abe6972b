package parser

import "strings"

// markedForm is the form of calls whose parts are set apart by markers that are
// tokens of the vocabulary: begin header sep arguments end.
type markedForm struct {
	begin, sep, end string
	closers         []string // what ends the wrapper
	// fence is a header that stands for a name in a line behind it and arguments
	// in a Markdown fence; empty if there is no such form.
	fence string
	// escape makes escapes of raw control characters in the strings of arguments.
	escape bool
}

// markedCalls reads calls of a [markedForm], one behind the other.
//
// The end of the arguments is found by reading them: a marker inside a string is
// data. Arguments that are no JSON end at the first marker and are handed on as
// they are, so that the model can be told what is wrong with them.
type markedCalls struct {
	form  markedForm
	marks markers
	// resolve returns the name of the call that a header stands for, which is not
	// empty. If it is not sure it is asked again with the complete arguments.
	resolve func(header, args string) (name string, sure bool)

	at     markedPlace
	header []byte
	called string
	asked  bool // and the header alone did not tell the name
	fenced bool
	args   markedArgs
	held   []byte // arguments of a call that is not open
	opened bool
	junk   []byte // behind the arguments, up to what is more than a fence
}

// markedPlace is where in a body the reader is.
type markedPlace uint8

const (
	markedItem   markedPlace = iota // between calls
	markedBegin                     // before the marker that begins one
	markedHeader                    // behind it
	markedLine                      // in the line of a name
	markedFence                     // before the arguments
	markedLabel                     // behind the fence that opens
	markedValue                     // in the arguments
	markedDone                      // behind them
	markedAfter                     // before the marker that ends the call
)

func newMarkedCalls(f markedForm, resolve func(header, args string) (string, bool)) *markedCalls {
	b := &markedCalls{form: f, resolve: resolve}
	b.marks.add(f.begin, actCall)
	b.marks.add(f.sep, actMessage)
	b.marks.add(f.end, actEnd)
	b.marks.all(f.closers, actCallEnd)
	return b
}

func (b *markedCalls) reset() { b.at = markedItem }

// clear forgets the last call.
func (b *markedCalls) clear() {
	b.header, b.held, b.junk = b.header[:0], b.held[:0], b.junk[:0]
	b.called, b.asked, b.fenced, b.opened = "", false, false, false
	b.args.reset()
}

func (b *markedCalls) name() string   { return b.called }
func (b *markedCalls) native() string { return strings.TrimSpace(string(b.header)) }
func (b *markedCalls) explicit() bool { return true }

func (b *markedCalls) scan(s string, final bool) (n int, t token, args string) {
	for {
		m, t, args, wait := b.step(s[n:], final)
		n += m
		if t != tokSyntax || wait {
			return n, t, args
		}
	}
}

// step reads a part of s. If that means nothing yet, it says whether it needs
// more than s to go on.
func (b *markedCalls) step(s string, final bool) (n int, t token, args string, wait bool) {
	switch b.at {
	case markedHeader:
		return b.readHeader(s, final)
	case markedLine:
		return b.readLine(s, final)
	case markedFence:
		n, wait = b.readFence(s)
		return n, tokSyntax, "", wait
	case markedLabel:
		i := strings.IndexByte(s, '\n')
		if i < 0 {
			return len(s), tokSyntax, "", true
		}
		b.at = markedValue
		return i + 1, tokSyntax, "", false
	case markedValue:
		return b.readValue(s, final)
	case markedDone:
		b.at = markedAfter
		return 0, tokDone, "", false
	case markedAfter:
		return b.readAfter(s, final)
	}
	if n = spaces(s); n > 0 || s == "" {
		return n, tokSyntax, "", s == ""
	}
	n, act := b.marks.match(s, final)
	switch {
	case act == actPartial:
		return 0, tokSyntax, "", true
	case act != actCall:
		return 0, tokBad, "", false
	case b.at == markedItem:
		b.at = markedBegin
		return 0, tokItem, "", false
	}
	b.clear()
	b.at = markedHeader
	return n, tokSyntax, "", false
}

// readHeader reads up to the arguments. An opening brace begins them where the
// marker before them was forgotten, and the end of the call where they were.
func (b *markedCalls) readHeader(s string, final bool) (n int, t token, args string, wait bool) {
	at, n, act := b.marks.next(s, final)
	if brace := strings.IndexByte(s[:at], '{'); brace >= 0 {
		at, n, act = brace, 0, actEnd
	}
	b.header = append(b.header, s[:at]...)
	switch {
	case act == actNone || act == actPartial:
		return at, tokSyntax, "", true
	case b.native() == "" || act == actCall || act == actCallEnd:
		return at, tokBad, "", false
	case act == actMessage && b.form.fence != "" && b.native() == b.form.fence:
		b.header, b.at = b.header[:0], markedLine
	default:
		b.at = markedFence
	}
	if act == actMessage {
		at += n
	}
	return at, tokSyntax, "", false
}

// readLine reads the line of a name. If the arguments stand in its place, the
// header was the name.
func (b *markedCalls) readLine(s string, final bool) (n int, t token, args string, wait bool) {
	if len(b.header) == 0 {
		if n = spaces(s); n > 0 || s == "" {
			return n, tokSyntax, "", s == ""
		}
	}
	at, _, act := b.marks.next(s, final)
	if end := strings.IndexAny(s[:at], "\n{`"); end >= 0 {
		at, act = end, actEnd
	}
	b.header = append(b.header, s[:at]...)
	if act == actNone || act == actPartial {
		return at, tokSyntax, "", true
	}
	if len(b.header) == 0 {
		b.header = append(b.header, b.form.fence...)
	}
	b.at = markedFence
	return at, tokSyntax, "", false
}

// readFence passes over what opens a Markdown fence.
func (b *markedCalls) readFence(s string) (n int, wait bool) {
	const fence = "```"
	if n = spaces(s); n > 0 || s == "" {
		return n, s == ""
	}
	switch {
	case strings.HasPrefix(s, fence):
		b.fenced, b.at = true, markedLabel
		return len(fence), false
	case strings.HasPrefix(fence, s):
		return 0, true
	}
	b.at = markedValue
	return 0, false
}

func (b *markedCalls) readValue(s string, final bool) (n int, t token, args string, wait bool) {
	n, args, st := b.args.scan(s, &b.marks, b.form.escape, b.fenced, final)
	switch {
	case st == bad && n > 0: // what stands before comes first
		st = more
	case st == more:
		wait = n == len(s) || n == 0
	case st == done:
		b.at = markedDone
	}
	switch {
	case st == bad:
		return n, tokBad, "", false
	case b.opened && args == "":
		return n, tokSyntax, "", wait
	case b.opened:
		return n, tokArgs, args, false
	}
	b.held = append(b.held, args...)
	if len(b.held) == 0 || !b.resolved(st) {
		return n, tokSyntax, "", wait
	}
	b.opened = true
	return n, tokOpen, string(b.held), false
}

// resolved says whether the name of the call is settled.
func (b *markedCalls) resolved(st status) (ok bool) {
	if !b.asked {
		b.called, ok = b.resolve(b.native(), "")
		b.asked = true
	}
	if !ok && st == done {
		b.called, ok = b.resolve(b.native(), string(b.held))
	}
	return ok || st == done
}

// readAfter reads from the end of the arguments to that of the call, which the
// next one tells, too. Nothing should stand there but the end of a fence.
func (b *markedCalls) readAfter(s string, final bool) (n int, t token, args string, wait bool) {
	at, n, act := b.marks.next(s, final)
	if act == actMessage {
		at += n
	}
	for i := 0; i < at && len(b.junk) <= len("```"); i++ {
		if !isSpace(s[i]) {
			b.junk = append(b.junk, s[i])
		}
	}
	clean := len(b.junk) == 0 || b.fenced && string(b.junk) == "```"
	switch {
	case act == actMessage:
		return at, tokSyntax, "", false
	case act == actNone || act == actPartial:
		if !final || !clean {
			return at, tokSyntax, "", true
		}
	case !clean:
		b.junk = b.junk[:0]
		return at, tokDropped, "", false
	case act == actEnd:
		at += n
	}
	b.at = markedItem
	return at, tokItemEnd, "", false
}

// white is the white space that JSON and markers may have around them.
const white = " \t\r\n"

// markedArgs reads arguments that are a JSON object, as far as they are one.
type markedArgs struct {
	val   value
	began bool
	raw   bool   // they are none
	tail  string // of raw ones, if nothing follows it: white space, or a fence
	wrote bool   // there were some of these
}

func (a *markedArgs) reset() { *a = markedArgs{val: a.val} }

// scan reads on. It returns how many bytes of s it has read and the arguments in
// them. The result is bad if a marker stands where the arguments should go on,
// and is not the end of the call.
func (a *markedArgs) scan(s string, marks *markers, escape, fenced, final bool) (n int, args string, st status) {
	if !a.began {
		if n = spaces(s); n > 0 || s == "" {
			return n, "", more
		}
		a.began, a.raw, a.wrote = true, s[0] != '{', s[0] == '{'
		a.val.reset()
	}
	if !a.raw {
		n, args, st = a.json(s, escape)
		switch {
		case st != bad:
			return n, args, st
		case n > 0:
			return n, args, more
		}
		a.raw = true
	}
	at, _, act := marks.next(s, final)
	text := a.tail + s[:at]
	end := len(text)
	switch {
	case act == actEnd:
		if text = strings.TrimRight(text, white); fenced {
			text = strings.TrimRight(strings.TrimSuffix(text, "```"), white)
		}
		end = len(text)
	case act != actNone && act != actPartial || final: // nothing follows: all of it was meant
	case fenced:
		end = len(strings.TrimRight(text, white+"`"))
	default:
		end = len(strings.TrimRight(text, white))
	}
	args, a.tail = text[:end], text[end:]
	a.wrote = a.wrote || end > 0
	switch {
	case act == actNone || act == actPartial:
		return at, args, more
	case act == actEnd && !a.wrote:
		return at, "{}", done
	case act == actEnd:
		return at, args, done
	case args != "":
		return at, args, more
	}
	return at, "", bad
}

// longestLook is how much of a text is looked through for control characters.
const longestLook = 4096

// json reads a part of an object.
func (a *markedArgs) json(s string, escape bool) (n int, args string, st status) {
	// What is behind the object is not looked through with each of many calls.
	if s = s[:min(len(s), longestLook)]; !escape || control(s) < 0 {
		n, st = a.val.scan(s)
		return n, s[:n], st
	}
	var out []byte
	for st == more && n < len(s) {
		// In front of a control character the reader stops, to know whether it
		// stands inside a string.
		next := control(s[n:])
		if next == 0 && a.val.want == wantString {
			out = appendEscaped(out, s[n:n+1])
			n++
			continue
		}
		if next < 0 {
			next = len(s) - n
		}
		var m int
		m, st = a.val.scan(s[n : n+max(next, 1)])
		out = append(out, s[n:n+m]...)
		n += m
	}
	return n, string(out), st
}

// control returns the place of the first control character, or -1.
func control(s string) int {
	for i := range len(s) {
		if s[i] < ' ' {
			return i
		}
	}
	return -1
}
