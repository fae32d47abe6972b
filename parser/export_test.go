package parser

// Markup returns how many bytes were neither released nor dropped, and Held how
// many are held back.
func (p *Parser) Markup() int { return p.markup }
func (p *Parser) Held() int   { return int(p.in - p.pos) }
