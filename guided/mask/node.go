package mask

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// node is an expression in the form in which it is computed with: equal ones are
// one, so that a node is a state of the automaton, whose edges are its derivatives
// (Brzozowski, 1964; Owens, Reppy and Turon, 2009). Seq has two parts, and the
// first of them is no seq. But for void no node is without texts.
type node struct {
	id       uint32
	op       op
	null     bool // the empty text is one of its texts
	live     life // of opAnd
	hasAnd   bool
	set      *byteSet
	a, b     *node
	list     []*node
	min, max int32
	ref      int32
	row      []*node // derivatives by class, made when they are asked for
	profile  *profile
	clamped  *node
}

type life uint8

const (
	unknown life = iota
	alive
	dead
)

// key tells apart all nodes but sets and those with a list.
type key struct {
	op       op
	a, b     uint32
	min, max int32
}

// arena makes the nodes of one grammar and keeps each once.
type arena struct {
	rules   rules
	null    []bool // rules that have the empty text
	barren  []bool // rules without any text
	bodies  []*node
	classes [256]uint8
	reps    []byte          // a byte of each class
	marks   map[int32]int   // special tokens, as symbols behind the classes
	symbols int             // classes and marks
	built   map[*expr]*node // from expressions
	byKey   map[key]*node
	bySet   map[byteSet]*node
	byList  map[string]*node
	root    *node
	void    *node
	empty   *node
	nodes   int
	least   int // nodes at the beginning of the call
	work    int // steps since then
	most    int // that there may be
	held    int // bytes of nodes, about
	begun   int // of those that the first state needs
	kept    int // bytes of masks
	masked  []*node
	scratch []byte
}

// Limits of what one grammar may cost.
const (
	maxNodes   = 1 << 17 // parts of states that are kept, and that one token may need
	maxHeld    = 1 << 26 // bytes of states that are kept, beside those of the first one
	compileFor = 1 << 22 // steps for making the first state
	tokenFor   = 1 << 20 // steps for one token
)

// nodeBytes is about what a node takes with its place among the others, without its
// parts and derivatives.
const nodeBytes = 240

// full says that there is more of states than is kept.
func (a *arena) full() bool { return a.nodes > maxNodes || a.held-a.begun > maxHeld }

// bytes returns about what states and masks take.
func (a *arena) bytes() int64 { return int64(a.held + a.kept) }

// overrun is what a computation panics with that takes too many steps; it is
// caught where the computation began.
type overrun struct{ steps int }

func (o overrun) Is(target error) bool { return target == ErrTooMuch }

func (o overrun) Error() string {
	what := "one token takes"
	if o.steps == compileFor {
		what = "it takes"
	}
	return fmt.Sprintf("%s more than %d states or %d steps: a pattern, or a combination of keywords, has too many", what, maxNodes, o.steps)
}

func (a *arena) step(n int) {
	if a.work += n; a.work > a.most {
		panic(overrun{a.most})
	}
}

// within runs a computation with so many steps.
func (a *arena) within(steps int, run func()) (err error) {
	a.work, a.most, a.least = 0, steps, a.nodes
	defer func() {
		if r := recover(); r != nil {
			over, ok := r.(overrun)
			if !ok {
				panic(r)
			}
			err = over
		}
	}()
	run()
	return nil
}

func (a *arena) clear() {
	a.built, a.byKey, a.bySet, a.byList = map[*expr]*node{}, map[key]*node{}, map[byteSet]*node{}, map[string]*node{}
	a.bodies = make([]*node, len(a.rules))
	a.nodes, a.least, a.held, a.kept, a.masked = 0, 0, 0, 0, nil
	a.work, a.most = 0, compileFor
	a.void, a.empty = a.add(&node{op: opVoid}), a.add(&node{op: opEmpty, null: true})
}

func (a *arena) add(n *node) *node {
	a.step(1)
	n.id = uint32(a.nodes)
	a.held += nodeBytes + 8*cap(n.list) + 4*len(n.list)
	if a.nodes++; a.nodes-a.least > maxNodes {
		panic(overrun{a.most})
	}
	return n
}

func (a *arena) keyed(k key, make func() *node) *node {
	n, ok := a.byKey[k]
	if !ok {
		n = a.add(make())
		a.byKey[k] = n
	} else {
		a.step(1)
	}
	return n
}

// build makes the node of an expression.
func (a *arena) build(e *expr) *node {
	if n, ok := a.built[e]; ok {
		return n
	}
	var n *node
	switch e.op {
	case opVoid:
		n = a.void
	case opEmpty:
		n = a.empty
	case opSet:
		n = a.set(e.set)
	case opMark:
		n = a.mark(e.ref)
	case opSeq:
		n = a.empty
		for _, part := range slices.Backward(e.list) {
			n = a.seq(a.build(part), n)
		}
	case opAlt:
		n = a.alt(a.all(e.list))
	case opRepeat:
		n = a.repeat(a.build(e.list[0]), e.min, e.max)
	case opAnd:
		n = a.and(a.all(e.list))
	case opNot:
		n = a.not(a.build(e.list[0]))
	case opFrame:
		n = a.frame(a.build(e.list[0]))
	case opRef:
		n = a.rule(e.ref)
	}
	a.built[e] = n
	return n
}

func (a *arena) all(list []*expr) []*node {
	nodes := make([]*node, len(list))
	for i, e := range list {
		nodes[i] = a.build(e)
	}
	return nodes
}

// body returns the node of a rule.
func (a *arena) body(rule int32) *node {
	if a.bodies[rule] == nil {
		a.bodies[rule] = a.build(a.rules[rule])
	}
	return a.bodies[rule]
}

func (a *arena) set(s *byteSet) *node {
	if *s == (byteSet{}) {
		return a.void
	}
	n := a.bySet[*s]
	if n == nil {
		n = a.add(&node{op: opSet, set: s})
		a.bySet[*s] = n
	}
	return n
}

func (a *arena) mark(id int32) *node {
	return a.keyed(key{op: opMark, min: id}, func() *node { return &node{op: opMark, ref: id} })
}

func (a *arena) rule(ref int32) *node {
	if a.barren[ref] {
		return a.void
	}
	return a.keyed(key{op: opRef, min: ref}, func() *node { return &node{op: opRef, ref: ref, null: a.null[ref]} })
}

func (a *arena) seq(head, tail *node) *node {
	switch {
	case head.op == opVoid || tail.op == opVoid:
		return a.void
	case head.op == opEmpty:
		return tail
	case tail.op == opEmpty:
		return head
	case head.op == opSeq:
		return a.seq(head.a, a.seq(head.b, tail))
	}
	return a.keyed(key{op: opSeq, a: head.id, b: tail.id}, func() *node {
		return &node{op: opSeq, a: head, b: tail, null: head.null && tail.null, hasAnd: head.hasAnd || tail.hasAnd}
	})
}

func (a *arena) repeat(e *node, low, high int32) *node {
	if e.null {
		low = 0
	}
	switch {
	case high == 0 || e.op == opEmpty:
		return a.empty
	case e.op == opVoid && low > 0:
		return a.void
	case e.op == opVoid:
		return a.empty
	case low == 1 && high == 1:
		return e
	case low == 0 && high == 1 && e.null:
		return e
	}
	return a.keyed(key{op: opRepeat, a: e.id, min: low, max: high}, func() *node {
		return &node{op: opRepeat, a: e, min: low, max: high, null: low == 0, hasAnd: e.hasAnd}
	})
}

// frame is moved behind a frame that its inside begins with: what a frame calls
// stands before what is left of it, as on a stack.
func (a *arena) frame(e *node) *node {
	switch {
	case e.op == opVoid || e.op == opEmpty || e.op == opFrame:
		return e
	case e.op == opSeq && e.a.op == opFrame:
		return a.seq(e.a, a.frame(e.b))
	}
	return a.keyed(key{op: opFrame, a: e.id}, func() *node {
		return &node{op: opFrame, a: e, null: e.null, hasAnd: e.hasAnd}
	})
}

func (a *arena) not(e *node) *node {
	if e.op == opNot {
		return e.a
	}
	return a.keyed(key{op: opNot, a: e.id}, func() *node {
		return &node{op: opNot, a: e, null: !e.null, hasAnd: true}
	})
}

// everything says whether a node has all texts.
func everything(n *node) bool { return n.op == opNot && n.a.op == opVoid }

func (a *arena) alt(parts []*node) *node {
	if one := only(parts); one != nil {
		return one
	}
	var list []*node
	var sets byteSet
	some := false
	var put func(parts []*node)
	put = func(parts []*node) {
		a.step(len(parts))
		for _, p := range parts {
			switch p.op {
			case opVoid:
			case opAlt:
				put(p.list)
			case opSet:
				some = true
				for i := range sets {
					sets[i] |= p.set[i]
				}
			default:
				list = append(list, p)
			}
		}
	}
	put(parts)
	if some {
		list = append(list, a.set(&sets))
	}
	list = distinct(list)
	if slices.ContainsFunc(list, func(n *node) bool { return n.null && n.op != opEmpty }) {
		list = slices.DeleteFunc(list, func(n *node) bool { return n.op == opEmpty })
	}
	switch len(list) {
	case 0:
		return a.void
	case 1:
		return list[0]
	}
	return a.listed(opAlt, list)
}

// only returns the one part that is not void, or nil if there are more of them, or
// none.
func only(parts []*node) (one *node) {
	for _, p := range parts {
		if p.op == opVoid {
			continue
		}
		if one != nil {
			return nil
		}
		one = p
	}
	return one
}

// listed returns the one node of a list.
func (a *arena) listed(o op, list []*node) *node {
	a.scratch = append(a.scratch[:0], byte(o))
	for _, n := range list {
		a.scratch = binary.LittleEndian.AppendUint32(a.scratch, n.id)
	}
	if n, ok := a.byList[string(a.scratch)]; ok {
		return n
	}
	k := string(a.scratch)
	n := &node{op: o, list: list, null: o == opAnd, hasAnd: o == opAnd}
	for _, part := range list {
		if o == opAlt {
			n.null = n.null || part.null
			n.hasAnd = n.hasAnd || part.hasAnd
		} else {
			n.null = n.null && part.null
		}
	}
	a.byList[k] = a.add(n)
	return n
}

// distinct sorts nodes and leaves each once.
func distinct(list []*node) []*node {
	slices.SortFunc(list, func(a, b *node) int { return int(a.id) - int(b.id) })
	return slices.Compact(list)
}

// and returns what all parts have, which is void if there is nothing.
func (a *arena) and(parts []*node) *node {
	n := a.meet(parts)
	if n.op == opAnd && !a.lives(n) {
		return a.void
	}
	return n
}

// meet is the same without the search for a text.
func (a *arena) meet(parts []*node) *node {
	var list []*node
	for _, p := range parts {
		a.step(1)
		switch {
		case p.op == opVoid:
			return a.void
		case p.op == opEmpty:
			for _, other := range parts {
				if !other.null {
					return a.void
				}
			}
			return a.empty
		case p.op == opAnd:
			list = append(list, p.list...)
		case !everything(p):
			list = append(list, p)
		}
	}
	list = distinct(list)
	switch len(list) {
	case 0:
		return a.not(a.void)
	case 1:
		return list[0]
	}
	for _, p := range list {
		if p.op == opNot && slices.Contains(list, p.a) {
			return a.void
		}
	}
	return a.listed(opAnd, list)
}
