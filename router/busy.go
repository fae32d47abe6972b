package router

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// Thresholds say how much a rank may have to do before it counts as busy; each
// that is nil is no limit. A worker whose ranks are all busy is sent nothing more.
type Thresholds struct {
	// ActiveDecodeBlocks bounds the blocks in use, by our books and by what the
	// engine tells, as a part of all blocks, 0..1.
	ActiveDecodeBlocks *float64
	// ActivePrefillTokens bounds the prompts that are not yet computed, and
	// ActivePrefillTokensFrac does so in multiples of what the engine computes in
	// one pass.
	ActivePrefillTokens     *uint64
	ActivePrefillTokensFrac *float64
}

// Names of thresholds.
const (
	ThresholdDecodeBlocks      = "active_decode_blocks_threshold"
	ThresholdPrefillTokens     = "active_prefill_tokens_threshold"
	ThresholdPrefillTokensFrac = "active_prefill_tokens_threshold_frac"
)

// Validate returns an error of kind invalid_argument that names the threshold at
// fault.
func (t Thresholds) Validate() error {
	if f := t.ActiveDecodeBlocks; f != nil && !(*f >= 0 && *f <= 1) {
		return &engine.Error{
			Kind: engine.InvalidArgument, Param: ThresholdDecodeBlocks,
			Message: fmt.Sprintf("%s must be between 0.0 and 1.0, got %v", ThresholdDecodeBlocks, *f),
		}
	}
	if f := t.ActivePrefillTokensFrac; f != nil && !(*f >= 0 && *f <= math.MaxFloat64) {
		return &engine.Error{
			Kind: engine.InvalidArgument, Param: ThresholdPrefillTokensFrac,
			Message: fmt.Sprintf("%s must be a finite value greater than or equal to 0.0, got %v", ThresholdPrefillTokensFrac, *f),
		}
	}
	return nil
}

// none says that there is no limit.
func (t Thresholds) none() bool { return t == Thresholds{} }

// with returns t with those of u that are set, and without those named.
func (t Thresholds) with(u Thresholds, without []string) (Thresholds, error) {
	if u.ActiveDecodeBlocks != nil {
		t.ActiveDecodeBlocks = u.ActiveDecodeBlocks
	}
	if u.ActivePrefillTokens != nil {
		t.ActivePrefillTokens = u.ActivePrefillTokens
	}
	if u.ActivePrefillTokensFrac != nil {
		t.ActivePrefillTokensFrac = u.ActivePrefillTokensFrac
	}
	for _, name := range without {
		switch name {
		case ThresholdDecodeBlocks:
			t.ActiveDecodeBlocks = nil
		case ThresholdPrefillTokens:
			t.ActivePrefillTokens = nil
		case ThresholdPrefillTokensFrac:
			t.ActivePrefillTokensFrac = nil
		default:
			return t, &engine.Error{
				Kind: engine.InvalidArgument, Param: "unset",
				Message: fmt.Sprintf("there is no threshold %q: want %s, %s or %s", name, ThresholdDecodeBlocks, ThresholdPrefillTokens, ThresholdPrefillTokensFrac),
			}
		}
	}
	return t, t.Validate()
}

// unknownCapacity stands for what an engine computes in one pass if it does not
// say.
const unknownCapacity = 10_000_000

// strain is what one rank has to do. What was never told is [engine.Unknown].
type strain struct {
	prefillTokens int64
	decodeBlocks  int64  // in use by our books
	usedBlocks    int64  // in use as the engine tells
	totalBlocks   int64  // 0: unknown
	perPass       uint64 // tokens; 0: unknown
}

// rankState is what is remembered of a rank: that its blocks were beyond the
// threshold, and have not been below it since.
type rankState struct{ latched bool }

// busy says whether a rank is busy, now that it has so much to do.
func (r *rankState) busy(t *Thresholds, s strain) bool {
	if limit := t.ActivePrefillTokens; limit != nil && s.prefillTokens > 0 && uint64(s.prefillTokens) > *limit {
		return true
	}
	if f := t.ActivePrefillTokensFrac; f != nil {
		perPass := float64(unknownCapacity)
		if s.perPass > 0 {
			perPass = float64(s.perPass)
		}
		if float64(s.prefillTokens) > math.Floor(*f*perPass) {
			return true
		}
	}
	if t.ActiveDecodeBlocks == nil || s.totalBlocks <= 0 {
		r.latched = false
		return false
	}
	limit := *t.ActiveDecodeBlocks * float64(s.totalBlocks)
	switch decode, used := float64(s.decodeBlocks), float64(s.usedBlocks); {
	case decode > limit || used > limit:
		r.latched = true
	case (decode < limit || s.decodeBlocks < 0) && (used < limit || s.usedBlocks < 0):
		r.latched = false
	}
	return r.latched
}

// monitor knows which workers are busy. The router's lock guards it.
type monitor struct {
	every  Thresholds            // of models without thresholds of their own
	models map[string]Thresholds // by primary name
	ranks  map[kv.Target]*rankLife
}

// rankLife is the state of a rank in one life of its worker.
type rankLife struct {
	rankState
	life context.Context
}

func newMonitor(every Thresholds) *monitor {
	return &monitor{every: every, models: make(map[string]Thresholds), ranks: make(map[kv.Target]*rankLife)}
}

// of returns the thresholds of a model.
func (m *monitor) of(model string) Thresholds {
	if t, ok := m.models[model]; ok {
		return t
	}
	return m.every
}

// idle says that no model has thresholds.
func (m *monitor) idle() bool {
	if !m.every.none() {
		return false
	}
	for _, t := range m.models {
		if !t.none() {
			return false
		}
	}
	return true
}

// busy says whether all ranks of a worker are, given what each has to do.
func (m *monitor) busy(id uint64, card *engine.Card, life context.Context, strain func(kv.Target) strain) bool {
	t := m.of(card.Model)
	if t.none() {
		return false
	}
	all := true
	for i := range card.Ranks() {
		target := kv.Target{Worker: id, Rank: card.DPStart + i}
		r := m.ranks[target]
		if r == nil || r.life != life {
			r = &rankLife{life: life}
			m.ranks[target] = r
		}
		// Each has to be looked at, since each remembers.
		if !r.busy(&t, strain(target)) {
			all = false
		}
	}
	return all
}

// forget drops what is remembered of ranks whose life is over.
func (m *monitor) forget() {
	for t, r := range m.ranks {
		if r.life.Err() != nil {
			delete(m.ranks, t)
		}
	}
}

// busy returns those of the workers that are beyond the thresholds of their model
// on all of their ranks. Our own books count, and what the engine tells. The lock
// must be held.
func (r *Router) busy(workers []*fleet.Worker) map[uint64]bool {
	busy := make(map[uint64]bool)
	for _, w := range workers {
		if card, life := w.Card(), w.Lost(); card != nil && life.Err() == nil {
			busy[w.ID()] = r.monitor.busy(w.ID(), card, life, r.strains(w, card, life))
		}
	}
	return busy
}

// strains returns what each rank of a worker has to do. The lock must be held.
func (r *Router) strains(w *fleet.Worker, card *engine.Card, life context.Context) func(kv.Target) strain {
	told, _ := w.Load()
	now := r.now()
	return func(t kv.Target) strain {
		s := strain{
			decodeBlocks: engine.Unknown, usedBlocks: engine.Unknown,
			totalBlocks: int64(min(card.TotalBlocks, math.MaxInt64)), perPass: card.MaxBatchedTokens,
		}
		if l := r.books.find(t); l != nil && l.life == life {
			s.prefillTokens = int64(l.activePrefill(now))
			s.decodeBlocks = int64(l.activeBlocks())
		}
		if i := slices.IndexFunc(told.Ranks, func(l engine.RankLoad) bool { return l.Rank == t.Rank }); i >= 0 {
			s.usedBlocks = told.Ranks[i].UsedBlocks
			if s.totalBlocks == 0 {
				s.totalBlocks = told.Ranks[i].TotalBlocks
			}
		}
		return s
	}
}

// Thresholds returns the thresholds that hold for a model, by primary name or
// alias. Those of an unknown model are none.
func (r *Router) Thresholds(model string) Thresholds {
	primary := r.primary(model)
	r.mu.Lock()
	defer r.mu.Unlock()
	if primary == "" {
		return Thresholds{}
	}
	return r.monitor.of(primary)
}

// SetThresholds sets those thresholds of a model that are not nil, takes away
// those that are named in unset, and returns what holds from now on. Errors are of
// kind not_found for a model that no worker serves, and invalid_argument.
func (r *Router) SetThresholds(model string, t Thresholds, unset ...string) (Thresholds, error) {
	primary := r.primary(model)
	r.mu.Lock()
	defer r.mu.Unlock()
	after, err := r.monitor.of(primary).with(t, unset)
	if err != nil {
		return Thresholds{}, err
	}
	if primary == "" {
		return Thresholds{}, &engine.Error{
			Kind: engine.NotFound, Param: "model", Code: "model_not_found",
			Message: fmt.Sprintf("Model '%s' not found. Thresholds can only be set for discovered models.", model),
		}
	}
	r.monitor.models[primary] = after
	r.watchful.Store(!r.monitor.idle())
	return after, nil
}

// ModelThresholds are the thresholds of one model.
type ModelThresholds struct {
	Model string // primary name
	Thresholds
}

// AllThresholds returns the thresholds of every model that has some, or had some
// set, in the order of their names.
func (r *Router) AllThresholds() []ModelThresholds {
	names := make(map[string]bool)
	for _, w := range r.fleet.Snapshot() {
		if card := w.Card(); card != nil {
			names[card.Model] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []ModelThresholds
	for name, t := range r.monitor.models {
		list = append(list, ModelThresholds{name, t})
	}
	for name := range names {
		if _, own := r.monitor.models[name]; !own && !r.monitor.every.none() {
			list = append(list, ModelThresholds{name, r.monitor.every})
		}
	}
	slices.SortFunc(list, func(a, b ModelThresholds) int { return cmp.Compare(a.Model, b.Model) })
	return list
}

// primary returns the primary name of a model that goes by this one, or "" if
// nobody serves it.
func (r *Router) primary(model string) (name string) {
	for _, w := range r.fleet.Snapshot() {
		card := w.Card()
		switch {
		case card == nil:
		case card.Model == model:
			return model
		case name == "" && slices.Contains(card.Aliases, model):
			name = card.Model
		}
	}
	return name
}
