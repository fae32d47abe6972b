package parser

import "strings"

// xmlGrammars are the grammars whose arguments are written in tags.
var xmlGrammars = map[string]*callGrammar{
	"qwen3_coder": qwenCalls, "nemotron_nano": qwenCalls,
	"glm47":      glmCalls,
	"minimax_m2": minimaxCalls,
	"minimax_m3": minimaxM3Calls, "minimax-m3": minimaxM3Calls,
	"minimax_m3_nom": minimaxM3NomCalls, "minimax-m3-nom": minimaxM3NomCalls,
	"deepseek_v3_2": dsmlV32Calls,
	"deepseek_v4":   dsmlV4Calls, "deepseek-v4": dsmlV4Calls, "deepseekv4": dsmlV4Calls,
}

// xmlDialect says how a family writes calls in tags: a start tag with the name,
// an element for each parameter, and an end tag.
type xmlDialect struct {
	// call and param read a start tag that s begins with.
	call  func(s string) (n int, name string, st status)
	param func(s string) (n int, p xmlParam, st status)
	// calls and params are what start tags begin with, and callEnd and paramEnd
	// the end tags, each in all spellings. A family whose calls have no end tag
	// but that of the wrapper has none in callEnd.
	calls, params     []string
	callEnd, paramEnd []string
	open, close       []string // of the wrapper
	bracket           byte     // the first byte of every tag

	// tree is how parameters are written whose names are those of their tags, and
	// whose values may be elements again; nil in families that have no such.
	tree *xmlTree

	// layout is on if a newline on either side of a value belongs to the format.
	layout bool
	// lenient is on if end tags inside a wrapper may be forgotten.
	lenient bool
	// lossy is on if a parameter without an end tag is lost, but not its call.
	lossy bool
	// loose is on if a wrapper that does not begin with a call is text.
	loose bool

	entities entities
	quirks   quirks
}

// xmlParam is a start tag of a parameter.
type xmlParam struct {
	key string
	// form says how the value is written, in families where the model says it;
	// in others the schema of the tool does.
	form xmlForm
}

// xmlForm says how a value is written.
type xmlForm uint8

const (
	formSchema xmlForm = iota // as the schema of the tool says
	formText                  // a string
	formJSON                  // JSON, or else a string
)

// xmlCalls reads calls that are written in tags, and writes their arguments as
// JSON while they arrive: keys in their order, without spaces.
//
// Values are raw text, and agents write files, so that any tag may also be data.
// An end tag ends a value only if the format goes on behind it; a tag that should
// stand behind the end tag ends a value, whose own end was forgotten, only if the
// format goes on behind that one and no end tag was data before.
type xmlCalls struct {
	*xmlDialect
	schemas schemas
	keep    bool // entities are not replaced

	at     xmlPlace
	inner  int // length of the marker that the call begins with, if it has no wrapper
	read   int // calls in this wrapper
	tag    int // length of the tag that follows
	called string
	opened bool     // arguments of the call were released
	given  int      // parameters of the call
	ended  int      // steps of its end that are done
	same   []string // values of the last key, which may be given again

	xmlValue
}

// xmlValue is the value that is being read.
type xmlValue struct {
	xmlParam
	typ     valueType
	endTags []string
	nested  []string // start tags of the value's own name
	plain   bool     // a string, which is released as it arrives
	lead    bool     // what it begins with was read
	begun   bool     // a part of it was released
	closed  bool     // an end tag was data in it
	depth   int      // elements of the value's own name that are open in it
	text    textValue
	raw     []byte // of a value that is released as a whole
}

// xmlPlace is where in a wrapper the reader is.
type xmlPlace uint8

const (
	beforeCall xmlPlace = iota
	beforeCallTag
	beforeParam
	inParam
	atCallEnd
)

func newXMLCalls(d *xmlDialect) func(o *Options) body {
	return func(o *Options) body {
		return &xmlCalls{xmlDialect: d, schemas: schemas{tools: o.Tools}, keep: o.KeepEntities}
	}
}

func (b *xmlCalls) reset() {
	*b = xmlCalls{xmlDialect: b.xmlDialect, schemas: b.schemas, keep: b.keep, xmlValue: xmlValue{raw: b.raw[:0]}}
}

func (b *xmlCalls) unwrapped(n int) { b.inner = n }
func (b *xmlCalls) name() string    { return b.called }
func (b *xmlCalls) native() string  { return "" }
func (b *xmlCalls) explicit() bool  { return true }

func (b *xmlCalls) scan(s string, final bool) (n int, t token, args string) {
	for {
		m, t, args := b.step(s[n:], final)
		n += m
		if t != tokSyntax || m == 0 {
			return n, t, args
		}
	}
}

// step reads a part of s. Having read nothing, it wants to see more.
func (b *xmlCalls) step(s string, final bool) (n int, t token, args string) {
	switch b.at {
	case beforeCall:
		return b.nextCall(s, final)
	case beforeCallTag:
		b.at = beforeParam
		return b.tag, tokSyntax, ""
	case beforeParam:
		return b.nextParam(s, final)
	case inParam:
		return b.value(s, final)
	default:
		return b.end()
	}
}

// nextCall looks for a start tag of a call. White space behind a call is left
// where it is until then: it may be the beginning of text.
func (b *xmlCalls) nextCall(s string, final bool) (n int, t token, args string) {
	n = spaces(s)
	switch {
	case n > 0 && b.read == 0:
		return n, tokSyntax, ""
	case n > maxGap:
		return 0, tokEnd, ""
	}
	s = s[n:]
	if s == "" {
		return 0, tokSyntax, ""
	}
	_, end := oneOf(s, b.close)
	if end == done {
		return 0, tokBad, ""
	}
	tag, name, st := b.call(s)
	switch {
	case st == done:
		b.called, b.tag, b.at = name, tag, beforeCallTag
		return n, tokItem, ""
	case st == more, end == more:
		return 0, tokSyntax, ""
	case b.read > 0: // nobody closed the wrapper
		switch _, st := oneOf(s, b.open); {
		case st == done:
			return 0, tokBad, ""
		case st == more && !final:
			return 0, tokSyntax, ""
		}
		return 0, tokEnd, ""
	}
	return b.refuse()
}

// refuse says that what follows is no call. If none has begun, the wrapper was a
// word in a text, maybe.
func (b *xmlCalls) refuse() (n int, t token, args string) {
	switch {
	case b.opened:
	case b.inner > 0 && b.at == beforeCall:
		return b.inner, tokText, ""
	case b.inner > 0, b.loose && b.at == beforeCall:
		return 0, tokText, ""
	}
	return 0, tokBad, ""
}

// nextParam looks for a start tag of a parameter, or for the end of the call.
func (b *xmlCalls) nextParam(s string, final bool) (n int, t token, args string) {
	if n := spaces(s); n > 0 {
		return b.pass(n)
	}
	if s == "" && final && len(b.same) > 0 {
		return b.releaseSame()
	}
	if s == "" {
		if final && len(b.callEnd) == 0 && b.given > 0 {
			b.tag, b.at = 0, atCallEnd
			return b.end()
		}
		return 0, tokSyntax, ""
	}
	n, p, st := b.param(s)
	if len(b.same) > 0 && (st != more || final) && p.key != b.key {
		return b.releaseSame()
	}
	if st == done {
		b.begin(p)
		return b.pass(n)
	}
	end, ended := oneOf(s, b.callEnd)
	_, closed := oneOf(s, b.close)
	_, again := oneOf(s, b.calls)
	_, opened := oneOf(s, b.open)
	switch {
	case ended == done:
		b.tag, b.at = end, atCallEnd
		return b.end()
	case st == more || ended == more:
		return 0, tokSyntax, ""
	case closed == done || again == done || opened == done:
		if !b.lenient && len(b.callEnd) > 0 {
			return b.refuse()
		}
		b.tag, b.at = 0, atCallEnd
		return b.end()
	case closed == more || again == more || opened == more:
		return 0, tokSyntax, ""
	}
	return b.refuse()
}

// pass passes over n bytes of a call.
func (b *xmlCalls) pass(n int) (int, token, string) {
	if b.opened {
		return n, tokArgs, ""
	}
	return n, tokSyntax, ""
}

// begin begins the value of a parameter.
func (b *xmlCalls) begin(p xmlParam) {
	b.at = inParam
	b.xmlValue = xmlValue{xmlParam: p, endTags: b.paramEnd, raw: b.raw[:0], lead: !b.layout, plain: true}
	sc := b.schemas.of(b.called)
	switch {
	case p.form == formJSON:
		b.typ.kinds, b.plain = []kind{kindJSON}, false
	case p.form == formSchema:
		node := sc.param(p.key)
		b.typ = sc.typeOf(node)
		b.plain = b.typ.text() && (b.tree == nil || node != nil)
	}
	if b.tree != nil {
		b.endTags, b.nested = b.tree.tags(p.key)
	}
	if !b.keep {
		b.text.names = b.entities
	}
}

// value reads a part of the value of a parameter.
func (b *xmlCalls) value(s string, final bool) (n int, t token, args string) {
	if !b.lead {
		switch {
		case s == "":
			return 0, tokSyntax, ""
		case s[0] == '\n':
			b.lead = true
			return b.pass(1)
		}
		b.lead = true
	}
	e := b.seek(s, final)
	b.closed, b.depth = e.closed, e.depth
	if !b.plain {
		return b.whole(s, e)
	}
	text, failed := s[:e.at], e.ended && !e.own && !b.lenient
	if !b.begun {
		null := b.typ.null && len(text) <= len("null") && strings.EqualFold(text, "null"[:len(text)])
		switch undecided := null || text == ""; {
		case undecided && failed:
			return b.lose(e)
		case undecided && !e.ended:
			return 0, tokSyntax, ""
		case null && len(text) == len("null"):
			b.at = beforeParam
			return b.release(e.next, b.member()+"null")
		}
		args = b.member() + `"`
		b.begun = true
	}
	args += b.text.write(text)
	switch {
	case failed && args == "" && len(b.text.held) == 0:
		return e.at, tokBad, ""
	case failed:
		return b.release(e.at, args+b.text.end())
	case e.ended:
		b.at = beforeParam
		return b.release(e.next, args+b.text.end()+`"`)
	case final:
		args += b.text.end()
	}
	if e.at == 0 && args == "" {
		return 0, tokSyntax, ""
	}
	return b.release(e.at, args)
}

// whole reads a part of a value that is released when it is complete.
func (b *xmlCalls) whole(s string, e ending) (n int, t token, args string) {
	if !e.ended {
		b.raw = append(b.raw, s[:e.at]...)
		return e.at, tokSyntax, ""
	}
	raw := string(b.raw) + s[:e.at]
	switch {
	case !e.own && !b.lenient, b.tree != nil && !b.tree.balanced(raw):
		return b.lose(e)
	case b.tree != nil:
		b.same, b.at = append(b.same, raw), beforeParam
		return e.next, tokSyntax, ""
	case b.text.names != nil:
		raw = b.text.names.unescape(raw)
	}
	b.at = beforeParam
	return b.release(e.next, b.member()+b.typ.json(raw, &b.quirks))
}

// releaseSame releases the values of the last key, one or many.
func (b *xmlCalls) releaseSame() (n int, t token, args string) {
	sc := b.schemas.of(b.called)
	args = b.tree.json(b.same, sc.param(b.key), sc)
	b.same = nil
	return b.release(0, b.member()+args)
}

// lose reads to the end of a value that is broken, and of which nothing was
// released. What else was given for its key goes with it: a list that lacks an
// item is worse than none.
func (b *xmlCalls) lose(e ending) (n int, t token, args string) {
	b.same = nil
	if b.lossy {
		b.at = beforeParam
		return e.next, tokDropped, ""
	}
	return e.next, tokBad, ""
}

// member returns what stands before a value.
func (b *xmlCalls) member() string {
	sep := ","
	if b.given == 0 {
		sep = "{"
	}
	b.given++
	return sep + quoteJSON(b.key) + ":"
}

// release releases a piece of the arguments, which the next n bytes stand for.
func (b *xmlCalls) release(n int, args string) (int, token, string) {
	if !b.opened {
		b.opened = true
		return n, tokOpen, args
	}
	return n, tokArgs, args
}

// end ends a call, step by step.
func (b *xmlCalls) end() (n int, t token, args string) {
	b.ended++
	switch {
	case b.ended == 1 && b.given == 0:
		return b.release(0, "{}")
	case b.ended == 1:
		return b.release(0, "}")
	case b.ended == 2:
		return 0, tokDone, ""
	}
	n = b.tag
	*b = xmlCalls{xmlDialect: b.xmlDialect, schemas: b.schemas, keep: b.keep, inner: b.inner, read: b.read + 1, xmlValue: xmlValue{raw: b.raw[:0]}}
	return n, tokItemEnd, ""
}
