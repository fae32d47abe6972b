package pipeline

import (
	"container/list"
	"slices"
	"sync"
)

// DefaultHistoryTokens is how many tokens of the latest requests of sessions a
// pipeline keeps, at four bytes each, to tell what of them is used again.
const DefaultHistoryTokens = 16 << 20

// mostPast is how many requests of one session are kept: side calls, for a title
// for instance, stand beside the conversation itself.
const mostPast = 4

// histories hold the latest requests of sessions, up to a number of tokens. It is
// safe for concurrent use.
type histories struct {
	limit int // tokens

	mu     sync.Mutex
	known  map[session]*list.Element
	used   list.List // of *history, the latest in use first
	tokens int
}

type history struct {
	session session
	past    []*past // the latest last
}

func newHistories(tokens int) *histories {
	return &histories{limit: tokens, known: map[session]*list.Element{}}
}

// of returns the requests of a session. The list is the caller's own.
func (h *histories) of(s session) []*past {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.known[s]
	if e == nil {
		return nil
	}
	h.used.MoveToFront(e)
	return slices.Clone(e.Value.(*history).past)
}

// add makes a request known, in the place of that which it went on from. The
// sessions that were used least lately make room.
func (h *histories) add(s session, p *past) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.known[s]
	if e == nil {
		e = h.used.PushFront(&history{session: s})
		h.known[s] = e
	}
	h.used.MoveToFront(e)
	own := e.Value.(*history)
	if i := slices.Index(own.past, p.after); i >= 0 {
		h.drop(own, i)
	} else if len(own.past) == mostPast {
		h.drop(own, 0)
	}
	p.after = nil
	own.past = append(own.past, p)
	h.tokens += p.tokens()
	for h.tokens > h.limit {
		oldest := h.used.Back()
		if own := oldest.Value.(*history); len(own.past) > 1 {
			h.drop(own, 0)
			continue
		}
		h.forget(oldest)
	}
}

// end forgets a session.
func (h *histories) end(s session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.known[s]; e != nil {
		h.forget(e)
	}
}

func (h *histories) forget(e *list.Element) {
	own := h.used.Remove(e).(*history)
	for len(own.past) > 0 {
		h.drop(own, 0)
	}
	delete(h.known, own.session)
}

func (h *histories) drop(own *history, i int) {
	h.tokens -= own.past[i].tokens()
	own.past = slices.Delete(own.past, i, i+1)
}

// pastOverhead is about what a request, and its session, take beside: a kilobyte.
const pastOverhead = 256

// tokens is what a request counts: its ids, and something for the rest.
func (p *past) tokens() int {
	blocks := len(p.parts.tools) + len(p.parts.system)
	for _, t := range p.parts.turns {
		blocks += len(t) + 3
	}
	return len(p.ids) + len(p.answer) + 2*blocks + pastOverhead
}
