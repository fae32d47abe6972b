package pipeline

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// How long to wait before an engine that could not be told is told again.
const (
	firstCloseAgain = 100 * time.Millisecond
	lastCloseAgain  = 5 * time.Second
)

// mostEndings is how many ends one engine may yet have to hear of. Clients make up
// sessions, and an engine that fails to open them may fail to close them for as long
// as they would have lasted; it forgets by itself what it is not told.
const mostEndings = 1 << 16

// endings tell engines which of the sessions that they keep have ended. Each engine
// is told by one goroutine, for as long as there is something to tell, of one session
// after another: it may be ten thousand that have been forgotten at once. It is safe
// for concurrent use.
type endings struct {
	behind *behind

	mu      sync.Mutex
	stopped bool
	of      map[*fleet.Worker]*bearer
}

// bearer is what is to be told to one engine.
type bearer struct {
	queue []*ending
	known map[kv.SessionKey]*ending // those that are queued, and the one being told
	count int                       // of ends, of which one session may have several
	now   *ending                   // being told
}

// ending is a session that has ended, maybe more than once.
type ending struct {
	*router.SessionEnd
	until   time.Time // the engine has forgotten it by then
	done    []func()
	dropped bool          // somebody opens it anew
	over    chan struct{} // closed when it is told no more
}

// end takes note of a session that has ended.
func (s *endings) end(e *router.SessionEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	until := time.Now().Add(e.Timeout + sessionSlack)
	b := s.of[e.Worker]
	if b == nil {
		b = &bearer{known: map[kv.SessionKey]*ending{}}
		if s.of == nil {
			s.of = map[*fleet.Worker]*bearer{}
		}
		s.of[e.Worker] = b
		s.behind.run(func(ctx context.Context) { s.bear(ctx, e.Worker, b) })
	}
	if b.count == mostEndings {
		s.behind.run(func(context.Context) { e.Done() }) // a lock of the router's is held
		return
	}
	b.count++
	if known := b.known[e.Key]; known != nil {
		known.SessionEnd, known.until, known.dropped = e, until, false
		known.done = append(known.done, e.Done)
		return
	}
	one := &ending{SessionEnd: e, until: until, done: []func(){e.Done}, over: make(chan struct{})}
	b.known[e.Key] = one
	b.queue = append(b.queue, one)
}

// retract takes back what an engine was to be told of a session that is about to be
// opened there anew. It returns when the engine hears no more of that.
func (s *endings) retract(ctx context.Context, w *fleet.Worker, key kv.SessionKey) {
	s.mu.Lock()
	b := s.of[w]
	if b == nil || b.known[key] == nil {
		s.mu.Unlock()
		return
	}
	e := b.known[key]
	e.dropped = true
	running := b.now == e
	if !running {
		b.queue = slices.DeleteFunc(b.queue, func(o *ending) bool { return o == e })
		b.forget(e)
	}
	s.mu.Unlock()
	if !running {
		e.finish()
		return
	}
	select {
	case <-e.over:
	case <-ctx.Done():
	}
}

// forget takes an ending out that is told no more.
func (b *bearer) forget(e *ending) {
	delete(b.known, e.Key)
	b.count -= len(e.done)
	close(e.over)
}

// finish tells the router that the engine has heard, or will not.
func (e *ending) finish() {
	for _, done := range e.done {
		done()
	}
}

// bear tells one engine until there is nothing more to tell.
func (s *endings) bear(ctx context.Context, w *fleet.Worker, b *bearer) {
	wait := firstCloseAgain
	for {
		e, end := s.next(w, b)
		if e == nil {
			return
		}
		err := tellEnd(ctx, end)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			wait = firstCloseAgain
		}
		if s.settled(b, e, err) {
			e.finish()
			continue
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, lastCloseAgain)
	}
}

// next returns what is to be told next, and the end of it that is known now: another
// may come while that is told. Both are nil when all is told.
func (s *endings) next(w *fleet.Worker, b *bearer) (*ending, *router.SessionEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(b.queue) == 0 {
		delete(s.of, w)
		return nil, nil
	}
	b.now, b.queue[0] = b.queue[0], nil
	b.queue = b.queue[1:]
	return b.now, b.now.SessionEnd
}

// settled puts an ending back that the engine has not heard of, and says whether it
// is told no more.
func (s *endings) settled(b *bearer, e *ending, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.now = nil
	if err != nil && !e.dropped && time.Now().Before(e.until) && e.Life.Err() == nil {
		b.queue = append(b.queue, e)
		return false
	}
	b.forget(e)
	return true
}

// tellEnd tells an engine of an end, unless there is none any more that would know.
func tellEnd(ctx context.Context, e *router.SessionEnd) error {
	keeper, ok := engine.As[engine.Sessioner](e.Worker.Engine())
	card := e.Worker.Card()
	if !ok || card == nil || !card.Features.Has(engine.FeatureSessions) || e.Life.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	defer context.AfterFunc(e.Life, cancel)()
	_, err := keeper.CloseSession(ctx, e.Key)
	return err
}

// stop ends it: engines let go of sessions by themselves.
func (s *endings) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}
