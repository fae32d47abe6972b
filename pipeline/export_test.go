package pipeline

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

// For tests from outside.
var WithoutPreamble = withoutPreamble

// Histories opens histories to tests.
type Histories struct{ h *histories }

func NewHistories(tokens int) Histories { return Histories{newHistories(tokens)} }

// Add makes a request of so many tokens known, that goes on from one of its
// session's, or from none.
func (h Histories) Add(name string, tokens, after int) {
	p := &past{ids: make([]uint32, tokens)}
	if after >= 0 {
		p.after = h.h.known[session{id: name}].Value.(*history).past[after]
	}
	h.h.add(session{id: name}, p)
}

// Known returns how many requests of a session are known, without using it.
func (h Histories) Known(name string) int {
	e := h.h.known[session{id: name}]
	if e == nil {
		return 0
	}
	return len(e.Value.(*history).past)
}

// Chained tells that the last request of a session holds another one.
func (h Histories) Chained(name string) bool {
	known := h.h.of(session{id: name})
	return known[len(known)-1].after != nil
}

// Last returns how many tokens the latest request of a session has.
func (h Histories) Last(name string) int {
	known := h.h.of(session{id: name})
	return len(known[len(known)-1].ids)
}

// Tokens returns what is counted, and what is there.
func (h Histories) Tokens() (counted, held int) {
	for _, e := range h.h.known {
		for _, p := range e.Value.(*history).past {
			held += p.tokens()
		}
	}
	return h.h.tokens, held
}

// Names opens names to tests.
type Names struct{ n names }

func NamesOf(tools []chat.Tool) Names { return Names{namesOf(tools)} }

// Shown returns the names that a model sees.
func (n Names) Shown() (list []string) {
	for _, s := range n.n.shown {
		if s != "" {
			list = append(list, s)
		}
	}
	return list
}

func (n Names) Tell(use *chat.ToolUse) *chat.ToolUse { return n.n.tell(use) }

func (p *Pipeline) ThinkingOf(r *chat.Request, grammar string) chat.Thinking {
	return p.thinkingOf(r, grammar)
}

// Cut is what is left out of a conversation, and what is left of it.
type Cut struct {
	Left    []int
	Request *chat.Request
}

func Cuts(r *chat.Request) (list []Cut) {
	for _, c := range cutsOf(r.Turns) {
		cut := Cut{Request: c.apply(r)}
		for i := range r.Turns {
			if c.leaves(i) {
				cut.Left = append(cut.Left, i)
			}
		}
		list = append(list, cut)
	}
	return list
}

// Beginnings opens beginnings to tests.
type Beginnings struct{ b *beginnings }

func NewBeginnings(limit int) Beginnings { return Beginnings{newBeginnings(limit)} }

func (b Beginnings) Of(name string, now time.Time) time.Time { return b.b.of(session{id: name}, now) }

// Shown is what a model is to see of a request.
func Shown(r *chat.Request, m *prompt.Model) *chat.Request {
	return New(Config{}).show(r, m, "test", new(Notes)).chat
}

func Calls(r *chat.Request) []*chat.ToolUse { return calls(r) }

// Told makes a request with this prompt known to its session.
func (p *Pipeline) Told(r *Request, m *prompt.Model, ids []uint32) {
	p.reuse(r, m, &prompt.Prompt{IDs: ids}, len(r.Chat.Turns)).end(ids[:100])
}

func KindOf(wire []byte, other string) string { return kindOf(wire, other) }

func KnownKind(kind string) bool { return knownKinds[kind] }

// MostEndings is how many ends of sessions an engine may yet have to hear of.
const MostEndings = mostEndings

// EndSession lets an engine be told of the end of a session.
func (p *Pipeline) EndSession(e *router.SessionEnd) { p.endings.end(e) }

// MostPrefetches is how many prefetches can be asked about.
const MostPrefetches = mostPrefetches

// Late lets the second choice of a request come to its place when the first one is
// about to place the leg that answers. It returns where each of them begins.
func (p *Pipeline) Late(ctx context.Context, r *Request) (a, b *router.Booking, err error) {
	jobs, err := p.prepareAll([]*Request{r})
	defer jobs.release()
	if err == nil {
		err = jobs.begin(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	answered := make(chan error)
	go func() {
		_, err := jobs[0].booking.answer(ctx, func(*router.Booking) {})
		answered <- err
	}()
	err = jobs[1].place(ctx)
	return jobs[0].here, jobs[1].here, errors.Join(err, <-answered)
}

// Choice runs one choice of a request, before the others have begun.
func (p *Pipeline) Choice(ctx context.Context, r *Request, i int) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		jobs, err := p.prepareAll([]*Request{r})
		defer jobs.release()
		if err == nil {
			err = jobs[i].place(ctx)
		}
		if err != nil {
			fail(yield, err)
			return
		}
		merge(ctx, jobs[i:i+1])(yield)
	}
}

// Settle returns when all is done that requests have left behind.
func (p *Pipeline) Settle() { p.behind.running.Wait() }

// PinList opens the list of pins to tests.
type PinList struct{ l *pinList }

func NewPinList() PinList { return PinList{new(pinList)} }

func (p PinList) Add(i PinInfo) { p.l.add(i) }

func (p PinList) List(now time.Time) []PinInfo { return p.l.list("", now) }

// WarmBlocks returns how many blocks are kept warm on the first worker, by tenants.
func (p *Pipeline) WarmBlocks() map[string]int {
	p.warm.mu.Lock()
	defer p.warm.mu.Unlock()
	return p.warm.heldLocked(1)
}

// MostPauses is how many sessions are known at most whose tools run.
const MostPauses = mostPauses

// Pauses returns how many are known.
func (p *Pipeline) Pauses() int {
	p.expects.mu.Lock()
	defer p.expects.mu.Unlock()
	if len(p.expects.paused) != p.expects.used.Len() {
		panic("the list of pauses is not that of the table")
	}
	return p.expects.used.Len()
}
