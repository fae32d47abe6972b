package parser

import "strings"

// enterArgs begins the body of a call.
func (p *Parser) enterArgs(name string, on bool) {
	h := p.harmony
	h.name, h.inJSON, h.read, h.doubt = name, false, false, -1
	p.state, p.complete = inCallArgs, false
	switch {
	case !on:
		p.muted, p.reason = true, DroppedToolsOff
	case p.shut():
		p.muted, p.reason = true, DroppedParallel
	case p.rejects(name):
		p.muted, p.reason = true, DroppedRejected
	default:
		p.muted, p.reason = false, DroppedTruncated
	}
}

// inString says whether a marker would stand inside a string.
func (h *harmonyReader) inString() bool {
	return h.inJSON && (h.json.want == wantString || h.json.want == wantEscape)
}

// readArgs reads the text before a marker, or a marker inside a string. It may be
// what ended the call, if a quote is missing, and is held until the string ends.
func (p *Parser) readArgs(s string, at, marker int) int {
	h := p.harmony
	switch {
	case at == 0:
		if h.doubt < 0 {
			h.doubt = len(p.held)
		}
		at = marker
	case h.doubt >= 0:
		if i := strings.IndexByte(s[:at], '"'); i >= 0 {
			at = i + 1
		}
	case !h.read:
		if i := spaces(s[:at]); i > 0 {
			p.hold(s[:i])
			return i
		}
		h.read, h.inJSON = true, s[0] == '{' || s[0] == '['
		h.json.reset()
		if !p.muted {
			p.call(h.form.Tag(p.opts.NewID()), "", h.name)
		}
	}
	text := s[:at]
	ended := false
	if h.inJSON {
		_, st := h.json.scan(text)
		h.inJSON, ended = st == more, st == done
	}
	p.hold(text)
	if h.doubt >= 0 && h.inString() {
		return at
	}
	h.doubt = -1
	if p.muted {
		return at
	}
	text = p.unhold()
	p.args(text, len(text))
	if ended {
		p.done()
	}
	return at
}

// leaveArgs ends a call. What a marker ends is what the model meant to send, be
// it JSON or not; nothing at all is an empty object.
func (p *Parser) leaveArgs(ended bool) {
	switch {
	case p.muted:
		p.discard()
		p.muted = false
		return
	case ended && !p.harmony.read:
		n := len(p.unhold())
		p.call(p.harmony.form.Tag(p.opts.NewID()), "", p.harmony.name)
		p.args("{}", n)
	case !p.harmony.read:
		p.discard()
		return
	}
	if ended && !p.complete {
		p.done()
	}
	p.stop(!p.complete)
}

// inDoubt says whether a marker is held that a string would end behind, and that
// did not.
func (p *Parser) inDoubt() bool {
	return p.harmony != nil && p.state == inCallArgs && p.harmony.doubt >= 0
}

// believe takes the marker that is held for what it looks like, and reads on
// behind it.
func (p *Parser) believe() {
	h := p.harmony
	text := p.unhold()
	p.hold(text[:h.doubt])
	p.again = text[h.doubt:]
	h.doubt, h.inJSON = -1, false
}
