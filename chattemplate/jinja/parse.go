package jinja

import (
	"fmt"
	"slices"
)

// maxParams bounds the parameters of a macro.
const maxParams = 1000

// maxParseDepth bounds how deep expressions and blocks may be nested.
const maxParseDepth = 200

type parser struct {
	tokens []token
	pos    int
	depth  int

	scope *scope
	names []*nameExpr
	loops int // open for loops in this function

	// soft is above zero inside if, where Jinja lets an unknown filter or test
	// pass until it is executed; unknown holds those met elsewhere.
	soft       int
	unknown    []error
	autoescape bool
}

func parse(source string) (t *Template, err error) {
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	defer p.recover(&err)
	fn := p.function(nil)
	body := p.body()
	if t := p.peek(); t.kind != tokEOF {
		p.fail("unexpected %s", t)
	}
	if len(p.unknown) > 0 {
		return nil, p.unknown[0]
	}
	globals := p.link()
	return &Template{body: body, slots: fn.slots, globals: globals}, nil
}

// The parser leaves by panic on the first error, which keeps its functions
// readable; parse is the only way in and recovers.
type parseError struct{ err error }

func (p *parser) recover(err *error) {
	switch r := recover().(type) {
	case nil:
	case parseError:
		*err = r.err
	default:
		panic(r)
	}
}

func (p *parser) fail(format string, a ...any) {
	panic(parseError{&Error{Kind: SyntaxError, Line: p.peek().line, Message: fmt.Sprintf(format, a...)}})
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

func (p *parser) isOp(op string) bool {
	t := p.peek()
	return t.kind == tokOp && t.text == op
}

func (p *parser) isName(name string) bool {
	t := p.peek()
	return t.kind == tokName && t.text == name
}

func (p *parser) skipOp(op string) bool {
	if !p.isOp(op) {
		return false
	}
	p.pos++
	return true
}

func (p *parser) skipName(name string) bool {
	if !p.isName(name) {
		return false
	}
	p.pos++
	return true
}

func (p *parser) expectOp(op string) {
	if !p.skipOp(op) {
		p.fail("expected '%s', got %s", op, p.peek())
	}
}

func (p *parser) expectName() string {
	t := p.next()
	if t.kind != tokName {
		p.pos--
		p.fail("expected a name, got %s", t)
	}
	return t.text
}

func (p *parser) expect(kind tokenKind, what string) {
	if t := p.peek(); t.kind != kind {
		p.fail("expected '%s', got %s", what, t)
	}
	p.pos++
}

// deeper counts one level of nesting; the caller defers back.
func (p *parser) deeper() {
	p.depth++
	if p.depth > maxParseDepth {
		p.fail("nested more than %d levels deep", maxParseDepth)
	}
}

func (p *parser) back() { p.depth-- }

// body parses up to a block tag that begins with one of the end words, whose
// word is left as the next token.
func (p *parser) body(ends ...string) []stmt {
	p.deeper()
	defer p.back()
	var body []stmt
	for {
		switch t := p.next(); t.kind {
		case tokEOF:
			if len(ends) > 0 {
				p.fail("unexpected end of template, expected '%s'", ends[len(ends)-1])
			}
			return body
		case tokData:
			body = append(body, &textStmt{t.text})
		case tokPrintBegin:
			body = append(body, &printStmt{p.tuple(true), p.autoescape, t.line})
			p.expect(tokPrintEnd, "}}")
		case tokBlockBegin:
			word := p.peek()
			if word.kind == tokName && slices.Contains(ends, word.text) {
				return body
			}
			if s := p.statement(); s != nil {
				body = append(body, s)
			}
			p.expect(tokBlockEnd, "%}")
		}
	}
}

// block parses a body between the end of this tag and the tag that ends it,
// and consumes the word of that tag.
func (p *parser) block(ends ...string) ([]stmt, string) {
	p.expect(tokBlockEnd, "%}")
	body := p.body(ends...)
	return body, p.next().text
}

func (p *parser) statement() stmt {
	line := p.peek().line
	switch word := p.expectName(); word {
	case "if":
		return p.ifStatement(line)
	case "for":
		return p.forStatement(line)
	case "set":
		return p.setStatement(line)
	case "macro":
		return p.macroStatement(line)
	case "call":
		return p.callStatement(line)
	case "filter":
		return p.filterStatement(line)
	case "with":
		return p.withStatement(line)
	case "generation":
		p.inner()
		body, _ := p.block("endgeneration")
		p.leave()
		return &groupStmt{body}
	case "block":
		p.expectName()
		for p.peek().kind == tokName {
			p.pos++ // scoped, required
		}
		p.inner()
		body, _ := p.block("endblock")
		p.leave()
		if p.peek().kind == tokName {
			p.pos++
		}
		return &groupStmt{body}
	case "autoescape":
		outer := p.autoescape
		t := p.expectName()
		p.autoescape = t == "true" || t == "True"
		p.inner()
		body, _ := p.block("endautoescape")
		p.leave()
		p.autoescape = outer
		return &groupStmt{body}
	case "break", "continue":
		if p.loops == 0 {
			p.fail("'%s' outside loop", word)
		}
		if word == "break" {
			return jumpStmt{errBreak}
		}
		return jumpStmt{errContinue}
	case "include", "import", "from", "extends":
		for k := p.peek().kind; k != tokBlockEnd && k != tokEOF; k = p.peek().kind {
			p.pos++
		}
		return &failStmt{word, line}
	default:
		p.pos--
		p.fail("encountered unknown tag '%s'", word)
		return nil
	}
}

func (p *parser) ifStatement(line int) stmt {
	p.soft++
	defer func() { p.soft-- }()
	s := &ifStmt{}
	for {
		b := branch{test: p.tuple(false), line: line}
		var end string
		b.body, end = p.block("elif", "else", "endif")
		s.branches = append(s.branches, b)
		switch end {
		case "elif":
			line = p.peek().line
			continue
		case "else":
			s.otherwise, _ = p.block("endif")
		}
		return s
	}
}

func (p *parser) forStatement(line int) stmt {
	s := &forStmt{line: line}
	begin := p.pos
	target := p.pattern(false, "in")
	if !p.skipName("in") {
		p.fail("expected 'in', got %s", p.peek())
	}
	s.source = p.tuple(false, "recursive")
	if p.skipName("if") {
		// The filter has its own copy of the loop's names: it may run ahead of
		// the body, when that looks at the next item.
		p.inner()
		s.filterTarget = p.bind(target)
		s.filter = p.expression()
		p.leave()
	}
	s.recursive = p.skipName("recursive")
	loops := p.loops
	if s.recursive {
		s.fn = p.function(nil)
		p.loops = 0
	} else {
		p.inner()
	}
	p.loops++
	s.firstSlot = p.scope.fn.slots
	s.loopSlot = p.scope.declare("loop")
	s.target = p.bind(target)
	before := len(p.names)
	body, end := p.block("else", "endfor")
	s.body = body
	s.lastSlot = p.scope.fn.slots
	s.cost = p.pos - begin
	s.usesLoop = s.recursive || slices.ContainsFunc(p.names[before:], func(n *nameExpr) bool { return n.name == "loop" })
	p.leave()
	p.loops = loops
	if end == "else" {
		p.inner()
		s.otherwise, _ = p.block("endfor")
		p.leave()
	}
	return s
}

func (p *parser) setStatement(line int) stmt {
	pattern := p.pattern(true, "")
	if p.skipOp("=") {
		value := p.tuple(true)
		return &setStmt{p.bind(pattern), value, line}
	}
	s := &captureStmt{line: line, escape: p.autoescape}
	s.filtered = p.filters(holeExpr{})
	p.inner()
	s.body, _ = p.block("endset")
	p.leave()
	s.target = p.bind(pattern)
	return s
}

func (p *parser) filterStatement(line int) stmt {
	s := &captureStmt{line: line, escape: p.autoescape}
	p.tokens[p.pos-1] = token{tokOp, "|", line} // "filter x|y" reads like "…|x|y"
	p.pos--
	s.filtered = p.filters(holeExpr{})
	p.inner()
	s.body, _ = p.block("endfilter")
	p.leave()
	return s
}

func (p *parser) withStatement(line int) stmt {
	s := &withStmt{line: line}
	var patterns []pattern
	for p.peek().kind != tokBlockEnd {
		if len(patterns) > 0 {
			p.expectOp(",")
		}
		patterns = append(patterns, p.pattern(false, ""))
		p.expectOp("=")
		s.values = append(s.values, p.expression())
	}
	p.inner()
	for _, pattern := range patterns {
		s.targets = append(s.targets, p.bind(pattern))
	}
	s.body, _ = p.block("endwith")
	p.leave()
	return s
}

func (p *parser) macroStatement(line int) stmt {
	name := p.expectName()
	slot := p.scope.declare(name)
	def := p.macro(name, "endmacro", line, true)
	return &macroStmt{def, slot}
}

func (p *parser) callStatement(line int) stmt {
	// The body is parsed after the call that it is given to, but in textual
	// order its parameters come first: remember where they stand.
	params := p.pos
	if p.isOp("(") {
		p.skipParentheses()
	}
	call := p.unary(true)
	end := p.pos
	p.pos = params
	def := p.macro("caller", "endcall", line, p.isOp("("), end)
	switch c := call.(type) {
	case *callExpr:
		c.args.keyword("caller", &macroExpr{def})
	case *methodExpr:
		c.args.keyword("caller", &macroExpr{def})
	default:
		p.fail("expected a call")
	}
	return &printStmt{call, p.autoescape, line}
}

func (p *parser) skipParentheses() {
	for depth := 0; ; {
		t := p.next()
		if t.kind == tokEOF {
			p.fail("unexpected end of template")
		}
		if t.kind != tokOp {
			continue
		}
		switch t.text {
		case "(":
			depth++
		case ")":
			if depth--; depth == 0 {
				return
			}
		}
	}
}

// macro parses the parameters and the body of a macro or call block. A body
// that does not follow its parameters begins at token resume.
func (p *parser) macro(name, end string, line int, signature bool, resume ...int) *macroDef {
	def := &macroDef{name: name, line: line, escape: p.autoescape}
	loops, begin := p.loops, p.pos
	p.loops = 0
	fn := p.function(def)
	for _, special := range []string{"caller", "varargs", "kwargs"} {
		p.scope.declare(special)
	}
	if signature {
		p.parameters(def)
	}
	if len(resume) > 0 {
		p.pos = resume[0]
	}
	def.body, _ = p.block(end)
	def.slots, def.cost = fn.slots, p.pos-begin
	p.leave()
	p.loops = loops
	return def
}

// Slots of the names that every macro has without declaring them.
const (
	callerSlot = iota
	varargsSlot
	kwargsSlot
	firstParamSlot
)

func (p *parser) parameters(def *macroDef) {
	p.expectOp("(")
	for !p.skipOp(")") {
		if len(def.params) > 0 {
			p.expectOp(",")
		}
		if len(def.params) == maxParams {
			p.fail("a macro has at most %d parameters", maxParams)
		}
		name := p.expectName()
		param := macroParam{name: name, missing: &undefined{kind: UndefinedError, why: "parameter '" + name + "' was not provided"}}
		if slices.ContainsFunc(def.params, func(o macroParam) bool { return o.name == param.name }) {
			p.fail("duplicate parameter '%s'", param.name)
		}
		param.slot = p.scope.declare(param.name)
		if p.skipOp("=") {
			param.value = p.expression()
		} else if n := len(def.params); n > 0 && def.params[n-1].value != nil {
			p.fail("parameter without a default follows one with a default")
		}
		def.params = append(def.params, param)
	}
}

// pattern is the left side of an assignment before its names have slots.
type pattern struct {
	name  string
	attr  string // of a namespace
	ns    expr
	parts []pattern // of a tuple, if not nil
}

// pattern parses one or more targets; end is a word that ends the list.
func (p *parser) pattern(namespaces bool, end string) pattern {
	var parts []pattern
	for {
		if len(parts) > 0 && (p.isName(end) || p.isOp("=") || p.isOp(")") || p.peek().kind == tokBlockEnd) {
			break
		}
		parts = append(parts, p.onePattern(namespaces))
		if !p.skipOp(",") {
			if len(parts) == 1 {
				return parts[0]
			}
			break
		}
	}
	return pattern{parts: parts}
}

func (p *parser) onePattern(namespaces bool) pattern {
	p.deeper()
	defer p.back()
	if p.skipOp("(") {
		inner := p.pattern(namespaces, "")
		p.expectOp(")")
		return inner
	}
	t := p.peek()
	name := p.expectName()
	if namespaces && p.skipOp(".") {
		return pattern{name: name, ns: p.name(name), attr: p.expectName()}
	}
	switch name {
	case "true", "false", "none", "True", "False", "None", "loop":
		p.pos--
		p.fail("can't assign to %s", t)
	}
	return pattern{name: name}
}

// bind declares the names of a pattern in the current scope.
func (p *parser) bind(pt pattern) target {
	switch {
	case pt.parts != nil:
		t := &tupleTarget{}
		for _, part := range pt.parts {
			t.parts = append(t.parts, p.bind(part))
		}
		return t
	case pt.ns != nil:
		return &attrTarget{pt.ns, pt.name, pt.attr}
	default:
		return slotTarget(p.scope.declare(pt.name))
	}
}
