package parser

import (
	"bytes"
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
)

// draft is what is known of calls inside an open thought. If the thought is
// closed they were drafts, and are part of it; if the generation ends before
// that, the model forgot to close the thought and they are calls. Until then the
// text from the first of them on is held, and read without making calls.
type draft struct {
	on      bool
	settled bool // decided: they are calls
	calls   int  // complete ones
	last    int  // where in held the last wrapper begins
	item    int  // where in held the last call begins
	open    bool // inside a call that is not complete
}

// readDraft reads a thought behind a call in it.
func (p *Parser) readDraft(s string, final bool) (n int, wait bool) {
	at, n, act := p.sets.draft.next(s, final)
	switch {
	case at > 0:
		p.hold(s[:at])
		return at, false
	case act == actPartial:
		return 0, true
	}
	return p.inDrafts(s[:n], act), false
}

// inDrafts reads a marker inside a thought that is held, and returns how much of
// it was read.
func (p *Parser) inDrafts(marker string, act action) int {
	switch act {
	case actStrip:
		p.skip(len(marker))
	case actThought:
		p.draft = draft{}
		p.closeThought(p.unhold(), len(marker))
	case actCall, actInner:
		p.draft.last, p.draft.open = len(p.held), false
		if act == actInner {
			n := p.enterInner(len(marker))
			p.muted = true
			return n
		}
		p.enterBody()
		p.muted, p.start = true, len(marker)
		p.hold(marker)
	default:
		p.hold(marker)
		p.state = inDraft
	}
	return len(marker)
}

// closeThought releases the held rest of a thought that a marker of n bytes
// closes.
func (p *Parser) closeThought(text string, n int) {
	trimmed := strings.TrimSuffix(text, "\n")
	p.say(chat.Thought, trimmed)
	p.skip(len(text) - len(trimmed) + n)
	p.leaveThought()
}

// settle decides, at the end of the generation, what a held thought was.
func (p *Parser) settle() {
	if p.draft.open && p.reopen() {
		p.run("", true)
		return
	}
	text, calls := p.unhold(), p.draft.calls
	p.draft, p.state = draft{}, inThought
	if calls == 0 {
		p.say(chat.Thought, text)
		return
	}
	p.draft.settled = true
	p.run(text, true)
}

// reopen looks for the end of a thought in a held call that turned out to be cut
// or broken. If a quote is missing in it, the end was taken for a part of a
// string, and what is behind it must be read again.
func (p *Parser) reopen() bool {
	held := p.held[p.draft.last:]
	at, marker := len(held), ""
	for _, closer := range p.family.thought.close {
		if i := bytes.Index(held[:at], []byte(closer)); i >= 0 {
			at, marker = i, closer
		}
	}
	if marker == "" {
		return false
	}
	text, at := p.unhold(), at+p.draft.last
	p.draft, p.again = draft{}, text[at+len(marker):]
	p.closeThought(text[:at], len(marker))
	return true
}

// brokeOff says whether a held call that seems complete is two: one that the end
// of the thought cut off in a value without quotes, and another one behind it.
func (p *Parser) brokeOff() bool {
	if !p.family.calls.raw {
		return false
	}
	held := p.held[p.draft.item:]
	for _, closer := range p.family.thought.close {
		_, after, ok := bytes.Cut(held, []byte(closer))
		if !ok {
			continue
		}
		for _, opener := range slices.Concat(p.family.calls.open, p.family.calls.inner) {
			if bytes.Contains(after, []byte(opener)) {
				return true
			}
		}
	}
	return false
}
