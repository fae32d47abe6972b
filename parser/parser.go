// Package parser turns the text that a model generates into the blocks of an
// answer: thinking, text and tool calls, while it arrives.
//
// The one idea: a [Family] is a pair of grammars, one for reasoning and one for
// tool calls, and one machine reads both in a single pass. The machine is a plain
// data structure that is pushed pieces of text in any split and appends events;
// it holds back only what may still become a marker, and it never forgets a byte:
// everything that was generated is part of a block, or markup, or reported as
// dropped. A complete answer is parsed by the same machine in one push, so that
// streaming and not streaming cannot differ.
package parser

import "github.com/dynago/dynago/chat"

// Start says in which state a generation begins: what the end of the rendered
// prompt has already opened. See [Family.StartOf].
type Start uint8

const (
	// StartNone begins with nothing open.
	StartNone Start = iota
	// StartReasoning begins inside a thought that the prompt opened.
	StartReasoning
	// StartResponse begins after a thought that the prompt opened and closed.
	StartResponse
)

// Options say how one generation is read. The zero value interprets nothing:
// what is not a stray reasoning marker is text.
type Options struct {
	Start Start

	// Tools are the tools of the request, whatever the tool choice.
	Tools []chat.Tool
	// Mode is what the engine was told to generate, and Named the tool whose
	// arguments that is.
	Mode  Mode
	Named string
	// Allowed are the only tools that may be called; none means all. Other calls
	// are dropped.
	Allowed []string

	// ToolsOn makes calls out of tool markup. If it is off although there are
	// Tools (tool choice none), tool markup is dropped; if it is off and there
	// are none, it is text, but for markers that are tokens ([Family.Bind]).
	ToolsOn bool
	// ThinkOn makes thinking blocks out of reasoning markup. If it is off, the
	// markers are removed and what they enclose is text.
	ThinkOn bool
	// Parallel, if it points to false, ends the answer after its first complete
	// call: whatever follows is dropped. The caller watches [Parser.Calls] and
	// stops the engine.
	Parallel *bool
	// KeepEntities leaves &lt; and its like in arguments that stand in tags. If it
	// is off, families whose models write them have them replaced in values that
	// have no raw bracket.
	KeepEntities bool
	// History are the calls of the conversation, in their order. Families whose
	// models count their calls go on from there.
	History []*chat.ToolUse
	// NewID makes the id of a call; nil means "call_" and 24 random characters
	// of [0-9A-Za-z].
	NewID func() string
}

// Reasons of [chat.Dropped] events. They are labels of a metric, too.
const (
	DroppedMalformed = "malformed"        // not what the grammar allows
	DroppedTruncated = "truncated"        // the generation ended inside it
	DroppedToolsOff  = "tool_choice_none" // a call that nobody may make
	DroppedRejected  = "not_allowed"      // a call of a tool that the request does not allow
	DroppedParallel  = "parallel"         // behind the only call that was allowed
	DroppedMarkup    = "markup"           // no text, only the ids of markup at the very end
)

// Parser reads one generated sequence: one choice of one request. It has no
// goroutine and no clock, and is for one goroutine at a time.
type Parser struct {
	family Family
	opts   Options

	key  setKey
	sets *sets // for the text that is being read

	state    state
	calls    body   // that is being read, or would be; nil if the family has none
	native   body   // the family's
	guide    body   // of guided calls; nil if there are none
	json     value  // of guided text
	rest     string // text that may still become a marker
	again    string // text that must be read once more
	held     []byte // read, but not yet known to be text, markup or dropped
	reason   string // why held would be dropped
	muted    bool   // the body is read, but makes no calls
	rejected bool   // but only this one call
	bare     bool   // the body has no wrapper
	doubtful bool   // and need not be a call
	start    int    // bytes of the marker that the body begins with or behind
	moved    bool   // the body has read something
	spoken   bool   // the response has text or a call
	thought  bool   // a thought is open
	fresh    bool   // nothing was read behind the opener but layout
	layout   int    // newlines that may still be layout
	after    bool   // the gap follows a call
	draft    draft
	names    *chat.NativeIDs // of the calls so far; nil before the first
	harmony  *harmonyReader  // nil if the family is another

	out
}

// New returns a parser for one sequence.
func New(f Family, o Options) *Parser {
	if o.NewID == nil {
		o.NewID = newID
	}
	p := &Parser{family: f, opts: o}
	p.guide = o.guide()
	p.single = o.Parallel != nil && !*o.Parallel
	p.compile()
	if f.harmony() {
		p.startHarmony()
		return p
	}
	start := o.Start
	if start == StartNone && f.thought != nil && f.thought.forced && !f.shown {
		start = StartReasoning
	}
	switch {
	case f.thought == nil && f.calls == nil && o.Mode == ModeNative:
		p.state = inText
	case f.thought != nil && o.ThinkOn && start == StartReasoning:
		p.enterThought()
	case f.thought != nil && o.ThinkOn && start == StartResponse:
		p.leaveThought()
	default:
		p.state = inGap
	}
	return p
}

// compile gets the markers that mean something in each state.
func (p *Parser) compile() {
	p.key = setKey{
		family: p.family, calls: p.opts.ToolsOn || len(p.opts.Tools) > 0, callsOn: p.opts.ToolsOn, thinkOn: p.opts.ThinkOn,
	}
	p.sets = p.key.sets()
	if c := p.family.calls; c != nil && p.key.calls && !p.family.harmony() {
		p.native = c.body(&p.opts)
		p.calls = p.native
	}
}

// literally says whether the text that follows holds no markers that are tokens.
// What waits for it may be one.
func (p *Parser) literally(literal bool) {
	literal = literal && (p.rest == "" || p.key.literal)
	if p.key.literal != literal {
		p.key.literal = literal
		p.sets = p.key.sets()
	}
}

// Push reads a piece and appends the events that it decides to dst. The slices
// of the piece belong to the parser from then on, and are handed on in events.
//
// Where the family knows the ids of its markers ([Family.Bind]) and the piece has
// ids, it is these that tell markers from text.
//
// Ids and log probabilities travel with the event that releases the last byte of
// their piece. Those of a marker go with what the marker closes, or else with
// the next event.
func (p *Parser) Push(dst []chat.Event, piece chat.Piece) []chat.Event {
	if p.family.tokens == nil || len(piece.IDs) == 0 {
		p.literally(false)
		return p.push(dst, piece)
	}
	part, literal, ids := p.family.tokens.part(piece.Text, piece.IDs)
	p.literally(literal)
	if len(part) == len(piece.Text) {
		return p.push(dst, piece)
	}
	p.dst = dst
	p.arrive(piece)
	for rest := piece.Text; ; {
		p.read(part)
		if rest = rest[len(part):]; rest == "" {
			return p.flush()
		}
		part, literal, ids = p.family.tokens.part(rest, ids)
		p.literally(literal)
	}
}

// push reads a piece that either is a marker or has none that is a token.
func (p *Parser) push(dst []chat.Event, piece chat.Piece) []chat.Event {
	if p.rest != "" {
		p.dst = dst
		p.letGo(piece.Text)
		dst = p.flush()
	}
	if p.plain(piece.Text) {
		return p.pass(dst, piece)
	}
	p.dst = dst
	p.arrive(piece)
	p.read(piece.Text)
	return p.flush()
}

// read reads a part of the text.
func (p *Parser) read(s string) {
	if p.rest != "" {
		s = p.rest + s
	}
	p.rest = p.run(s, false)
}

// openMarks returns the markers that may end the text or the thought that is open, or
// nil if something else is.
func (p *Parser) openMarks() *markers {
	switch {
	case p.state == inText && p.kind == chat.Text:
		return &p.sets.text
	case p.state == inThought && p.kind == chat.Thought:
		return &p.sets.thought
	}
	return nil
}

// letGo releases what was held back of text or of a thought, if it is no marker
// now that s follows.
func (p *Parser) letGo(s string) {
	if m := p.openMarks(); m != nil && !p.shut() && !m.goesOn(p.rest, s) {
		p.say(p.kind, p.rest)
		p.rest = ""
	}
}

// plain says whether text is nothing but more of the block that is open, which
// is what nearly every piece is.
func (p *Parser) plain(text string) bool {
	if p.rest != "" || len(p.waiting) > 0 || text == "" || p.shut() {
		return false
	}
	m := p.openMarks()
	if m == nil {
		return false
	}
	_, _, act := m.next(text, false)
	return act == actNone
}

// Finish ends the sequence: it releases what was held back, closes what is open,
// and returns why the answer ended. A reason of stop becomes tool_use if a call
// was completed, and so does an empty reason (the engine gave none) if besides
// nothing is open; an empty reason that comes back is a fault of the engine. Any
// other reason stays. The parser cannot be used after it.
func (p *Parser) Finish(dst []chat.Event, reason chat.FinishReason) ([]chat.Event, chat.FinishReason) {
	p.dst = dst
	p.literally(false)
	p.run(p.rest, true)
	if p.undecided() {
		p.refuse()
		p.run("", true)
	}
	for p.draft.on {
		p.settle()
	}
	for p.inDoubt() {
		p.believe()
		p.run("", true)
	}
	open := p.thought || p.openCall()
	p.end()
	switch {
	case p.completed == 0:
	case reason == chat.FinishStop, reason == "" && !open:
		reason = chat.FinishToolUse
	}
	return p.flush(), reason
}

// Calls returns how many calls are complete, and whether one has begun that is
// not.
func (p *Parser) Calls() (completed int, open bool) { return p.completed, p.openCall() }

// openCall says whether the parser is inside a call that is not complete.
func (p *Parser) openCall() bool {
	return (p.state == inBody || p.state == inCallArgs || p.kind == chat.ToolCall) && !p.complete && !p.muted
}

// ReasoningTokens returns how many ids went to thinking so far, the closing
// marker's among them.
func (p *Parser) ReasoningTokens() int { return p.thoughtIDs }
