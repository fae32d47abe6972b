package mask

// next returns what may come behind a symbol: the derivative of a node.
func (a *arena) next(n *node, symbol int) *node {
	if n.row == nil {
		if n.op == opVoid || n.op == opEmpty {
			return a.void
		}
		n.row = make([]*node, a.symbols)
		a.held += 8 * a.symbols
	}
	if d := n.row[symbol]; d != nil {
		return d
	}
	d := a.derive(n, symbol)
	n.row[symbol] = d
	return d
}

func (a *arena) derive(n *node, symbol int) *node {
	a.step(1)
	switch n.op {
	case opSet:
		if symbol < len(a.reps) && n.set.has(a.reps[symbol]) {
			return a.empty
		}
	case opMark:
		if symbol == a.marks[n.ref] {
			return a.empty
		}
	case opSeq:
		d := a.seq(a.next(n.a, symbol), n.b)
		if n.a.null {
			return a.alt([]*node{d, a.next(n.b, symbol)})
		}
		return d
	case opAlt:
		parts := make([]*node, len(n.list))
		for i, part := range n.list {
			parts[i] = a.next(part, symbol)
		}
		return a.alt(parts)
	case opRepeat:
		return a.seq(a.next(n.a, symbol), a.repeat(n.a, max(n.min-1, 0), max(n.max-1, noLimit)))
	case opAnd:
		return a.and(a.derivatives(n, symbol))
	case opNot:
		return a.not(a.next(n.a, symbol))
	case opFrame:
		return a.frame(a.next(n.a, symbol))
	case opRef:
		return a.next(a.body(n.ref), symbol)
	}
	return a.void
}

func (a *arena) derivatives(n *node, symbol int) []*node {
	parts := make([]*node, len(n.list))
	for i, part := range n.list {
		parts[i] = a.next(part, symbol)
	}
	return parts
}

// read returns what may come behind a text.
func (a *arena) read(n *node, text []byte) *node {
	for _, b := range text {
		n = a.next(n, int(a.classes[b]))
	}
	return n
}

// lives looks for a text that all parts of an intersection have, depth first. What
// it finds out holds for all nodes on the way, or, if there is none, for all that
// it has seen.
func (a *arena) lives(n *node) bool {
	if n.live != unknown {
		return n.live == alive
	}
	type visit struct {
		node   *node
		symbol int
	}
	seen := map[*node]bool{n: true}
	way := []visit{{node: n}}
	for len(way) > 0 {
		top := &way[len(way)-1]
		if top.node.null || top.node.op != opAnd || top.node.live == alive {
			for _, v := range way {
				v.node.live = alive
			}
			return true
		}
		if top.node.live == dead || top.symbol == a.symbols {
			way = way[:len(way)-1]
			continue
		}
		below := a.meet(a.derivatives(top.node, top.symbol))
		top.symbol++
		if below.op != opVoid && !seen[below] {
			seen[below] = true
			way = append(way, visit{node: below})
		}
	}
	for below := range seen {
		below.live = dead
	}
	return false
}
