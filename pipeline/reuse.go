package pipeline

import (
	"fmt"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/prompt"
)

// Reuse tells how much of what an engine has seen of a conversation the next
// prompt of it begins with. Where a prompt begins with the whole prompt before it
// and the whole answer, nothing but the new turns has to be computed.
type Reuse struct {
	// Prompt and Answer are how many tokens the prompt before had, and its answer
	// without the token that ended it. Common is with how many of them the new
	// prompt begins: the offset of the first token that differs, unless all are the
	// same.
	Prompt, Answer, Common int
	// Difference explains where and why the first token differs. It is found out
	// only for requests that ask for it, and nil if none differs.
	Difference *Difference
}

// Ratio is the share of prompt and answer that is used again, from 0 to 1.
func (r *Reuse) Ratio() float64 { return share64(r.Common, r.Prompt+r.Answer) }

// PromptRatio and AnswerRatio are those of each part.
func (r *Reuse) PromptRatio() float64 { return share64(min(r.Common, r.Prompt), r.Prompt) }

// AnswerRatio is the share of the answer alone.
func (r *Reuse) AnswerRatio() float64 { return share64(max(0, r.Common-r.Prompt), r.Answer) }

func share64(n, of int) float64 {
	if of == 0 {
		return 1
	}
	return float64(n) / float64(of)
}

// Difference is where two prompts of a conversation part.
type Difference struct {
	// Part is the part of the new request in which the first differing token lies,
	// as in turns[2].blocks[0], tools[1] or tools, or "generation prompt" behind all
	// of them.
	Part string
	// Cause is what the client sent in another form than before, or says that it
	// is the template's or the tokenizer's doing.
	Cause string
	// Before and Now are the texts around the offset.
	Before, Now string
}

// session names who leads a conversation. Tenants and models share none.
type session struct{ model, lora, tenant, salt, id string }

// sessionOf returns the session of a request, or false for one that is not part of
// a conversation.
func sessionOf(r *Request, model string) (session, bool) {
	n := &r.KV.Namespace
	return session{model, n.LoRA, r.Tenant, n.Salt, r.Identity.Key}, r.Identity.Key != "" && r.Chat.Prompt == nil && !r.Background
}

// past is one request of a session with what was answered. It never changes once
// it is known.
type past struct {
	ids    []uint32 // of the prompt
	answer []uint32 // without the token that ended it
	turns  int      // as the client sent them
	parts  parts
	said   said
	after  *past // what this request went on from; nil once it is known itself
}

// predecessor is the one of several requests that this one goes on from: of those
// with fewer turns, the one that it shares most with. Side calls of a session, as
// for a title, have turns of their own. It returns nil if there is none.
func (p *past) predecessor(of []*past) (*past, int) {
	var (
		best   *past
		common = -1
	)
	for _, other := range of {
		if other.turns >= p.turns {
			continue
		}
		if n := p.common(other); n >= common {
			best, common = other, n
		}
	}
	return best, common
}

// common returns with how many tokens of another prompt and its answer this one
// begins.
func (p *past) common(before *past) int {
	n := commonIDs(p.ids, before.ids)
	if n < len(before.ids) {
		return n
	}
	return n + commonIDs(p.ids[n:], before.answer)
}

func commonIDs(a, b []uint32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// reuse notes how much of what was known of its session a request uses again, and
// returns what is to be told of its answer; nil if it is part of no session.
func (p *Pipeline) reuse(r *Request, m *prompt.Model, built *prompt.Prompt, turns int) *telling {
	s, ok := sessionOf(r, r.Notes.Model)
	if !ok || p.past == nil {
		return nil
	}
	now := &past{ids: built.IDs, turns: turns, parts: partsOf(r.Chat)}
	t := &telling{histories: p.past, session: s, past: now, final: r.Identity.Final, body: func(ids []uint32) []uint32 { return m.Body(built, ids) }}
	before, common := now.predecessor(p.past.of(s))
	if before == nil {
		return t
	}
	now.after = before
	u := &Reuse{Prompt: len(before.ids), Answer: len(before.answer), Common: common}
	r.Notes.Reuse = u
	if common < u.Prompt+u.Answer {
		p.Logger.Debug("a prompt leaves what its session had", "request", r.ID, "offset", common, "prompt", u.Prompt, "answer", u.Answer)
		if r.Debug {
			u.Difference = difference(r, m, before, now, common)
		}
	}
	return t
}

// telling makes a request known to its session when it has been answered.
type telling struct {
	histories *histories
	session   session
	past      *past
	saying    saying
	final     bool
	body      func(ids []uint32) []uint32 // an answer without the token that ended it
}

// event takes an event of the answer. A nil telling takes it as well.
func (t *telling) event(e *chat.Event) {
	if t != nil {
		t.saying.event(e)
	}
}

// end tells of the answer, or as much of it as there was.
func (t *telling) end(ids []uint32) {
	switch {
	case t == nil:
	case t.final:
		t.histories.end(t.session)
	default:
		t.past.answer, t.past.said = t.body(ids), t.saying.said()
		t.histories.add(t.session, t.past)
	}
}

// difference explains a difference at an offset. It renders the conversation some
// times, and is for those who ask.
func difference(r *Request, m *prompt.Model, before, now *past, offset int) *Difference {
	d := &Difference{Part: partAt(r, m, offset), Cause: changed(before, now, r.Chat)}
	switch {
	case d.Cause == "":
		d.Cause = "the client changed nothing: the template shows it in another way, or the tokenizer cuts it in another way"
	case strings.HasPrefix(d.Cause, "tools") && strings.HasPrefix(d.Part, "turns[0]"):
		d.Part = "tools" // of a template that shows them behind the system text
	}
	whole := append(before.ids[:len(before.ids):len(before.ids)], before.answer...)
	d.Before, d.Now = around(m, whole, offset), around(m, now.ids, offset)
	return d
}

// around returns the text of the tokens around an offset.
func around(m *prompt.Model, ids []uint32, offset int) string {
	const before, behind = 8, 16
	from, to := max(0, min(offset, len(ids))-before), min(len(ids), offset+behind)
	text, err := m.Text(ids[from:to])
	if err != nil {
		return ""
	}
	return text
}

// partAt returns the part of a conversation in which an offset into its prompt
// lies: the first one behind which more is settled.
func partAt(r *Request, m *prompt.Model, offset int) string {
	var places []chat.Breakpoint
	for i := range r.Chat.Tools {
		places = append(places, chat.Breakpoint{Turn: -2, Block: i})
	}
	for i := range r.Chat.System {
		places = append(places, chat.Breakpoint{Turn: -1, Block: i})
	}
	for k := range r.Chat.Turns {
		for j := range r.Chat.Turns[k].Blocks {
			places = append(places, chat.Breakpoint{Turn: k, Block: j})
		}
	}
	low, high := 0, len(places)
	for low < high {
		at := (low + high) / 2
		settled, err := m.Offsets(r.Chat, r.Ext, places[at])
		if err != nil {
			return "unknown"
		}
		if settled[0] > offset {
			high = at
		} else {
			low = at + 1
		}
	}
	if low == len(places) {
		return "generation prompt"
	}
	switch at := places[low]; at.Turn {
	case -2:
		return fmt.Sprintf("tools[%d]", at.Block)
	case -1:
		return fmt.Sprintf("system[%d]", at.Block)
	default:
		return fmt.Sprintf("turns[%d].blocks[%d]", at.Turn, at.Block)
	}
}
