package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// How long to wait before an engine is asked again: after it said that asking is
// pointless, and after a stream ended that should not have.
const (
	askAgain    = 30 * time.Second
	firstPause  = 100 * time.Millisecond
	longestWait = 5 * time.Second
)

// longestAbsence is how long what a worker has told of its caches is believed while
// no stream of its events can be had.
const longestAbsence = 2 * time.Second

// keepHidden is how long it is remembered what a worker caches that does not
// serve: if it comes back in the same life, all of that is there still.
const keepHidden = time.Minute

// follower is the goroutine of one worker. Its fields are its own while it holds
// the lock, except that order belongs to the reader of events while one runs.
type follower struct {
	*Worker
	sinks []Sink
	log   *slog.Logger
	// reported says that whoever knows the worker tells of it; nothing is read.
	reported bool

	mu     sync.Mutex
	order  order
	hidden *time.Timer // forgets what is cached; nil while the worker serves

	// readers end with quit; nil while none run.
	quit    context.CancelFunc
	readers sync.WaitGroup
	// refused is the revision whose missing context length was logged.
	refused uint64
	// What may go wrong again and again. The first belongs to the follower, the
	// others to the reader of events.
	restarted, torn, foreign, voided, ended complaint
}

func newFollower(w *Worker, sinks []Sink) *follower {
	return &follower{Worker: w, sinks: sinks, log: w.fleet.log.With("worker", w.name, "id", w.id)}
}

// follow ranges over the worker's cards until ctx ends. When it returns, nothing
// of the worker runs any more and the sinks have forgotten it.
func follow(ctx context.Context, w *Worker, sinks []Sink) {
	f := newFollower(w, sinks)
	defer f.end()
	for ctx.Err() == nil {
		reason := "the engine has stopped telling its status"
		for s, err := range w.engine.Card(ctx) {
			if err != nil {
				reason = err.Error()
				break
			}
			f.become(ctx, s)
		}
		if ctx.Err() != nil {
			return
		}
		f.log.Warn("worker is lost", "reason", reason, "retry", askAgain)
		f.giveUp(reason)
		pause(ctx, askAgain)
	}
}

// giveUp ends the life of a worker that tells nothing any more.
func (f *follower) giveUp(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.view.Load().told
	s.State, s.Reason = engine.Failed, reason
	f.newLife(s)
}

// end leaves nothing of the worker.
func (f *follower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
}

// become makes s the worker's status and does what follows from it.
func (f *follower) become(ctx context.Context, s engine.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Card != nil && !countable(s.Card) {
		s.State, s.Reason = engine.Failed, fmt.Sprintf("the card names %d ranks from %d on: want at most %d, below 2^32", s.Card.DPSize, s.Card.DPStart, mostRanks)
		s.Card = nil
	}
	old := f.view.Load().told
	if s.Card == nil && s.Epoch == old.Epoch && s.State == engine.Dead {
		s.Card, s.Revision = old.Card, old.Revision // who cannot be reached is who it was
	}
	if s.State != old.State {
		level := slog.LevelInfo
		if s.State >= engine.Failed {
			level = slog.LevelWarn
		}
		f.log.Log(ctx, level, "worker is "+s.State.String(), "was", old.State.String(), "reason", s.Reason)
	}
	switch {
	case old.Epoch != 0 && s.Epoch != old.Epoch:
		if old.Card != nil { // else nothing ran there
			f.lives.Add(1)
			f.restarted.warn(f.log, "worker has restarted; what ran there and what it cached is lost")
		}
		f.newLife(s)
	case s.State == engine.Failed:
		f.forget()
		f.set(s)
	case !sameCache(old.Card, s.Card):
		f.log.Info("the worker's cache is another one; its events are read anew")
		f.stopReaders()
		f.set(s)
		f.forget()
	case s.State == engine.Dead && old.State != engine.Dead:
		f.lose(s)
	default:
		f.set(s)
	}
	v := f.view.Load()
	if v.live() {
		f.show()
		f.read(ctx, s.Card)
	} else {
		f.stopReaders()
		f.hide()
	}
	if !v.admitted && s.State == engine.Ready && f.refused != s.Revision {
		f.refused = s.Revision
		f.log.Warn("worker is not admitted: its context length is unknown; set context_length for this engine", "key", "context_length")
	}
}

// mostRanks is how many ranks a worker may have. Each is a row of every decision.
const mostRanks = 4096

func countable(c *engine.Card) bool {
	return c.Ranks() <= mostRanks && c.DPStart <= math.MaxUint32-c.Ranks()
}

// sameCache says whether events mean the same under both cards.
func sameCache(a, b *engine.Card) bool {
	if a == nil || b == nil {
		return true // nothing was told without a card
	}
	return a.BlockSize == b.BlockSize && a.HashScheme == b.HashScheme && a.DPStart == b.DPStart && a.Ranks() == b.Ranks() &&
		a.Features.Has(engine.FeatureEvents) == b.Features.Has(engine.FeatureEvents)
}

// newLife ends everything that belonged to the life before s. The old life is
// over before the sinks are told, so that they can tell what came too late.
func (f *follower) newLife(s engine.Status) {
	f.view.Load().lose(engine.ErrWorkerLost)
	f.forget()
	f.begin(s)
}

// lose ends what runs on a worker that cannot be reached. What it caches is not
// forgotten yet.
func (f *follower) lose(s engine.Status) {
	f.view.Load().lose(engine.ErrWorkerLost)
	f.begin(s)
}

// begin makes s the status, and what runs from now on no part of what ran before.
func (f *follower) begin(s engine.Status) {
	v := &view{told: s, status: s, admitted: admits(s.Card)}
	v.lost, v.lose = context.WithCancelCause(context.Background())
	f.fleet.settle(f.Worker, v)
}

// set replaces the status within one life.
func (f *follower) set(s engine.Status) {
	old := f.view.Load()
	f.fleet.settle(f.Worker, &view{told: s, status: s, admitted: admits(s.Card), lost: old.lost, lose: old.lose})
}

// hide begins to count down until what the worker caches is forgotten.
func (f *follower) hide() {
	if f.hidden != nil || f.reported || len(f.order.ranks) == 0 {
		return
	}
	var mine *time.Timer
	mine = time.AfterFunc(keepHidden, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.hidden == mine {
			f.log.Info("what the worker caches is forgotten; it has not served for a while", "after", keepHidden)
			f.forget()
		}
	})
	f.hidden = mine
}

func (f *follower) show() {
	if f.hidden != nil {
		f.hidden.Stop()
		f.hidden = nil
	}
}

// forget stops the readers and makes the sinks forget what they have told.
func (f *follower) forget() {
	f.show()
	f.stopReaders()
	f.load.Store(nil)
	f.order = order{}
	for _, s := range f.sinks {
		s.RemoveWorker(f.id)
	}
}

// read starts the readers of load and events unless they run.
func (f *follower) read(ctx context.Context, card *engine.Card) {
	if f.quit != nil || f.reported {
		return
	}
	ctx, f.quit = context.WithCancel(ctx)
	f.readers.Go(func() { f.readLoad(ctx) })
	if card.Features.Has(engine.FeatureEvents) && len(f.sinks) > 0 {
		f.readers.Go(func() { f.readEvents(ctx, card) })
	}
}

func (f *follower) stopReaders() {
	if f.quit == nil {
		return
	}
	f.quit()
	f.readers.Wait()
	f.quit = nil
}

func (f *follower) readLoad(ctx context.Context) {
	for ctx.Err() == nil {
		for l, err := range f.engine.Load(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					f.log.Warn("engine tells no load", "error", err, "retry", askAgain)
				}
				break
			}
			f.load.Store(&reading{load: l, at: time.Now()})
			f.overloaded.Store(0)
		}
		pause(ctx, askAgain)
	}
}

// readEvents hands the worker's KV events to the sinks. After a stream that
// broke, each rank goes on where it was, and one that cannot is told anew. An
// engine whose streams keep breaking is asked less and less often, and what it has
// told is void when that takes too long: nobody knows what it has let go of since.
func (f *follower) readEvents(ctx context.Context, card *engine.Card) {
	wait := firstPause
	var aged time.Time // when the last stream ended that has told something
	for ctx.Err() == nil {
		opened := time.Now()
		f.told.opened.Add(1)
		stream, cancel := context.WithCancel(ctx)
		f.reread.Store(&cancel)
		if f.anew.Swap(false) {
			f.order.restart()
		}
		cursors, broken := f.order.resume()
		for _, rank := range broken {
			f.tell(kv.Batch{Rank: rank, Gap: kv.GapLost})
		}
		heard, err := f.readEventsFrom(stream, card, cursors)
		resync := stream.Err() != nil
		cancel()
		if heard || aged.IsZero() || time.Since(opened) > longestWait {
			aged = time.Now()
		}
		switch {
		case ctx.Err() != nil:
			return
		case resync:
			continue
		case err != nil:
			f.ended.warn(f.log, "engine tells no KV events", "error", err, "retry", askAgain)
			f.rest(ctx, askAgain, aged)
			continue
		case time.Since(opened) > longestWait:
			wait = firstPause
		}
		f.rest(ctx, wait, aged)
		wait = min(2*wait, longestWait)
	}
}

// rest waits before events are read again. Meanwhile, what was told until aged may
// become void.
func (f *follower) rest(ctx context.Context, d time.Duration, aged time.Time) {
	left := max(0, longestAbsence-time.Since(aged))
	if d < left {
		pause(ctx, d)
		return
	}
	pause(ctx, left)
	if ctx.Err() != nil {
		return
	}
	for _, rank := range f.order.forget() {
		f.voided.warn(f.log, "KV events have become void", "rank", rank, "reason", "no stream of them for "+longestAbsence.String())
		f.tell(kv.Batch{Rank: rank, Gap: kv.GapLost})
	}
	pause(ctx, d-left)
}

// readEventsFrom runs one stream of events until it ends or is torn, and says
// whether it has told something.
func (f *follower) readEventsFrom(ctx context.Context, card *engine.Card, cursors []kv.Cursor) (heard bool, err error) {
	for b, err := range f.engine.Events(ctx, cursors) {
		if err != nil {
			return heard, err
		}
		heard = true
		if f.hear(card, b) == hole {
			break
		}
	}
	return heard, nil
}

// hear judges the next batch of a worker with this card, and hands on what is
// new in it.
func (f *follower) hear(card *engine.Card, b kv.Batch) verdict {
	if b.Rank < card.DPStart || b.Rank-card.DPStart >= card.Ranks() {
		f.told.foreign.Add(1)
		f.foreign.warn(f.log, "KV events name a rank that the worker does not have; they are left out", "rank", b.Rank, "first", card.DPStart, "ranks", card.Ranks())
		return ignore
	}
	b, verdict := f.order.next(b)
	switch verdict {
	case apply:
		if b.Gap != "" {
			f.voided.warn(f.log, "KV events have become void", "rank", b.Rank, "reason", b.Gap)
		}
		f.tell(b)
	case hole:
		f.told.torn.Add(1)
		f.torn.warn(f.log, "KV events are missing; the rank is told anew", "rank", b.Rank, "from", b.First)
	default:
		f.told.ignored.Add(1)
	}
	return verdict
}

func (f *follower) tell(b kv.Batch) {
	if b.Gap != "" {
		f.told.voided.Add(1)
	} else {
		f.told.applied.Add(1)
	}
	t := kv.Target{Worker: f.id, Rank: b.Rank}
	for _, s := range f.sinks {
		s.Apply(t, b)
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
