package mask

// expr is a set of texts, as it is written down: a regular expression over bytes
// with references to others, which makes it context-free, and with intersection
// and complement. Expressions are shared, and do not change.
type expr struct {
	op       op
	set      *byteSet // opSet
	list     []*expr  // opSeq, opAlt, opAnd; opRepeat, opNot and opFrame have one
	min, max int32    // opRepeat; max < 0: no limit
	ref      int32    // opRef: the rule; opMark: the id
}

type op uint8

const (
	opVoid   op = iota // no text at all
	opEmpty            // the empty text
	opSet              // one byte of a set
	opMark             // one special token
	opSeq              // one behind the other
	opAlt              // any
	opRepeat           // one of them some times
	opAnd              // what all have
	opNot              // what one does not have, of all texts of bytes
	opFrame            // the same as what is in it; its masks are kept apart
	opRef              // a rule
)

// byteSet has a bit for each byte.
type byteSet [4]uint64

func (s *byteSet) add(low, high byte) {
	for b := int(low); b <= int(high); b++ {
		s[b>>6] |= 1 << (b & 63)
	}
}

func (s *byteSet) has(b byte) bool { return s[b>>6]>>(b&63)&1 == 1 }

// rules are expressions that refer to each other by number.
type rules []*expr

func (r *rules) reserve() int32 {
	*r = append(*r, nil)
	return int32(len(*r) - 1)
}

var (
	void  = &expr{op: opVoid}
	empty = &expr{op: opEmpty}
)

// span is one byte from low to high.
func span(low, high byte) *expr {
	if low > high {
		return void
	}
	var s byteSet
	s.add(low, high)
	return &expr{op: opSet, set: &s}
}

// anyOf is one byte of a text.
func anyOf(chars string) *expr {
	var s byteSet
	for i := range len(chars) {
		s.add(chars[i], chars[i])
	}
	return &expr{op: opSet, set: &s}
}

// lit is a text itself.
func lit(text string) *expr {
	parts := make([]*expr, len(text))
	for i := range len(text) {
		parts[i] = span(text[i], text[i])
	}
	return seq(parts...)
}

func seq(parts ...*expr) *expr {
	var list []*expr
	for _, p := range parts {
		switch p.op {
		case opVoid:
			return void
		case opEmpty:
		default:
			list = append(list, p)
		}
	}
	switch len(list) {
	case 0:
		return empty
	case 1:
		return list[0]
	}
	return &expr{op: opSeq, list: list}
}

func alt(parts ...*expr) *expr {
	var list []*expr
	for _, p := range parts {
		if p.op != opVoid {
			list = append(list, p)
		}
	}
	switch len(list) {
	case 0:
		return void
	case 1:
		return list[0]
	}
	return &expr{op: opAlt, list: list}
}

// noLimit is the most of a repetition that has none.
const noLimit = -1

func repeat(e *expr, low, high int) *expr {
	switch {
	case high == 0 || high > 0 && low > high:
		if low > 0 {
			return void
		}
		return empty
	case low == 1 && high == 1:
		return e
	}
	return &expr{op: opRepeat, list: []*expr{e}, min: int32(low), max: int32(high)}
}

func star(e *expr) *expr   { return repeat(e, 0, noLimit) }
func option(e *expr) *expr { return alt(empty, e) }

func and(parts ...*expr) *expr {
	if len(parts) == 1 {
		return parts[0]
	}
	return &expr{op: opAnd, list: parts}
}

func not(e *expr) *expr       { return &expr{op: opNot, list: []*expr{e}} }
func frame(e *expr) *expr     { return &expr{op: opFrame, list: []*expr{e}} }
func call(rule int32) *expr   { return &expr{op: opRef, ref: rule} }
func special(id uint32) *expr { return &expr{op: opMark, ref: int32(id)} }

// texts is one of some texts, with common beginnings written once.
func texts(sorted []string) *expr {
	var parts []*expr
	for len(sorted) > 0 {
		if sorted[0] == "" {
			parts = append(parts, empty)
			sorted = sorted[1:]
			continue
		}
		first, n := sorted[0][0], 1
		for n < len(sorted) && sorted[n][0] == first {
			n++
		}
		if n == 1 {
			parts = append(parts, lit(sorted[0]))
		} else {
			common := prefix(sorted[0], sorted[n-1])
			rest := make([]string, n)
			for i, s := range sorted[:n] {
				rest[i] = s[len(common):]
			}
			parts = append(parts, seq(lit(common), texts(rest)))
		}
		sorted = sorted[n:]
	}
	return alt(parts...)
}

func prefix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}
