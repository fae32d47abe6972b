package parser

import (
	"bytes"
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

// draft is what is known of calls inside an open thought. If the thought is
// closed they were drafts, and are part of it; if the generation ends before
// that, the model forgot to close the thought and they are calls. Until then the
// text from the first of them on is held, and read without making calls.
type draft struct {
	on      bool
	settled bool // decided: they are calls
	calls   int  // complete ones
	last    int  // where in held the last wrapper begins
	open    bool // inside a call that is not complete
}

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
	return p.family.calls.bare(s)
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
		p.draft.open = true
	case tokDone:
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
