package parser

import (
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
)

// state is what the machine is reading.
type state uint8

const (
	inText    state = iota // the response, outside of markup
	inGap                  // white space: text if text follows, layout if markup follows
	inThought              // thinking
	inDraft                // a thought with a call in it: undecided from the call on
	inBody                 // inside a tool-call wrapper
	inSkip                 // the same, behind what its body can read
	inJSON                 // a response that is JSON

	// Harmony alone:
	inLead     // before a header
	inHeader   // of a message
	inCallArgs // the body of a call
	inDropped  // the body of a message that is dropped
)

// run reads s and returns what must be looked at again when more has arrived;
// nothing, if no more will (final).
func (p *Parser) run(s string, final bool) string {
	for {
		n, wait := p.step(s, final)
		s = s[n:]
		if p.again != "" {
			p.literally(false) // of what is read again, nobody knows the ids any more
			s, p.again, wait = p.again+s, "", false
		}
		if wait {
			return s
		}
	}
}

// step reads a part of s. It says whether it needs more than s to go on.
func (p *Parser) step(s string, final bool) (n int, wait bool) {
	if s == "" && p.state != inBody {
		return 0, true
	}
	if p.harmony != nil {
		return p.stepHarmony(s, final)
	}
	switch p.state {
	case inText:
		return p.readText(s, final)
	case inGap:
		return p.readGap(s, final)
	case inThought:
		return p.readThought(s, final)
	case inDraft:
		return p.readDraft(s, final)
	case inBody:
		return p.readBody(s, final)
	case inJSON:
		return p.readJSON(s)
	default:
		return p.readSkip(s, final)
	}
}

func (p *Parser) readText(s string, final bool) (n int, wait bool) {
	at, n, act := p.sets.text.next(s, final)
	switch {
	case at > 0:
		p.respond(s[:at])
		return at, false
	case act == actPartial:
		return 0, true
	}
	if act != actInner {
		p.skip(n)
	}
	switch act {
	case actThink:
		p.enterThought()
	case actCall:
		p.enterBody()
	case actInner:
		return p.enterInner(n), false
	}
	return n, false
}

// respond releases text of the response.
func (p *Parser) respond(text string) {
	p.spoken = true
	p.say(chat.Text, text)
}

func (p *Parser) readGap(s string, final bool) (n int, wait bool) {
	if s[0] == '\n' && p.layout > 0 {
		p.layout--
		p.skip(1)
		return 1, false
	}
	p.layout = 0
	if i := spaces(s); i > 0 {
		p.hold(s[:i])
		return i, false
	}
	set := &p.sets.text
	if p.thought {
		set = &p.sets.thought
	}
	n, act := set.match(s, final)
	bare, more := p.mayBeBare(s)
	switch {
	case act == actPartial, more && !final:
		return 0, true
	case act == actStrip:
		if p.after || !p.spoken { // the end of a wrapper that did not begin, or a header
			p.skip(len(p.unhold()))
		}
		p.skip(n)
		return n, false
	case act != actNone:
		p.skip(len(p.unhold()))
	case p.beginsGuided(s[0]) && !p.spoken && !p.thought:
		p.enterGuided()
		return 0, false
	case bare:
		p.enterBody()
		p.bare, p.doubtful = true, !p.family.calls.certain
		return 0, false
	}
	p.leaveGap()
	return 0, false
}

// mayBeBare says whether s begins with a call without a wrapper, or may do so
// when more of it is there. Such calls stand where the response begins.
func (p *Parser) mayBeBare(s string) (ok, more bool) {
	if p.native == nil || p.spoken || p.thought || p.family.calls.bare == nil {
		return false, false
	}
	if !p.opts.ToolsOn && !p.family.calls.certain {
		return false, false
	}
	if p.family.calls.named && !p.mayBeName(s) {
		return false, false
	}
	return p.family.calls.bare(s)
}

// mayBeName says whether s begins with the name of a tool, or is the beginning of one.
func (p *Parser) mayBeName(s string) bool {
	return slices.ContainsFunc(p.opts.Tools, func(t chat.Tool) bool {
		return strings.HasPrefix(s, t.Name) || strings.HasPrefix(t.Name, s)
	})
}

// leaveGap goes on with text or thinking; the white space that is still held is
// a part of it.
func (p *Parser) leaveGap() {
	text := p.unhold()
	if p.thought {
		p.state = inThought
		p.say(chat.Thought, text)
		return
	}
	p.state = inText
	if text != "" {
		p.respond(text)
	}
}

// readSkip looks for the end of a wrapper.
func (p *Parser) readSkip(s string, final bool) (n int, wait bool) {
	set := &p.sets.skip
	if p.draft.on {
		set = &p.sets.draft
	}
	at, n, act := set.next(s, final)
	switch {
	case at > 0:
		p.hold(s[:at])
		return at, false
	case act == actPartial:
		return 0, true
	case p.draft.on:
		return p.inDrafts(s[:n], act), false
	}
	p.discard()
	if act == actInner {
		p.leaveBody()
		return p.enterInner(n), false
	}
	p.skip(n)
	p.leaveBody()
	if act == actCall {
		p.enterBody()
	}
	return n, false
}

// discard drops what is held of a body. White space is layout.
func (p *Parser) discard() {
	text := p.unhold()
	if spaces(text) == len(text) {
		p.skip(len(text))
		return
	}
	p.drop(p.reason, text)
}

// end decides what is still held when nothing more will come.
func (p *Parser) end() {
	switch p.state {
	case inGap:
		if p.after {
			p.skip(len(p.unhold()))
		} else {
			p.leaveGap()
		}
	case inBody:
		if !p.muted {
			p.reason = DroppedTruncated
		}
		p.discard()
		p.stop(p.kind == chat.ToolCall && !p.complete)
	case inThought:
		p.skip(len(p.unhold()))
	case inSkip:
		p.discard()
	}
	if p.harmony != nil {
		p.endHarmony()
	}
	p.stop(p.kind == chat.ToolCall && !p.complete)
	if len(p.waiting) > 0 {
		p.event(chat.Dropped).Reason = DroppedMarkup
	}
}

// hold keeps text until it is known what it is.
func (p *Parser) hold(text string) { p.held = append(p.held, text...) }

// unhold returns the text that is held, and forgets it.
func (p *Parser) unhold() string {
	text := string(p.held)
	p.held = p.held[:0]
	return text
}

// spaces returns the length of the white space that s begins with.
func spaces(s string) int {
	for i := range len(s) {
		if !isSpace(s[i]) {
			return i
		}
	}
	return len(s)
}
