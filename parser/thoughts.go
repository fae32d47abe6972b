package parser

import (
	"strings"

	"github.com/dynago/dynago/chat"
)

func (p *Parser) enterThought() {
	p.state, p.thought, p.fresh, p.layout = inThought, true, true, 1
}

func (p *Parser) leaveThought() {
	if p.kind == chat.Thought {
		p.stop(false)
	}
	p.thought, p.state, p.layout, p.after = false, inGap, 2, false
	if p.family.thought.once {
		p.key.pondered = true
		p.sets = p.key.sets()
	}
}

func (p *Parser) readThought(s string, final bool) (n int, wait bool) {
	if p.fresh {
		if n, wait, ok := p.readFresh(s, final); ok {
			return n, wait
		}
	}
	at, n, act := p.sets.thought.next(s, final)
	switch {
	case at > 0:
		p.fresh = false
		p.say(chat.Thought, s[:at])
		return at, false
	case act == actPartial:
		return 0, true
	case (act == actCall || act == actInner) && !p.draft.settled:
		p.draft, p.state = draft{on: true}, inDraft
		return 0, false
	case act == actExit:
		p.leaveThought()
		return 0, false
	}
	if act == actInner {
		return p.enterInner(n), false
	}
	p.skip(n)
	switch act {
	case actThought:
		p.leaveThought()
	case actCall:
		p.enterBody()
	}
	return n, false
}

// readFresh reads what may stand between the opener of a thought and its text: a
// newline, an opener that the prompt has given, too, and the label.
func (p *Parser) readFresh(s string, final bool) (n int, wait, ok bool) {
	g := p.family.thought
	if s[0] == '\n' && p.layout > 0 {
		p.layout--
		p.skip(1)
		return 1, false, true
	}
	if i := spaces(s); i > 0 && p.opts.Mode != ModeNative { // of what, the next byte tells
		p.layout = 0
		p.hold(s[:i])
		return i, false, true
	}
	open, partial := g.opener(s)
	switch {
	case open != "":
		p.layout = 1
		p.skip(len(p.unhold()) + len(open))
		return len(open), false, true
	case partial && !final:
		return 0, true, true
	case p.beginsGuided(s[0]):
		p.skip(len(p.unhold()))
		p.leaveThought()
		return 0, false, true
	case len(p.held) > 0:
		p.fresh = false
		p.say(chat.Thought, p.unhold())
		return 0, false, true
	case g.label == "":
		return 0, false, false
	case strings.HasPrefix(s, g.label):
		p.fresh = false
		p.skip(len(g.label))
		return len(g.label), false, true
	}
	partial = !final && strings.HasPrefix(g.label, s)
	return 0, partial, partial
}
