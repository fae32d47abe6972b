package router

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// wipings are workers that are being told to empty their caches.
//
// Whoever tells them learns from the answer that it is done, and the index from the
// events of those workers that tell of it. Only the events are in order with what is
// stored before and after. So where they have said it by the time of the answer,
// nothing is left to do: what they have told since is there. Where they have not, all
// that was told until now is void; should they say it later, they do so before they
// tell of anything new.
type wipings struct {
	any atomic.Int32

	mu   sync.Mutex
	open map[*wiping]struct{}
}

type wiping struct {
	worker uint64
	told   map[uint32]bool // ranks that have said it themselves
}

// hear notes whether a rank says that nothing is left of what it has told before. It
// is asked before the batch is applied, which waits if that is being forgotten.
func (w *wipings) hear(t kv.Target, b *kv.Batch) {
	if w.any.Load() == 0 || b.Gap == "" && !slices.ContainsFunc(b.Events, func(e kv.Event) bool { return e.Kind == kv.Cleared }) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := range w.open {
		if x.worker == t.Worker {
			x.told[t.Rank] = true
		}
	}
}

func (w *wipings) begin(worker uint64) *wiping {
	x := &wiping{worker, map[uint32]bool{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[*wiping]struct{}{}
	}
	w.open[x] = struct{}{}
	w.any.Add(1)
	return x
}

func (w *wipings) end(x *wiping) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.open[x]; ok {
		delete(w.open, x)
		w.any.Add(-1)
	}
}

// Wiping is to be called before a worker is told to empty its caches. What it returns
// is to be called, once, with the answer: whether the worker did. From then on nothing
// counts as cached there that was before, be it told by the worker or concluded from
// what was routed there; what it has told since counts.
func (r *Router) Wiping(worker uint64) (done func(wiped bool)) {
	x := r.wipings.begin(worker)
	return func(wiped bool) {
		defer r.wipings.end(x)
		w := r.fleet.Worker(worker)
		if !wiped || w == nil {
			return
		}
		if card := w.Card(); card != nil {
			feed{r}.wiped(x, card)
		}
	}
}

// wiped forgets the ranks of a worker whose events have not said yet that their caches
// are empty.
func (f feed) wiped(x *wiping, card *engine.Card) {
	heard := f.hears(card)
	f.wipings.mu.Lock()
	defer f.wipings.mu.Unlock()
	for i := range card.Ranks() {
		t := kv.Target{Worker: x.worker, Rank: card.DPStart + i}
		if x.told[t.Rank] {
			continue
		}
		f.removeTarget(t)
		f.watch.told(t, true)
		f.forgetRouted(t, heard)
	}
}

// forgetRouted forgets what was concluded from what was routed to a rank. Of one that
// is heard, and has not said that it begins anew, something may be lacking: what it has
// told between that and now.
func (f feed) forgetRouted(t kv.Target, heard bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routed.RemoveTarget(t)
	f.ahead.removeTarget(t)
	f.instead.Load().removeTarget(t)
	if heard {
		f.lack(t, f.now())
	}
}
