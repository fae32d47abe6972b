package fleet

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
)

// Worker is one member of a fleet. Its methods answer from memory and may be
// called from any goroutine, also after it has left.
type Worker struct {
	fleet  *Fleet
	id     uint64
	name   string
	engine engine.Engine

	view     atomic.Pointer[view]
	load     atomic.Pointer[reading]
	draining atomic.Bool // by the operator, whatever the engine says
	// anew asks the reader of events to begin anew, reread ends its stream.
	anew   atomic.Bool
	reread atomic.Pointer[context.CancelFunc]
	told   told
	lives  atomic.Uint64 // that began after another one
	seen   uint64        // in which order workers joined
	// Until when the worker is left alone, and counted as full, in nanoseconds
	// since the fleet's start; 0 = it is not.
	inhibited, overloaded atomic.Int64

	// before, if not nil, had the id and is about to be forgotten under it.
	before *Worker
	stop   context.CancelFunc
	done   chan struct{} // closed when no goroutine of this worker is left
}

// view is what is known of a worker at one moment; it is replaced as a whole, by
// who holds the fleet's lock.
type view struct {
	told     engine.Status // by the engine
	status   engine.Status // the same, without names that belong to others
	traits   []trait
	admitted bool
	// agreed says that the worker is one of those that serve its model, and refusal,
	// if not nil, why it is not.
	agreed  bool
	refusal *Refusal
	lost    context.Context
	lose    context.CancelCauseFunc
}

type reading struct {
	load engine.Load
	at   time.Time
}

func newWorker(f *Fleet, e Entry) *Worker {
	w := &Worker{fleet: f, id: e.ID, name: e.Name, engine: e.Engine, done: make(chan struct{})}
	unheard := engine.Status{State: engine.Loading, Reason: "not heard of yet"}
	v := &view{told: unheard, status: unheard}
	v.lost, v.lose = context.WithCancelCause(context.Background())
	w.view.Store(v)
	return w
}

// start follows the engine until leave, once nothing is left of the one before.
func (w *Worker) start(sinks []Sink) {
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() {
		defer close(w.done)
		if w.before != nil {
			<-w.before.done
			w.before = nil
		}
		follow(ctx, w, sinks)
	}()
}

// leave ends everything that goes on around the worker, and waits for it.
func (w *Worker) leave(cause error) error {
	w.draining.Store(true)
	w.view.Load().lose(cause)
	w.stop()
	<-w.done
	w.view.Load().lose(cause) // of a life that began just now
	return closeEngine(w.engine)
}

// ID returns the worker's id, below 2^53.
func (w *Worker) ID() uint64 { return w.id }

// Name returns the name it joined with.
func (w *Worker) Name() string { return w.name }

// Engine returns the engine to send requests to.
func (w *Worker) Engine() engine.Engine { return w.engine }

// Status returns the latest status. A worker that is being drained by the
// operator shows that, and one that is refused has failed for that reason.
func (w *Worker) Status() engine.Status {
	v := w.view.Load()
	s := v.status
	switch {
	case v.refusal != nil:
		s.State, s.Reason = engine.Failed, v.refusal.Reason
	case s.State == engine.Ready && w.draining.Load():
		s.State = engine.Draining
	case s.State == engine.Ready && !v.admitted:
		s.Reason = "its context length is unknown: want context_length=TOKENS in its --engine"
	}
	return s
}

// State names the worker's state for operators: what its engine says, or
// connecting while that says nothing, refused, draining, or inhibited after a
// failure.
func (w *Worker) State() string {
	v := w.view.Load()
	switch s := w.Status().State; {
	case v.refusal != nil:
		return "refused"
	case v.told.Epoch == 0 && s == engine.Loading:
		return "connecting"
	case s == engine.Ready && !v.admitted:
		return "incomplete"
	case s == engine.Ready && !w.Ready():
		return "inhibited"
	default:
		return s.String()
	}
}

// Refusal returns why the worker is kept from serving beside others, or nil.
func (w *Worker) Refusal() *Refusal { return w.view.Load().refusal }

// Restarts counts the lives of the worker that began after another one.
func (w *Worker) Restarts() uint64 { return w.lives.Load() }

// Card returns the latest card, or nil.
func (w *Worker) Card() *engine.Card { return w.view.Load().status.Card }

// Admitted says whether the worker takes requests at all: it is ready, its card
// tells what is needed and agrees with those of others, and nobody drains it.
func (w *Worker) Admitted() bool {
	v := w.view.Load()
	return v.admitted && v.refusal == nil && v.status.State == engine.Ready && !w.draining.Load()
}

// Ready says whether new requests should go here: the worker is admitted, and
// not left alone after a failure.
func (w *Worker) Ready() bool { return w.Admitted() && !w.ahead(&w.inhibited) }

// Overloaded says whether the worker has refused a request because it was full,
// and has told nothing of its load since.
func (w *Worker) Overloaded() bool { return w.ahead(&w.overloaded) }

// Load returns the latest reading of the engine's own load and when it came.
// The time is zero if there is none.
func (w *Worker) Load() (engine.Load, time.Time) {
	if r := w.load.Load(); r != nil {
		return r.load, r.at
	}
	return engine.Load{}, time.Time{}
}

// Lost returns a context that is done when the present life of the worker is
// over: it was removed, gave up, or restarted. Its cause is
// [engine.ErrWorkerLost], or [engine.ErrShutdown] if the whole fleet closes.
func (w *Worker) Lost() context.Context { return w.view.Load().lost }

// Resync lets the sinks forget what this worker's events have told, and the
// engine tell all of it again.
func (w *Worker) Resync() {
	w.anew.Store(true)
	if cancel := w.reread.Load(); cancel != nil {
		(*cancel)()
	}
}

// Inhibit tells of a request that failed here. Kinds that are the worker's own
// fault keep new requests away for a while, unless that is switched off; one that
// was full counts as overloaded until its next reading of load, but no longer than
// that while. Other kinds change nothing.
func (w *Worker) Inhibit(now time.Time, kind engine.ErrorKind) {
	var mark *atomic.Int64
	while := w.fleet.inhibit
	switch off := while < 0; {
	case kind.Inhibits() && !off:
		mark = &w.inhibited
	case kind == engine.WorkerOverloaded:
		mark = &w.overloaded
		if off {
			while = DefaultInhibit
		}
	default:
		return
	}
	until := max(1, int64(now.Sub(w.fleet.start)+while))
	mark.Store(until)
	for {
		last := w.fleet.marked.Load()
		if last >= until || w.fleet.marked.CompareAndSwap(last, until) {
			break
		}
	}
	w.fleet.announce()
}

// ahead says whether the time in mark lies ahead. It looks at the clock only
// if one is set.
func (w *Worker) ahead(mark *atomic.Int64) bool {
	until := mark.Load()
	if until == 0 {
		return false
	}
	if int64(time.Since(w.fleet.start)) < until {
		return true
	}
	mark.CompareAndSwap(until, 0)
	return false
}

// admits says whether a card tells enough to send requests here: a worker whose
// context length is unknown would be guessed at. Tensors have no length, and who takes
// conversations as they are counts their tokens itself.
func admits(c *engine.Card) bool {
	if c == nil {
		return false
	}
	return c.ContextLength > 0 || len(c.Accepts) > 0 && !slices.ContainsFunc(c.Accepts, func(in engine.Input) bool {
		return in != engine.InputTensor && in != engine.InputChat
	})
}
