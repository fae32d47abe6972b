package parser

import (
	"slices"

	"github.com/dynago/dynago/chat"
)

func (p *Parser) enterBody() {
	p.calls.reset()
	p.state, p.complete, p.bare, p.doubtful, p.rejected, p.moved, p.start = inBody, false, false, false, false, false, 0
	p.muted, p.reason = !p.opts.ToolsOn, DroppedMalformed
	if p.muted {
		p.reason = DroppedToolsOff
	}
}

// enterInner begins a call without its wrapper. The marker of n bytes is the
// body's to read.
func (p *Parser) enterInner(n int) int {
	p.enterBody()
	if b, ok := p.calls.(innerBody); ok {
		b.unwrapped(n)
	}
	p.bare, p.start = true, n
	return 0
}

func (p *Parser) readBody(s string, final bool) (n int, wait bool) {
	n, t, args := p.calls.scan(s, final)
	if n == 0 && t >= tokItemEnd && p.bare && !p.moved { // what began a call must not begin it again
		n = p.start
	}
	p.moved = p.moved || n > 0
	if t == tokArgs && !p.muted {
		p.skip(len(p.held))
		p.held = p.held[:0]
		p.args(args, n)
		return n, false
	}
	p.hold(s[:n])
	switch {
	case t == tokSyntax && final:
		p.hold(s[n:])
		return len(s), true
	case t == tokSyntax:
		return n, true
	case p.muted:
		p.readMuted(t)
	default:
		p.readCall(t, args)
	}
	return n, false
}

// readMuted reads a token of a body that makes no calls.
func (p *Parser) readMuted(t token) {
	switch t {
	case tokItem:
		p.acquit()
		p.draft.open, p.draft.item = true, len(p.held)
	case tokDone:
		if p.draft.on && p.brokeOff() && p.reopen() {
			return
		}
		p.draft.open = false
		p.draft.calls++
	case tokItemEnd:
		p.acquit()
		if p.bare {
			p.leaveMuted()
		}
	case tokEnd:
		p.leaveMuted()
	case tokText:
		p.asText()
	case tokBad:
		p.breakBody()
		if p.draft.on && p.draft.open {
			p.draft.open = false
			p.reopen()
		}
	}
}

// acquit ends a call of a tool that may not be called. The next one may be of
// another tool.
func (p *Parser) acquit() {
	if p.rejected {
		p.discard()
		p.rejected, p.muted, p.reason = false, false, DroppedMalformed
	}
}

// rejects says whether a tool may not be called.
func (p *Parser) rejects(name string) bool {
	return len(p.opts.Allowed) > 0 && !slices.Contains(p.opts.Allowed, name)
}

// leaveMuted goes on behind a body that made no calls.
func (p *Parser) leaveMuted() {
	if p.draft.on {
		p.state = inDraft
		return
	}
	p.discard()
	p.leaveBody()
}

// readCall reads a token of a body that makes calls.
func (p *Parser) readCall(t token, args string) {
	switch t {
	case tokItem:
		if p.kind == chat.ToolCall {
			p.stop(false)
		}
		if !p.bare && !p.doubtful {
			p.skip(len(p.unhold()))
		}
		p.complete = false
	case tokOpen:
		switch {
		case p.shut():
			p.muted, p.reason = true, DroppedParallel
		case p.doubtful && !(p.calls.explicit() && (p.calls == p.guide || p.known(p.calls.name()))):
			p.refuse()
		case p.rejects(p.calls.name()):
			p.muted, p.rejected, p.doubtful, p.reason = true, true, false, DroppedRejected
			p.spoken = true
		default:
			p.skip(len(p.unhold()) - len(args))
			p.spoken, p.doubtful = true, false
			id, native := p.newID()
			p.call(id, native, p.calls.name())
			p.args(args, len(args))
		}
	case tokDone:
		p.done()
	case tokItemEnd:
		p.skip(len(p.unhold()))
		if p.bare {
			p.leaveBody()
		}
	case tokDropped:
		p.discard()
	case tokEnd:
		if p.undecided() {
			p.refuse()
			return
		}
		p.skip(len(p.unhold()))
		p.leaveBody()
	case tokText:
		p.asText()
	case tokBad:
		switch {
		case p.undecided():
			p.refuse()
			return
		case p.kind == chat.ToolCall && !p.complete:
			p.stop(true)
		}
		p.breakBody()
	}
}

// breakBody goes on behind what the body can read.
func (p *Parser) breakBody() {
	p.state = inSkip
	if p.harmony != nil { // to the end of the message
		p.state = inDropped
	}
}

// undecided says whether the parser is inside JSON that may be a call without a
// wrapper, but need not.
func (p *Parser) undecided() bool {
	return p.state == inBody && p.doubtful && p.kind != chat.ToolCall
}

// refuse reads what looked like a call without a wrapper once more, as text.
func (p *Parser) refuse() {
	p.again = p.unhold()
	p.state, p.bare, p.doubtful, p.spoken, p.calls = inText, false, false, true, p.native
}

// asText reads what looked like calls once more, as text. A marker that stands
// for the beginning of a call is not looked at again.
func (p *Parser) asText() {
	switch {
	case p.draft.on:
		from := p.draft.last + p.start
		p.again = string(p.held[from:])
		p.held = p.held[:from]
		p.state = inDraft
		return
	case p.doubtful:
		p.refuse()
		return
	}
	text, n := p.unhold(), 0
	if p.bare {
		n = min(p.start, len(text))
	}
	p.again = text[n:]
	p.muted, p.bare = false, false
	if p.state = inText; p.thought {
		p.state = inThought
		p.say(chat.Thought, text[:n])
		return
	}
	if n > 0 {
		p.respond(text[:n])
	}
}

// newID returns the ids of a call: the client's, and the model's own.
func (p *Parser) newID() (id, native string) {
	id = p.opts.NewID()
	style := p.family.IDs()
	if style == chat.NoIDs {
		return id, ""
	}
	if p.names == nil {
		p.names = chat.NewNativeIDs(style)
		for _, use := range p.opts.History {
			p.names.Call(use)
		}
	}
	native = p.names.New(p.calls.native(), p.calls.name(), id)
	return style.Wire(id, native, p.calls.name()), native
}

// known says whether the request has a tool of this name.
func (p *Parser) known(name string) bool {
	return slices.ContainsFunc(p.opts.Tools, func(t chat.Tool) bool { return t.Name == name })
}

func (p *Parser) leaveBody() {
	if p.kind == chat.ToolCall {
		p.stop(false)
	}
	p.calls = p.native
	p.state, p.bare, p.doubtful, p.muted, p.rejected, p.after, p.layout = inGap, false, false, false, false, true, 0
	if p.harmony != nil {
		p.state = inText
	}
}
