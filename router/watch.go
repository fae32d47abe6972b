package router

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// watch compares what the index says of caches with what answers show of them.
//
// Time lies between the two: blocks are evicted while a request waits, and
// others come; and both are told a little late. So a few requests of each target
// are witnesses. The index is asked again for them whenever the target tells of
// something, until they are judged some time after the answer: only what no
// removal explains, and no store, counts as wrong.
type watch struct {
	index *kvindex.Index
	log   *slog.Logger

	mu      sync.Mutex
	views   map[kv.Target]*view
	found   kvindex.Matches
	open    atomic.Int32 // witnesses, of all targets
	doubted atomic.Int32 // targets
	quiet   atomic.Int32 // targets that have told nothing since a prompt
}

// view is what was seen of one target.
type view struct {
	trust
	silence
	witnesses []*witness
	counts    CacheView
}

// witness is a request whose answer will show what was cached.
type witness struct {
	target kv.Target
	local  []kv.LocalHash // all blocks of the prompt
	// low is the least that the device was said to have since the decision, high
	// the most that may be found there, in blocks.
	low, high int
	// answered is when the answer came, zero before; found is what it told, in
	// blocks, of as many as could have been.
	answered      time.Time
	found, atMost int
}

const (
	// mostWitnesses is how many a target has at a time. More would tell little
	// more, and each costs a look-up for every removal.
	mostWitnesses = 4
	// late is how long after an answer its worker may still tell of what happened
	// before it: engines that are polled are asked a few times a second.
	late = time.Second
)

// CacheView says how well the index knows one target. The counters start with
// the router.
type CacheView struct {
	Target kv.Target
	// Doubted says that the index is not believed now, and Drift is the share of
	// blocks about which it and the latest answers disagree, 0..1.
	Doubted bool
	Drift   float64
	// Answers told how many tokens were cached, Predicted is what the router had
	// expected of them and Reported what they told, in tokens.
	Answers, Predicted, Reported uint64
	// Witnesses are the answers that were judged. Missing blocks should have been
	// cached and were not; Surprising ones were and should not have been.
	Witnesses, Missing, Surprising uint64
	// Silent says that the target has served prompts for a minute and has told of
	// nothing: its events come from elsewhere, or get lost.
	Silent bool
	// Doubts is how often belief ended, Resyncs how often the index was rebuilt.
	Doubts, Resyncs uint64
}

func newWatch(x *kvindex.Index, log *slog.Logger) *watch {
	return &watch{index: x, log: log, views: map[kv.Target]*view{}}
}

// believes says whether the index is to be believed about a target, and claims
// whether at least what it says to be there is.
func (w *watch) believes(t kv.Target) (believed, claims bool) {
	if w.doubted.Load() == 0 {
		return true, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.views[t]
	return v == nil || v.believed(), v == nil || v.truthful()
}

// witness makes a request that goes to t a witness, if one is wanted. The index
// said that the device has so many leading blocks of the prompt, with lower
// tiers at most high.
func (w *watch) witness(t kv.Target, local []kv.LocalHash, device, high int) *witness {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.view(t)
	if len(v.witnesses) == mostWitnesses {
		return nil
	}
	k := &witness{target: t, local: slices.Clone(local), low: device, high: high}
	v.witnesses = append(v.witnesses, k)
	w.open.Add(1)
	w.ask(k) // what was removed since the decision
	return k
}

// told says that a target has told of changes, and whether it may have fewer
// blocks than before.
func (w *watch) told(t kv.Target, fewer bool) {
	if w.open.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.views[t]; v != nil {
		for _, k := range v.witnesses {
			if fewer {
				w.ask(k)
			}
			w.excuse(k)
		}
	}
}

// ask looks up how much of what a witness was said to have the device still has.
func (w *watch) ask(k *witness) {
	if k.low > 0 {
		k.low = min(k.low, w.held(k.target, k.local[:k.low]))
	}
}

// excuse asks the index again about a witness that has found more than it may:
// it may have been told meanwhile.
func (w *watch) excuse(k *witness) {
	if k.found > k.high {
		k.high = max(k.high, w.held(k.target, k.local))
	}
}

// held returns how many leading blocks the device of a target is said to have.
func (w *watch) held(t kv.Target, local []kv.LocalHash) int {
	w.index.Match(local, &w.found)
	i, ok := slices.BinarySearchFunc(w.found.Found, t, func(m kvindex.Match, t kv.Target) int { return m.Target.Compare(t) })
	if !ok {
		return 0
	}
	return int(w.found.Found[i].Blocks[kv.TierDevice])
}

// close ends a witness that has told nothing.
func (w *watch) close(k *witness) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(k)
}

func (w *watch) drop(k *witness) {
	if v := w.views[k.target]; v != nil {
		if i := slices.Index(v.witnesses, k); i >= 0 {
			v.witnesses = slices.Delete(v.witnesses, i, i+1)
			w.open.Add(-1)
		}
	}
}

// answer is what an answer shows of the cache that it ran on.
type answer struct {
	prompt, predicted, reported int // tokens
	blockSize                   int
}

// verdict is what follows from the witnesses of a target.
type verdict struct {
	judgement
	// news are beginnings of prompts that answers have shown to be cached, of
	// which the index does not know all.
	news [][]kv.LocalHash
}

// tell notes an answer of a worker in a life of it, which k, if not nil, has been
// waiting for, and judges those that have waited long enough.
func (w *watch) tell(t kv.Target, life context.Context, a answer, k *witness, now time.Time) verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	if life.Err() != nil {
		return verdict{} // forgotten, once and for all
	}
	v := w.view(t)
	v.counts.Answers++
	v.counts.Predicted += uint64(a.predicted)
	v.counts.Reported += uint64(a.reported)
	if k != nil {
		// The last token of a prompt is always computed, and its block with it.
		k.answered, k.found, k.atMost = now, a.reported/a.blockSize, (a.prompt-1)/a.blockSize
		w.excuse(k)
	}
	var out verdict
	for _, k := range slices.Clone(v.witnesses) {
		if k.answered.IsZero() || now.Sub(k.answered) < late {
			continue
		}
		w.drop(k)
		j, surprising := w.judge(v, k, now)
		if surprising {
			out.news = append(out.news, k.local[:min(k.found, len(k.local))])
		}
		if j != asBefore {
			out.judgement = j
		}
	}
	return out
}

// judge compares what a witness found with what the index says, and says whether
// it found more.
func (w *watch) judge(v *view, k *witness, now time.Time) (j judgement, surprising bool) {
	low := min(k.low, k.atMost)
	missing, more := max(0, low-k.found), max(0, k.found-k.high)
	// Engines differ by a block in what they call cached.
	if missing+more == 1 {
		missing, more = 0, 0
	}
	v.counts.Witnesses++
	v.counts.Missing += uint64(missing)
	v.counts.Surprising += uint64(more)
	j = v.answer(missing, more, max(low, k.found), now)
	log := w.log.With("target", k.target.String(), "expected", low, "found", k.found, "missing", missing, "surprising", more)
	switch j {
	case doubt:
		v.counts.Doubts++
		v.counts.Resyncs++
		w.doubted.Add(1)
		log.Warn("the index contradicts what answers show to be cached; until it is right again, what is routed to the worker counts")
	case again:
		v.counts.Resyncs++
		log.Warn("the index of a worker is still wrong; it is rebuilt again")
	case believe:
		w.doubted.Add(-1)
		w.log.Info("the index of a worker is right again", "target", k.target.String())
	case asBefore:
		if missing+more > 0 {
			log.Debug("the index and an answer disagree", "drift", v.drift)
		}
	}
	return j, more > 0
}

// all returns what is known of every target, in order.
func (w *watch) all() []CacheView {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]CacheView, 0, len(w.views))
	for t, v := range w.views {
		c := v.counts
		c.Target, c.Doubted, c.Drift, c.Silent = t, !v.believed(), v.drift, v.alarmed
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b CacheView) int { return a.Target.Compare(b.Target) })
	return list
}

// removeWorker forgets a worker.
func (w *watch) removeWorker(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t, v := range w.views {
		if t.Worker != id {
			continue
		}
		w.open.Add(-int32(len(v.witnesses)))
		if !v.believed() {
			w.doubted.Add(-1)
		}
		if v.prompts > 0 {
			w.quiet.Add(-1)
		}
		delete(w.views, t)
	}
}

func (w *watch) view(t kv.Target) *view {
	v := w.views[t]
	if v == nil {
		v = &view{}
		w.views[t] = v
	}
	return v
}
