package parser

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
)

// Mode says what the engine was told to generate.
type Mode uint8

// Modes. Guided output is looked for where a response begins, and where a thought
// that the prompt opened begins: engines differ in whether they let a model think
// before its output is guided. What is not of the form that was asked for, because
// an engine cannot guide, is read as the family's own markup, and else is text.
const (
	// ModeNative is whatever the model likes.
	ModeNative Mode = iota
	// ModeJSON is JSON as text: a response format.
	ModeJSON
	// ModeCalls is an array of calls, each an object of name and parameters: a
	// tool choice of required.
	ModeCalls
	// ModeArgs is the object of the arguments of the tool [Options.Named].
	ModeArgs
)

// guide makes the reader of guided calls, or none.
func (o *Options) guide() body {
	switch {
	case !o.ToolsOn:
		return nil
	case o.Mode == ModeCalls:
		return new(guidedCalls)
	case o.Mode == ModeArgs:
		return &guidedArgs{tool: o.Named, declared: o.declares("name")}
	}
	return nil
}

// declares says whether the tool that is named has a parameter of this name.
func (o *Options) declares(parameter string) bool {
	i := slices.IndexFunc(o.Tools, func(t chat.Tool) bool { return t.Name == o.Named })
	if i < 0 {
		return false
	}
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	_ = json.Unmarshal(o.Tools[i].Schema, &schema) // what is no schema declares nothing
	_, ok := schema.Properties[parameter]
	return ok
}

// beginsGuided says whether guided output begins with c.
func (p *Parser) beginsGuided(c byte) bool {
	return p.opts.Mode != ModeNative && (c == '{' || c == '[')
}

// enterGuided begins to read guided output.
func (p *Parser) enterGuided() {
	if p.guide == nil {
		p.respond(p.unhold())
		p.state = inJSON
		p.json.reset()
		return
	}
	p.calls = p.guide
	p.enterBody()
	p.doubtful = true
}

// readJSON reads JSON that is text. Markers in its strings are data.
func (p *Parser) readJSON(s string) (n int, wait bool) {
	n, st := p.json.scan(s)
	if n > 0 {
		p.respond(s[:n])
	}
	if st != more {
		p.state = inText
	}
	return n, false
}

// guidedCalls reads an array of calls, or one call.
type guidedCalls struct{ jsonCalls }

func (b *guidedCalls) scan(s string, final bool) (n int, t token, args string) {
	n, t, args = b.jsonCalls.scan(s, final)
	if t == tokItemEnd && (!b.list || b.at == atEnd) {
		t = tokEnd
	}
	return n, t, args
}

// guidedArgs reads the arguments of one tool, or what [guidedCalls] reads where
// the model has not kept to them.
type guidedArgs struct {
	tool     string
	declared bool // the tool has a parameter called name

	calls guidedCalls
	form  guidedForm
	step  token // the last one
	val   value
	held  []byte // arguments before the call was opened
}

// guidedForm is what a model wrote that should write arguments.
type guidedForm uint8

const (
	formUnknown guidedForm = iota
	formArgs
	formCalls
)

func (b *guidedArgs) reset() {
	b.calls.reset()
	b.val.reset()
	b.form, b.step, b.held = formUnknown, tokSyntax, b.held[:0]
}

func (b *guidedArgs) name() string {
	if b.form == formCalls {
		return b.calls.name()
	}
	return b.tool
}

func (b *guidedArgs) native() string { return "" }
func (b *guidedArgs) explicit() bool { return b.form == formArgs || b.calls.explicit() }

func (b *guidedArgs) scan(s string, final bool) (n int, t token, args string) {
	if b.form == formUnknown {
		if b.form = b.formOf(s); b.form == formUnknown && !final {
			return 0, tokSyntax, ""
		}
	}
	if b.form == formCalls {
		return b.calls.scan(s, final)
	}
	b.form = formArgs
	switch {
	case b.step == tokSyntax:
		return b.open(s)
	case b.step == tokDone:
		return 0, tokEnd, ""
	case b.step == tokArgs && b.val.want == wantCommaOrEnd && len(b.val.stack) == 0:
		b.step = tokDone
		return 0, tokDone, ""
	}
	n, st := b.val.scan(s)
	switch {
	case st == bad && n == 0:
		return 0, tokBad, ""
	case n == 0:
		return 0, tokSyntax, ""
	}
	return n, tokArgs, s[:n]
}

// open reads until there is no doubt that arguments begin: an object that is
// empty, or has a key.
func (b *guidedArgs) open(s string) (n int, t token, args string) {
	n, st := b.val.scan(s)
	b.held = append(b.held, s[:n]...)
	switch {
	case st == bad && b.val.want == wantKeyOrEnd:
		return n, tokText, ""
	case b.val.want == wantKeyOrEnd:
		return n, tokSyntax, ""
	}
	b.step = tokArgs
	return n, tokOpen, string(b.held)
}

// formOf tells from the beginning of a response, which is a brace or a bracket,
// what it is.
func (b *guidedArgs) formOf(s string) guidedForm {
	if s[0] == '[' {
		return formCalls
	}
	if b.declared {
		return formArgs
	}
	unknown := formUnknown
	if len(s) >= maxGap {
		unknown, s = formArgs, s[:maxGap]
	}
	name, _ := jsontext.AppendQuote(nil, b.tool)
	for _, want := range []string{"{", `"name"`, ":", string(name), ","} {
		s = s[spaces(s):]
		switch {
		case strings.HasPrefix(s, want):
			s = s[len(want):]
		case strings.HasPrefix(want, s):
			return unknown
		default:
			return formArgs
		}
	}
	return formCalls
}
