package mask

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// newArena looks at what can be told of rules without reading a text: which of
// them have the empty text, which have no text, and that none begins with itself.
// Its errors are for the one who wrote the form.
func newArena(r rules, root *expr) (a *arena, err error) {
	a = &arena{rules: r, null: make([]bool, len(r)), barren: make([]bool, len(r)), marks: map[int32]int{}}
	g, err := reachable(r, root)
	if err != nil {
		return nil, err
	}
	a.sort(g.all)
	null := g.fixed(nullable)
	for i, e := range r {
		a.null[i] = e != nil && null[g.index[e]]
	}
	if err := g.checkLeft(null); err != nil {
		return nil, err
	}
	a.clear()
	over := a.within(compileFor, func() {
		// An intersection without texts, of which only a search can tell, is looked
		// for before anything is built on it.
		nothing := map[*expr]bool{}
		for _, e := range g.all {
			if e.op == opAnd {
				nothing[e] = a.build(e).op == opVoid
			}
		}
		has := g.fixed(func(e *expr, has func(*expr) bool) bool { return productive(e, has) && !nothing[e] })
		for i, e := range r {
			a.barren[i] = e != nil && !has[g.index[e]]
		}
		a.clear()
		if a.root = a.begin(root); a.root.op == opVoid {
			err = errors.New("no text keeps it")
		}
	})
	return a, cmp.Or(over, err)
}

// begin builds all rules, so that no token has to, and returns the node of the form.
func (a *arena) begin(root *expr) *node {
	for i, e := range a.rules {
		if e != nil {
			a.body(int32(i))
		}
	}
	n := a.build(root)
	a.begun = a.held
	return n
}

// maxExprs bounds what a form is made of.
const maxExprs = 1 << 17

// graph is a form: all expressions, each once, those that an expression is made of
// before it.
type graph struct {
	rules rules
	all   []*expr
	index map[*expr]int
}

func reachable(r rules, root *expr) (*graph, error) {
	g := &graph{rules: r, index: map[*expr]int{}}
	todo := []*expr{root}
	for len(todo) > 0 {
		e := todo[len(todo)-1]
		if i, ok := g.index[e]; ok {
			todo = todo[:len(todo)-1]
			if i < 0 {
				g.index[e] = len(g.all)
				g.all = append(g.all, e)
			}
			continue
		}
		if g.index[e] = -1; len(g.index) > maxExprs {
			return nil, fmt.Errorf("it has more than %d parts when it is written out", maxExprs)
		}
		for _, part := range g.parts(e) {
			if _, ok := g.index[part]; !ok {
				todo = append(todo, part)
			}
		}
	}
	return g, nil
}

func (g *graph) parts(e *expr) []*expr {
	if e.op == opRef {
		return []*expr{g.rules[e.ref]}
	}
	return e.list
}

// fixed finds what holds for each expression when it can be told from its parts:
// the least such answer, where expressions refer to each other.
func (g *graph) fixed(holds func(e *expr, of func(*expr) bool) bool) []bool {
	known := make([]bool, len(g.all))
	of := func(e *expr) bool { return known[g.index[e]] }
	for changed := true; changed; {
		changed = false
		for i, e := range g.all {
			if known[i] {
				continue
			}
			if e.op == opRef {
				known[i] = of(g.rules[e.ref])
			} else {
				known[i] = holds(e, of)
			}
			changed = changed || known[i]
		}
	}
	return known
}

func nullable(e *expr, of func(*expr) bool) bool {
	switch e.op {
	case opEmpty:
		return true
	case opSeq, opAnd:
		return all(e.list, of)
	case opAlt:
		return slices.ContainsFunc(e.list, of)
	case opRepeat:
		return e.min == 0 || of(e.list[0])
	case opFrame:
		return of(e.list[0])
	case opNot: // nothing in it refers to a rule, so all of it is known
		return !of(e.list[0])
	}
	return false
}

func productive(e *expr, of func(*expr) bool) bool {
	switch e.op {
	case opVoid:
		return false
	case opAlt:
		return slices.ContainsFunc(e.list, of)
	case opRepeat:
		return e.min == 0 || of(e.list[0])
	case opSeq, opFrame:
		return all(e.list, of)
	}
	return true
}

func all(list []*expr, of func(*expr) bool) bool {
	return !slices.ContainsFunc(list, func(e *expr) bool { return !of(e) })
}

// checkLeft returns an error if a rule begins with itself: its derivative would
// have no end.
func (g *graph) checkLeft(null []bool) error {
	const (
		open = 1
		done = 2
	)
	state := make([]uint8, len(g.all))
	var ends func(e *expr) bool
	ends = func(e *expr) bool {
		i := g.index[e]
		if state[i] != 0 {
			return state[i] == done
		}
		state[i] = open
		for _, part := range g.parts(e) {
			if !ends(part) {
				return false
			}
			if e.op == opSeq && !null[g.index[part]] {
				break
			}
		}
		state[i] = done
		return true
	}
	for _, e := range g.all {
		if !ends(e) {
			return errors.New("it refers to itself before any text")
		}
	}
	return nil
}

// sort puts bytes that nothing tells apart into one class, and gives each special
// token a symbol of its own.
func (a *arena) sort(all []*expr) {
	var sets []*byteSet
	known := map[byteSet]bool{}
	for _, e := range all {
		if e.op == opSet && !known[*e.set] {
			known[*e.set] = true
			sets = append(sets, e.set)
		}
	}
	class := map[string]uint8{}
	for b := range 256 {
		bits := make([]byte, (len(sets)+7)/8)
		for i, s := range sets {
			if s.has(byte(b)) {
				bits[i/8] |= 1 << (i % 8)
			}
		}
		c, ok := class[string(bits)]
		if !ok {
			c = uint8(len(a.reps))
			class[string(bits)] = c
			a.reps = append(a.reps, byte(b))
		}
		a.classes[b] = c
	}
	a.symbols = len(a.reps)
	for _, e := range all {
		if _, ok := a.marks[e.ref]; e.op == opMark && !ok {
			a.marks[e.ref] = a.symbols
			a.symbols++
		}
	}
}

// adopt makes the node of another arena of the same grammar anew.
func (a *arena) adopt(n *node, known map[*node]*node) *node {
	if same, ok := known[n]; ok {
		return same
	}
	list := make([]*node, len(n.list))
	for i, part := range n.list {
		list[i] = a.adopt(part, known)
	}
	var same *node
	switch n.op {
	case opVoid:
		same = a.void
	case opEmpty:
		same = a.empty
	case opSet:
		same = a.set(n.set)
	case opMark:
		same = a.mark(n.ref)
	case opRef:
		same = a.rule(n.ref)
	case opSeq:
		same = a.seq(a.adopt(n.a, known), a.adopt(n.b, known))
	case opAlt:
		same = a.alt(list)
	case opRepeat:
		same = a.repeat(a.adopt(n.a, known), n.min, n.max)
	case opAnd:
		same = a.and(list)
	case opNot:
		same = a.not(a.adopt(n.a, known))
	case opFrame:
		same = a.frame(a.adopt(n.a, known))
	}
	known[n] = same
	return same
}
