package parser

// Markup returns how many bytes were neither released nor dropped, and Held how
// many are held back.
func (p *Parser) Markup() int { return p.markup }
func (p *Parser) Held() int   { return int(p.in - p.pos) }

// Idle says whether nothing is open but text or a thought, and LongestMarker how
// long the longest marker is that is looked for there.
func (p *Parser) Idle() bool { return p.state == inText || p.state == inThought && !p.fresh }

func (p *Parser) LongestMarker() (n int) {
	for _, set := range []*markers{&p.sets.text, &p.sets.thought} {
		for _, m := range set.list {
			n = max(n, len(m.text))
		}
	}
	return n
}

// Wrappers returns the markers that never stand in text.
func (f Family) Wrappers() (list []string) {
	if f.harmony() {
		return f.Markers()
	}
	if f.thought != nil && !f.thought.once {
		list = append(append(list, f.thought.open...), f.thought.close...)
	}
	if f.calls != nil {
		list = append(append(list, f.calls.open...), f.calls.close...)
	}
	return list
}

// Again returns how much text is read once more with the next piece.
func (p *Parser) Again() int { return len(p.rest) }
