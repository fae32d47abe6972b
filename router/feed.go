package router

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// feed lets the index hear what the fleet tells.
type feed struct{ *Router }

// Apply implements [fleet.Sink].
func (f feed) Apply(t kv.Target, b kv.Batch) {
	w := f.fleet.Worker(t.Worker)
	if w == nil {
		f.intake.unknown.Add(1)
		return
	}
	card := w.Card()
	if card == nil || !f.hears(card) {
		f.intake.unheard.Add(1)
		return
	}
	if len(b.Events) > 0 {
		f.watch.heard(t)
	}
	switch f.intake.gate(t, f.now()) {
	case shut:
		f.intake.muted.Add(1)
		return
	case opening:
		w.Resync()
		return
	}
	anew, lost, fewer := b.Gap == kv.GapRestart, b.Gap != "", b.Gap != ""
	f.wipings.hear(t, &b)
	if lost {
		f.removeTarget(t)
	}
	before := f.owned(t)
	for _, e := range b.Events {
		f.strays.apply(f.index, t, e)
		if e.Kind == kv.Cleared {
			anew, before = true, 0
		}
		fewer = fewer || e.Kind != kv.Stored
	}
	switch held, most, enough := f.owned(t), mostBlocks(card), convincing(card); {
	case held > most:
		f.removeTarget(t)
		f.intake.close(t, held, most, f.now())
	case before < enough && enough <= held:
		f.index.Reserve(t, blocksTold(card))
	}
	f.watch.told(t, fewer)
	whole := false // nothing else is there
	if b.Snapshot == kv.SnapshotEnd {
		whole, _ = f.watch.believes(t)
	}
	if !anew && !lost && !whole {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if anew || lost {
		f.ahead.removeTarget(t)
	}
	if anew || whole {
		f.instead.Load().removeTarget(t)
	} else {
		f.lack(t, f.now())
	}
}

// removeTarget forgets what a rank has told.
func (f feed) removeTarget(t kv.Target) {
	f.index.RemoveTarget(t)
	f.strays.removeTarget(t)
}

// owned returns how many blocks a rank has told of, but for those of a store that it
// shares: that may hold any number of times what one worker does.
func (f feed) owned(t kv.Target) int {
	all := f.index.Blocks(t)
	if f.index.BlocksOn(t, kv.TierShared) == 0 || all > mostUntold {
		return all
	}
	own := 0
	for tier := range kv.TierShared {
		own += f.index.BlocksOn(t, tier)
	}
	return min(own, all)
}

// RemoveWorker implements [fleet.Sink].
func (f feed) RemoveWorker(id uint64) {
	f.intake.removeWorker(id)
	f.mu.Lock()
	f.routed.RemoveWorker(id)
	f.ahead.removeWorker(id)
	f.instead.Load().removeWorker(id)
	f.watch.removeWorker(id)
	orphans := f.orphans(id)
	f.books.dropIdle(id)
	f.mu.Unlock()
	for _, b := range orphans {
		b.Failed()
		b.release() // the fleet must not wait for those who take the place
	}
	// Of a large cache this takes a while, in which others are to be routed.
	f.index.RemoveWorker(id)
	f.strays.removeWorker(id)
}

// hears says whether the index learns from a worker's own events what it caches.
func (r *Router) hears(card *engine.Card) bool {
	return !r.tuning.IgnoreEvents && card.Features.Has(engine.FeatureEvents) && hashed(card)
}

// mostBlocks is how many blocks a rank may tell of. Lower tiers hold some times
// what the device does; beyond that, removals have got lost.
func mostBlocks(card *engine.Card) int {
	if card.TotalBlocks == 0 {
		return mostUntold
	}
	return max(fewestBlocks, 16*blocksTold(card))
}

const (
	mostUntold   = 1 << 24
	fewestBlocks = 1 << 12
)

// convincing is how many blocks a rank must have told of before room is made for
// all that its card says it has. By then little has been moved to make room, and
// a card that is wrong takes no more than eight times what it has shown.
func convincing(card *engine.Card) int { return blocksTold(card) / 8 }

// blocksTold is how many blocks a rank has by its card, 0 if that does not tell.
func blocksTold(card *engine.Card) int { return int(min(card.TotalBlocks, 1<<30)) }

// intake keeps out the events of ranks that tell of more than they can hold, so
// that one that only ever stores does not take the memory of all others. It
// shuts for a while, longer each time, and then everything is told anew.
type intake struct {
	log                               *slog.Logger
	unknown, unheard, muted, overfull atomic.Uint64

	mu   sync.Mutex
	full map[kv.Target]*fullness
	any  atomic.Bool // was full
}

type fullness struct {
	until    time.Time // zero while the gate is open
	last     time.Time // when it was shut
	patience time.Duration
}

// gateway is what becomes of events.
type gateway uint8

const (
	open gateway = iota
	opening
	shut
)

func (i *intake) gate(t kv.Target, now time.Time) gateway {
	if !i.any.Load() {
		return open
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	f := i.full[t]
	switch {
	case f == nil, f.until.IsZero():
		return open
	case now.Before(f.until):
		return shut
	}
	f.until = time.Time{}
	return opening
}

func (i *intake) close(t kv.Target, held, most int, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f := i.full[t]
	if f == nil {
		f = &fullness{}
		i.full[t] = f
	}
	f.patience = longer(f.patience, now.Sub(f.last))
	f.last, f.until = now, now.Add(f.patience)
	i.overfull.Add(1)
	i.any.Store(true)
	i.log.Warn("a worker tells of more KV blocks than it can hold; what it told is forgotten, and told anew after a while",
		"target", t.String(), "blocks", held, "most", most, "wait", f.patience)
}

func (i *intake) removeWorker(id uint64) {
	if !i.any.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for t := range i.full {
		if t.Worker == id {
			delete(i.full, t)
		}
	}
	i.any.Store(len(i.full) > 0)
}

// IntakeCounts tells which batches of KV events did not reach the index.
type IntakeCounts struct {
	Unknown  uint64 // of workers that are not there
	Unheard  uint64 // of workers to whose events the index does not listen
	Overfull uint64 // that told of more than their rank can hold
	Muted    uint64 // of ranks that had done so
}

// Intake returns what did not reach the index so far.
func (r *Router) Intake() IntakeCounts {
	i := &r.intake
	return IntakeCounts{Unknown: i.unknown.Load(), Unheard: i.unheard.Load(), Overfull: i.overfull.Load(), Muted: i.muted.Load()}
}
