package parser

import (
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/harmony"
)

// maxHeader is how long a header may be. What is longer is none: a model that
// forgot to end it must not keep the client waiting for its text.
const maxHeader = 1024

// harmonyReader is what the machine keeps while it reads Harmony, the format of
// the gpt-oss models. A generation is a list of messages,
// each a header and a body:
//
//	<|start|>assistant to=RECIPIENT<|channel|>CHANNEL to=RECIPIENT <|constrain|>json<|message|>BODY<|end|>
//
// of which the prompt has begun the first. All parts of a header may be missing,
// and the recipient stands in either place. What a message is follows from its
// header: a call if a function is the recipient, in whatever channel; else a
// thought in the analysis channel, and text in the others. A message ends with
// <|end|>, <|call|> or <|return|>, or where the next one begins.
//
// The markers are found in the text. Inside a string of a call's arguments they
// are data, unless the string never ends.
type harmonyReader struct {
	thinks   bool // thoughts are blocks of their own
	begun    bool // a message was read
	withRole bool // the header begins with a role

	name   string // of the call that is open
	form   harmony.Form
	json   value
	inJSON bool // the arguments are JSON, and not complete
	read   bool // anything but blanks was read of the arguments
	doubt  int  // where in held a marker stands inside a string; -1: nowhere
}

// startHarmony makes the machine read Harmony.
func (p *Parser) startHarmony() {
	h := &harmonyReader{thinks: p.opts.ThinkOn && p.family.thought == gptOSS, doubt: -1}
	p.harmony = h
	switch p.opts.Start {
	case StartReasoning:
		p.enterMessage(header{channel: "analysis"})
	case StartResponse:
		p.enterMessage(header{})
	default:
		p.state = inLead
	}
}

// stepHarmony reads a part of s, as step does.
func (p *Parser) stepHarmony(s string, final bool) (n int, wait bool) {
	switch p.state {
	case inLead:
		return p.readLead(s, final)
	case inBody:
		return p.readBody(s, final)
	case inJSON:
		return p.readJSON(s)
	}
	at, n, act := p.sets.text.next(s, final)
	switch {
	case act == actPartial && at == 0:
		return 0, true
	case p.state == inHeader:
		return p.readHeader(s, at, n, act), false
	case p.state == inCallArgs && (at > 0 || p.harmony.inString()):
		return p.readArgs(s, at, n), false
	case at > 0:
		return p.readMessage(s[:at]), false
	}
	switch act {
	case actEnd:
		p.skip(n)
		p.leaveMessage(true)
	case actStart:
		p.leaveMessage(true)
		p.skip(n)
		p.state, p.harmony.withRole = inHeader, true
	case actChannel: // the model forgot to end the message
		p.leaveMessage(true)
		p.state, p.harmony.withRole = inHeader, false
		return 0, false
	default:
		p.skip(n)
	}
	return n, false
}

// The beginnings of a header that lacks its <|start|>. The prompt has it for the
// first message.
var leads = []string{"to=", "assistant to=", "assistant<|"}

// readLead reads what stands before a header: nothing, or text without one.
func (p *Parser) readLead(s string, final bool) (n int, wait bool) {
	if i := spaces(s); i > 0 {
		p.hold(s[:i])
		return i, false
	}
	n, act := p.sets.text.match(s, final)
	switch act {
	case actPartial:
		return 0, true
	case actNone:
		for _, lead := range leads {
			switch {
			case strings.HasPrefix(s, lead): // the blanks belong to the header
				p.state, p.harmony.withRole = inHeader, lead != "to="
				return 0, false
			case !final && strings.HasPrefix(lead, s):
				return 0, true
			}
		}
		text := p.unhold()
		p.enterMessage(header{})
		p.readMessage(text)
		return 0, false
	}
	p.harmony.withRole = act == actStart
	if act == actChannel || act == actFormat {
		p.state = inHeader
		return 0, false
	}
	p.skip(len(p.unhold()))
	switch act {
	case actMessage:
		p.enterMessage(header{})
	case actStart:
		p.state = inHeader
	}
	p.skip(n)
	return n, false
}

func (p *Parser) readHeader(s string, at, n int, act action) int {
	switch {
	case at > 0:
		n = min(at, maxHeader-len(p.held))
		p.hold(s[:n])
	case act == actChannel, act == actFormat:
		p.hold(s[:n])
	case act == actMessage:
		text := p.unhold()
		p.skip(len(text) + n)
		h := readHarmonyHeader(text, p.harmony.withRole)
		h.text = text
		p.enterMessage(h)
		return n
	default:
		p.breakHeader(DroppedMalformed)
		return 0
	}
	if len(p.held) >= maxHeader {
		p.breakHeader(DroppedMalformed)
	}
	return n
}

// breakHeader goes on with a message whose body did not begin. The model forgot
// <|message|>, and what is no part of a header is the body. A call that is broken
// like this is none.
func (p *Parser) breakHeader(reason string) {
	text := p.unhold()
	h := readHarmonyHeader(text, p.harmony.withRole)
	if h.recipient != "" || h.foreign {
		p.state, p.reason = inDropped, reason
		p.hold(text)
		return
	}
	p.skip(len(text) - len(h.rest))
	if p.enterMessage(h); p.state == inGap {
		p.state = inText
	}
	for rest := h.rest; rest != ""; {
		at, n, _ := p.sets.text.next(rest, true)
		p.readMessage(rest[:at])
		p.skip(n)
		rest = rest[at+n:]
	}
}

// enterMessage decides what a message is.
func (p *Parser) enterMessage(h header) {
	on := p.opts.ToolsOn && p.family.calls == harmonyCalls
	name, isCall := harmony.IsFunction(h.recipient)
	isCall = isCall || p.known(h.recipient)
	p.harmony.begun = true
	switch {
	case h.foreign:
		p.state, p.reason = inDropped, DroppedMalformed
	case isCall && (on || len(p.opts.Tools) > 0):
		p.enterArgs(name, on)
		p.harmony.form, _ = harmony.FormOf(strings.TrimPrefix(h.text, "assistant"), name)
	case h.recipient != "" && !isCall, h.channel == "analysis":
		if p.harmony.thinks {
			p.state, p.thought = inThought, true
			return
		}
		p.state = inText
	case p.opts.Mode != ModeNative && p.completed == 0:
		p.state = inGap
	default:
		p.state = inText
	}
}

// readMessage reads a part of the body of a message that is no call, and returns
// how much.
func (p *Parser) readMessage(text string) int {
	switch {
	case text == "":
	case p.state == inDropped:
		p.hold(text)
	case p.state == inThought:
		p.say(chat.Thought, text)
	case p.state == inGap:
		if n := spaces(text); n > 0 {
			p.hold(text[:n])
			return n
		}
		if p.beginsGuided(text[0]) {
			p.enterGuided()
			return 0
		}
		p.state = inText
		p.say(chat.Text, p.unhold())
		return 0
	default:
		p.say(chat.Text, text)
	}
	return len(text)
}

// leaveMessage closes what is open. A message that was not ended by a marker is
// complete only if that can be told from its body.
func (p *Parser) leaveMessage(ended bool) {
	switch p.state {
	case inCallArgs:
		p.leaveArgs(ended)
	case inDropped:
		p.discard()
	case inLead:
		if p.harmony.begun {
			p.skip(len(p.unhold()))
			break
		}
		p.say(chat.Text, p.unhold())
		p.stop(false)
	case inGap:
		p.say(chat.Text, p.unhold())
		p.stop(false)
	default:
		p.stop(false)
	}
	p.state, p.thought = inLead, false
}

// endHarmony decides what is still open when nothing more will come.
func (p *Parser) endHarmony() {
	if p.state == inHeader {
		p.breakHeader(DroppedTruncated)
	}
	p.leaveMessage(false)
}

// header is what is known of a message before its body.
type header struct {
	channel, recipient string
	foreign            bool   // not the assistant's
	rest               string // what stands behind all else
	text               string // all of it
}

// readHarmonyHeader reads what stands between <|start|> and <|message|>.
func readHarmonyHeader(text string, withRole bool) header {
	var h header
	const (
		word = iota
		role
		channel
		format
	)
	next, formatted := word, false
	if withRole {
		next = role
	}
	s := text
	for {
		s = s[spaces(s):]
		h.rest = s
		switch {
		case s == "":
			return h
		case strings.HasPrefix(s, harmony.Channel):
			s, next = s[len(harmony.Channel):], channel
			continue
		case strings.HasPrefix(s, harmony.Constrain):
			s, next = s[len(harmony.Constrain):], format
			continue
		}
		n := strings.IndexAny(s, " \t\r\n")
		if n < 0 {
			n = len(s)
		}
		if i := strings.Index(s[:n], "<|"); i > 0 {
			n = i
		}
		w, is := s[:n], next
		next = word
		to, addressed := strings.CutPrefix(w, "to=")
		switch {
		case addressed || strings.HasPrefix(w, "functions.") && is == word:
			if h.recipient == "" && !harmony.IsNobody(to) {
				h.recipient = to
			}
		case is == role:
			h.foreign = !strings.HasPrefix(w, "assistant")
		case is == channel:
			if name, to, ok := strings.Cut(w, "to="); ok {
				w, h.recipient = name, to
			}
			if h.channel == "" {
				h.channel = w
			}
		case is == format || !formatted && (w == "json" || w == "code"):
			formatted = true
		default:
			return h
		}
		s = s[n:]
	}
}

// startOfHarmony returns how a generation begins behind the end of a prompt.
func startOfHarmony(tail string) Start {
	body := strings.LastIndex(tail, harmony.Message)
	from := 0
	for _, marker := range []string{harmony.Start, harmony.End, harmony.Call, harmony.Return} {
		from = max(from, strings.LastIndex(tail, marker))
	}
	switch {
	case body < from:
		return StartNone
	case strings.Contains(tail[from:body], harmony.Channel+"analysis"):
		return StartReasoning
	}
	return StartResponse
}
