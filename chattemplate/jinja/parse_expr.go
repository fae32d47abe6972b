package jinja

import (
	"strconv"
	"strings"
)

// The grammar of expressions, loosest binding first: inline if, or, and, not,
// comparison, + and -, ~, * / // %, **, unary sign, postfix, filter and test.

// tuple parses an expression, or several separated by commas. Without inline
// the words "if" and "else" are left to the statement; end is a word that ends
// the list.
func (p *parser) tuple(inline bool, end ...string) expr {
	var items []expr
	for {
		if len(items) > 0 && p.tupleEnds(end) {
			break
		}
		items = append(items, p.condition(inline))
		if !p.skipOp(",") {
			if len(items) == 1 {
				return items[0]
			}
			break
		}
	}
	return &tupleExpr{items}
}

func (p *parser) tupleEnds(end []string) bool {
	switch t := p.peek(); t.kind {
	case tokBlockEnd, tokPrintEnd, tokEOF:
		return true
	case tokOp:
		return t.text == ")"
	case tokName:
		return len(end) > 0 && t.text == end[0]
	}
	return false
}

func (p *parser) expression() expr { return p.condition(true) }

func (p *parser) condition(inline bool) expr {
	p.deeper()
	defer p.back()
	unknown := len(p.unknown)
	e := p.or()
	if !inline || !p.isName("if") {
		return e
	}
	p.unknown = p.unknown[:unknown] // they stand in a branch
	p.soft++
	defer func() { p.soft-- }()
	for p.skipName("if") {
		c := &condExpr{then: e, test: p.or()}
		if p.skipName("else") {
			c.otherwise = p.condition(true)
		}
		e = c
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.skipName("or") {
		e = &logicExpr{or: true, left: e, right: p.and()}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.skipName("and") {
		e = &logicExpr{left: e, right: p.not()}
	}
	return e
}

func (p *parser) not() expr {
	if p.isName("not") {
		p.deeper()
		defer p.back()
		p.pos++
		return &notExpr{p.not()}
	}
	return p.comparison()
}

func (p *parser) comparison() expr {
	first := p.sum()
	var links []comparison
	for {
		op := ""
		switch t := p.peek(); {
		case t.kind == tokOp:
			switch t.text {
			case "==", "!=", "<", "<=", ">", ">=":
				op = t.text
				p.pos++
			}
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.tokens[p.pos+1].kind == tokName && p.tokens[p.pos+1].text == "in":
			op = "not in"
			p.pos += 2
		}
		if op == "" {
			break
		}
		links = append(links, comparison{op, p.sum()})
	}
	if links == nil {
		return first
	}
	return &compareExpr{first, links}
}

func (p *parser) sum() expr {
	e := p.concat()
	for {
		line := p.peek().line
		switch {
		case p.skipOp("+"):
			terms := []expr{e}
			if s, ok := e.(*sumExpr); ok && !s.closed {
				terms = s.terms
			}
			e = &sumExpr{terms: append(terms, p.concat()), line: line}
		case p.skipOp("-"):
			e = &arithExpr{"-", e, p.concat(), line}
		default:
			if s, ok := e.(*sumExpr); ok {
				s.closed = true
			}
			return e
		}
	}
}

func (p *parser) concat() expr {
	e := p.product()
	if !p.isOp("~") {
		return e
	}
	terms := []expr{e}
	for p.skipOp("~") {
		terms = append(terms, p.product())
	}
	return &concatExpr{terms, p.autoescape}
}

func (p *parser) product() expr {
	e := p.power()
	for {
		t := p.peek()
		if t.kind != tokOp || t.text != "*" && t.text != "/" && t.text != "//" && t.text != "%" {
			return e
		}
		p.pos++
		e = &arithExpr{t.text, e, p.power(), t.line}
	}
}

func (p *parser) power() expr {
	e := p.unary(true)
	for p.isOp("**") {
		line := p.next().line
		e = &arithExpr{"**", e, p.unary(true), line}
	}
	return e
}

// unary parses a sign or a primary expression and what follows it. A filter
// after a sign applies to the signed value.
func (p *parser) unary(filters bool) expr {
	p.deeper()
	defer p.back()
	var e expr
	line := p.peek().line
	switch {
	case p.skipOp("-"):
		e = &signExpr{p.unary(false), true, line}
	case p.skipOp("+"):
		e = &signExpr{p.unary(false), false, line}
	default:
		e = p.primary()
	}
	e = p.postfix(e)
	if filters {
		e = p.filtersAndTests(e)
	}
	return e
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return constExpr{true}
		case "false", "False":
			return constExpr{false}
		case "none", "None":
			return constExpr{None}
		}
		return p.name(t.text)
	case tokString:
		if p.peek().kind != tokString {
			return constExpr{t.text}
		}
		var b strings.Builder
		b.WriteString(t.text)
		for p.peek().kind == tokString {
			b.WriteString(p.next().text)
		}
		return constExpr{b.String()}
	case tokInt:
		base := 10
		if len(t.text) > 1 && t.text[0] == '0' && !isDigit(t.text[1]) {
			base = 0
		}
		v, ok := integer(t.text, base)
		if !ok {
			p.pos--
			p.fail("integer %s is too large", t.text)
		}
		return constExpr{v}
	case tokFloat:
		f, _ := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		return constExpr{f}
	case tokOp:
		switch t.text {
		case "(":
			if p.skipOp(")") {
				return &tupleExpr{}
			}
			e := p.tuple(true)
			p.expectOp(")")
			return e
		case "[":
			return &listExpr{p.items("]")}
		case "{":
			return p.dict()
		}
	}
	p.pos--
	if t.kind == tokEOF {
		p.pos = len(p.tokens) - 1
	}
	p.fail("unexpected %s", t)
	return nil
}

func (p *parser) items(end string) []expr {
	var items []expr
	for !p.skipOp(end) {
		if len(items) > 0 {
			p.expectOp(",")
			if p.skipOp(end) {
				break
			}
		}
		items = append(items, p.expression())
	}
	return items
}

func (p *parser) dict() expr {
	d := &dictExpr{}
	for !p.skipOp("}") {
		if len(d.keys) > 0 {
			p.expectOp(",")
			if p.skipOp("}") {
				break
			}
		}
		d.keys = append(d.keys, p.expression())
		p.expectOp(":")
		d.vals = append(d.vals, p.expression())
	}
	return d
}

func (p *parser) postfix(e expr) expr {
	for {
		line := p.peek().line
		switch {
		case p.skipOp("."):
			e = p.attribute(e, line)
		case p.skipOp("["):
			e = p.subscript(e, line)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) attribute(e expr, line int) expr {
	t := p.next()
	switch t.kind {
	case tokName:
		return &attrExpr{e, t.text, line}
	case tokInt:
		if n, err := strconv.Atoi(strings.ReplaceAll(t.text, "_", "")); err == nil {
			return &itemExpr{e, constExpr{n}, line}
		}
	}
	p.pos--
	p.fail("expected a name or number, got %s", t)
	return nil
}

func (p *parser) subscript(e expr, line int) expr {
	var parts []expr
	for !p.skipOp("]") {
		if len(parts) > 0 {
			p.expectOp(",")
		}
		parts = append(parts, p.subscribed())
	}
	if len(parts) == 1 {
		if s, ok := parts[0].(*sliceExpr); ok {
			s.object, s.line = e, line
			return s
		}
		return &itemExpr{e, parts[0], line}
	}
	return &itemExpr{e, &tupleExpr{parts}, line}
}

func (p *parser) subscribed() expr {
	s := &sliceExpr{}
	if !p.isOp(":") {
		e := p.expression()
		if !p.isOp(":") {
			return e
		}
		s.start = e
	}
	p.expectOp(":")
	if !p.isOp(":") && !p.isOp("]") && !p.isOp(",") {
		s.stop = p.expression()
	}
	if p.skipOp(":") && !p.isOp("]") && !p.isOp(",") {
		s.step = p.expression()
	}
	return s
}

func (p *parser) call(e expr) expr {
	line := p.peek().line
	a := p.arguments()
	if attr, ok := e.(*attrExpr); ok {
		return &methodExpr{attr: attr, method: methodsNamed(attr.name), args: a, line: line}
	}
	return &callExpr{e, a, line}
}

func (p *parser) arguments() arguments {
	var a arguments
	p.expectOp("(")
	for comma := false; !p.skipOp(")"); comma = true {
		if comma {
			p.expectOp(",")
			if p.skipOp(")") {
				break
			}
		}
		switch next := p.tokens[min(p.pos+1, len(p.tokens)-1)]; {
		case p.isOp("*") && a.star == nil && a.starstar == nil:
			p.pos++
			a.star = p.expression()
		case p.isOp("**") && a.starstar == nil:
			p.pos++
			a.starstar = p.expression()
		case a.starstar == nil && p.peek().kind == tokName && next.kind == tokOp && next.text == "=":
			name := p.expectName()
			p.pos++
			a.keyword(name, p.expression())
		case a.star == nil && a.starstar == nil && a.keys == nil:
			a.pos = append(a.pos, p.expression())
		default:
			p.fail("invalid syntax for function call expression")
		}
	}
	return a
}

func (p *parser) filtersAndTests(e expr) expr {
	for {
		switch {
		case p.isOp("|"):
			e = p.filters(e)
		case p.skipName("is"):
			e = p.test(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) filters(e expr) expr {
	for p.skipOp("|") {
		line := p.peek().line
		name := p.dottedName()
		var a arguments
		if p.isOp("(") {
			a = p.arguments()
		}
		e = p.builtinCall(filters, "filter", name, e, a, line)
	}
	return e
}

func (p *parser) dottedName() string {
	parts := []string{p.expectName()}
	for p.skipOp(".") {
		parts = append(parts, p.expectName())
	}
	return strings.Join(parts, ".")
}

func (p *parser) test(e expr) expr {
	negated := p.skipName("not")
	line := p.peek().line
	name := p.dottedName()
	var a arguments
	switch t := p.peek(); {
	case p.isOp("("):
		a = p.arguments()
	case p.isName("is"):
		p.fail("you cannot chain multiple tests with is")
	case p.isName("else"), p.isName("or"), p.isName("and"):
	case t.kind == tokName, t.kind == tokString, t.kind == tokInt, t.kind == tokFloat, p.isOp("["), p.isOp("{"):
		a.pos = []expr{p.postfix(p.primary())}
	}
	e = p.builtinCall(tests, "test", name, e, a, line)
	if negated {
		return &notExpr{e}
	}
	return e
}

// builtinCall makes the call of a filter or test, whose first argument is e.
func (p *parser) builtinCall(table map[string]*builtin, what, name string, e expr, a arguments, line int) expr {
	fn, ok := table[name]
	if !ok {
		err := &Error{Kind: SyntaxError, Line: line, Message: "no " + what + " named '" + name + "'"}
		if p.soft == 0 {
			p.unknown = append(p.unknown, err)
		}
		return &failExpr{err}
	}
	a.pos = append([]expr{e}, a.pos...)
	return &builtinExpr{fn, a, line}
}
