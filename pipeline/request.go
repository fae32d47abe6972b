package pipeline

import (
	"sync"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/router"
)

// Request is one client request on its way down: the conversation, what came
// beside it, and what is noted about it on the way.
type Request struct {
	ID       string // UUID; engine attempts are "<ID>-<attempt>"
	Chat     *chat.Request
	Ext      *nvext.Ext // nil if the client sent none
	Identity nvext.Identity
	// Tenant is who owns the client's key; empty where nobody has one.
	Tenant string
	// Caps are the tenant's, to which Ext is held already; nil if it has none.
	Caps *nvext.Caps
	KV   kv.Directives
	// Meta is what the client says to workers, in their words; nil: nothing.
	Meta map[string]string
	// Class is the policy class or family that the client asks for; empty is the
	// default one. Background work is what no client waits for.
	Class      string
	Background bool
	Trace      engine.Trace
	Arrived    time.Time
	Deadline   time.Time // the client's own; zero = none
	// Debug asks for an explanation of what the request's prompt does not share with
	// the one before it, in Notes.
	Debug bool

	// expected is how many tokens the answer should have, by what is learned, where the
	// client does not say so; 0: nobody knows.
	expected uint32

	// Traced, if not nil, is filled on the way for a trace. It must not be shared.
	Traced *Traced
	// Notes is filled on the way and may be read once the first event or the
	// error has come. It is nil if nobody wants to know.
	Notes *Notes
}

// Notes are what the stages tell about one request, for metrics, traces and
// response metadata. They are complete when the first event of the request has
// come, but for Capped and the blocks of Granted, which are with the last; only one
// with a single choice, alone in its call, adds to them later, when it moves. Where
// one of several choices has answered before there was a place for the leg that
// answers the others, that place is not among them.
type Notes struct {
	Model        string // primary name, also where an alias was asked for
	PromptTokens int
	// Formatted and TokenIDs are the prompt as its model is shown it, for clients that
	// have asked for them. What a client has sent itself is not told.
	Formatted string
	TokenIDs  []uint32
	Template  time.Duration
	Tokenize  time.Duration
	Queue     time.Duration // parked by the router
	Routing   time.Duration // decision, without Queue
	Waiting   int           // requests that were parked when it was placed
	Target    kv.Target     // of the last attempt
	Prefill   *kv.Target    // that computed its prompt, if it was another one
	Overlap   int           // blocks that the router predicted as cached
	Blocks    int           // blocks of the prompt
	Session   router.SessionUse
	Degraded  bool // the engine should keep the session, and does not
	Attempts  int
	// FormBy says who sees to the form that the answer is to have, and BudgetBy who
	// to its thinking budget: [ByEngine], [ByUs], [ByNobody], or empty if there is
	// none.
	FormBy, BudgetBy string
	// Capped names the caps of its tenant that what is to stay cached was beyond.
	Capped []string
	// Preamble are the lines that were taken off the system text.
	Preamble []string
	// NotShown counts what of the request its model does not see, by kind: blocks
	// that nobody here knows, and tools that others run.
	NotShown map[string]int
	// Granted tells of the pins that the request asked for, nil if it asked for none.
	// Its TTL is known when the first event comes, and the blocks with the last.
	Granted *nvext.Granted
	// Reuse is how much of its session's last prompt and answer the prompt begins
	// with; nil if it is the first, or in no session.
	Reuse *Reuse
}

// placed notes where an attempt goes, as far as that is known; the leg that answers
// may be placed later.
func (n *Notes) placed(plan *router.Plan, answer *router.Booking) {
	n.Prefill, n.Session = nil, router.SessionNone
	if b := plan.Prefill; b != nil {
		n.booked(b)
		n.Prefill = new(b.Decision().Target)
	}
	if answer != nil {
		n.booked(answer)
	}
}

// noting is what the choices of a request have yet to note of it. Whoever comes first
// does so for all.
type noting struct {
	form   sync.Once // who sees to the form of the answer
	answer sync.Once // where the leg that answers is
}

// end lets nothing more be noted of places: who hears of the answer reads the notes.
func (n *noting) end() { n.answer.Do(func() {}) }

// formed notes who sees to the form of the answer, and who to its thinking budget.
func (j *job) formed(budgetBy string) {
	j.noting.form.Do(func() {
		j.request.Notes.FormBy, j.request.Notes.BudgetBy = j.held.by(), budgetBy
	})
}

// booked notes one place. What is cached counts where the prompt is computed.
func (n *Notes) booked(b *router.Booking) {
	d := b.Decision()
	n.Target, n.Session = d.Target, max(n.Session, d.Session)
	if n.Prefill == nil {
		n.Overlap, n.Blocks = d.Overlap, d.Blocks
	}
	n.Waiting = d.Waiting
	n.Routing += d.Routing
	n.Queue += d.Queue
}
