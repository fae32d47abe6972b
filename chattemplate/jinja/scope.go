package jinja

// Variables live in slots that are known before rendering. A function (the
// template itself, a macro, the body of a call block or of a recursive loop)
// has one frame of slots; a scope inside it (a loop body, a with block) has
// slots of its own in that frame. Whether a "set" was executed shows only at
// run time, so a name reads the first slot that is filled, innermost scope
// first, and then the variables given to Render.

// frame holds the variables of one running function.
type frame struct {
	slots  []Value // nil = not set
	parent *frame  // of the function that this one was defined in
}

// funcScope counts the slots of one function.
type funcScope struct {
	slots int
	macro *macroDef // nil for the template itself and for recursive loops
}

// scope is one region in which names are declared.
type scope struct {
	parent *scope
	fn     *funcScope
	names  map[string]int
	known  map[string][]ref // what resolve found
}

func (s *scope) declare(name string) int {
	if slot, ok := s.names[name]; ok {
		return slot
	}
	if s.names == nil {
		s.names = map[string]int{}
	}
	slot := s.fn.slots
	s.fn.slots++
	s.names[name] = slot
	return slot
}

// ref is one place where a name may have its value.
type ref struct{ hops, slot int }

// resolve lists the places of a name, innermost first. All scopes must be
// complete.
func (s *scope) resolve(name string) []ref {
	refs, ok := s.known[name]
	if ok {
		return refs
	}
	hops := 0
	for at := s; at != nil; at = at.parent {
		if slot, ok := at.names[name]; ok {
			refs = append(refs, ref{hops, slot})
		}
		if at.parent != nil && at.parent.fn != at.fn {
			hops++
		}
	}
	if s.known == nil {
		s.known = map[string][]ref{}
	}
	s.known[name] = refs
	return refs
}

// inner opens a scope in the same function, outer one in a new function.
func (p *parser) inner() { p.scope = &scope{parent: p.scope, fn: p.scope.fn} }

func (p *parser) function(def *macroDef) *funcScope {
	fn := &funcScope{macro: def}
	p.scope = &scope{parent: p.scope, fn: fn}
	return fn
}

func (p *parser) leave() { p.scope = p.scope.parent }

// name makes a node that reads a variable. Its slots are filled in when the
// whole template is parsed, because a later "set" may declare it.
func (p *parser) name(name string) *nameExpr {
	n := &nameExpr{name: name, scope: p.scope}
	p.names = append(p.names, n)
	p.markSpecial(name)
	return n
}

// markSpecial notes that a loop reads its loop variable, or a macro the names
// that it need not declare.
func (p *parser) markSpecial(name string) {
	switch name {
	case "caller", "varargs", "kwargs":
		for s := p.scope; s != nil; s = s.parent {
			m := s.fn.macro
			if m == nil {
				continue
			}
			switch name {
			case "caller":
				m.usesCaller = true
			case "varargs":
				m.usesVarargs = true
			default:
				m.usesKwargs = true
			}
			return
		}
	}
}

// link gives every name its slots and its place among the template's globals.
func (p *parser) link() []string {
	var globals []string
	var missing []*undefined // by number
	index := map[string]int{}
	for _, n := range p.names {
		n.refs = n.scope.resolve(n.name)
		n.scope = nil
		i, ok := index[n.name]
		if !ok {
			i = len(globals)
			index[n.name] = i
			globals = append(globals, n.name)
			missing = append(missing, &undefined{name: n.name, kind: UndefinedError})
		}
		n.global, n.missing = i, missing[i]
	}
	return globals
}
