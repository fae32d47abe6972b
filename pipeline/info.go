package pipeline

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kvindex"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

// ModelInfo is what the edge may tell about one model.
type ModelInfo struct {
	ID            string // primary name
	Aliases       []string
	Adapters      []string // LoRA adapters that ready workers serve
	ContextLength int      // tokens; 0: unknown
	Ready         bool     // some worker can serve it now
	Reason        string   // why not, for people; empty if ready
	Workers       int      // workers that are ready
	// Roles are those that workers play who are ready, and Missing those that
	// somebody would have to play besides.
	Roles   map[engine.Role]RoleInfo
	Missing []engine.Role
	// Card is that of one of its workers, of a ready one if there is any; nil if all
	// are refused. It says in which forms the model takes requests, and must not be
	// changed.
	Card *engine.Card
	// Of the first worker that told them; 0: unknown.
	BlockSize, TotalBlocks, MaxSeqs, MaxBatchedTokens int
	// What is remembered of prompts, of answers and of tools; nil where nothing is,
	// or the model was not asked yet. What several models share, the first of them
	// tells, so that sums are right.
	Cache *prompt.CacheStats
	Turns *prompt.TurnStats
	Tools *chattemplate.ToolCache
}

// RoleInfo is what the edge may tell about the workers of one role.
type RoleInfo struct {
	Workers int
	Needs   []engine.Role // that must be played, too
}

// WorkerInfo is what the edge may tell about one worker.
type WorkerInfo struct {
	ID   uint64
	Name string // its address, or "mock-0"
	// Engine is what it runs, for people; "" until it tells.
	Engine string
	Model  string
	Role   engine.Role
	State  string // what [fleet.Worker.State] says
	// Reason is why it is not ready, for operators; "" if nobody has told.
	Reason string
	Ranks  []RankInfo
	// Refused is the field in which its card differs from those of who serves its
	// model; "" if it is not refused.
	Refused  string
	Restarts uint64 // lives that began after another one
	// Events is what came of what the worker told of its caches.
	Events fleet.EventCounts
}

// CacheInfo is what is known of the fleet's caches.
type CacheInfo struct {
	Index  kvindex.Stats
	Intake router.IntakeCounts
	Views  []router.CacheView // of each rank that has answered
	// SharedErrors counts prompts for which the shared cache had no answer.
	SharedErrors uint64
}

// RankInfo is the router's own book-keeping of one rank.
type RankInfo struct {
	Rank              uint32
	Requests          int
	DecodeBlocks      int
	PrefillTokens     int
	LastTTFT, LastITL float64 // seconds; 0: none yet
	LastInputTokens   int
	CachedBlocks      int // blocks the index holds for it
}

// Card returns the card of a model by its primary name, of a ready worker if there is
// one; nil if nobody has told of the model. It must not be changed. The order of the
// checks of a call rests on it, so it costs no more than a look at each worker.
func (p *Pipeline) Card(name string) *engine.Card {
	var found *engine.Card
	for _, w := range p.Fleet.Snapshot() {
		card := w.Card()
		if card == nil || card.Model != name || w.Refusal() != nil {
			continue
		}
		if w.Ready() {
			return card
		}
		if found == nil {
			found = card
		}
	}
	return found
}

// Models lists the models of the fleet in the order of their names.
func (p *Pipeline) Models() []ModelInfo {
	byName := map[string]*ModelInfo{}
	loaded := map[string]*prompt.Model{}
	for _, w := range p.Fleet.Snapshot() {
		status := w.Status()
		card := status.Card
		if card == nil {
			continue
		}
		m := byName[card.Model]
		if m == nil {
			m = &ModelInfo{ID: card.Model, Reason: "no worker is ready", Roles: map[engine.Role]RoleInfo{}}
			byName[card.Model] = m
		}
		if w.Refusal() != nil {
			continue // it is another model by the same name
		}
		if m.Card == nil || w.Ready() && m.Workers == 0 {
			m.Card = card
		}
		for _, alias := range card.Aliases {
			if !slices.Contains(m.Aliases, alias) {
				m.Aliases = append(m.Aliases, alias)
			}
		}
		m.ContextLength = max(m.ContextLength, int(card.ContextLength))
		m.BlockSize = cmp.Or(m.BlockSize, int(card.BlockSize))
		m.TotalBlocks = cmp.Or(m.TotalBlocks, int(card.TotalBlocks))
		m.MaxSeqs = cmp.Or(m.MaxSeqs, int(card.MaxSeqs))
		m.MaxBatchedTokens = cmp.Or(m.MaxBatchedTokens, int(card.MaxBatchedTokens))
		if loaded[card.Model] == nil {
			loaded[card.Model] = p.models.loaded(card)
		}
		if w.Ready() {
			m.Workers++
			m.Roles[card.Role] = RoleInfo{m.Roles[card.Role].Workers + 1, card.Needs}
			for _, adapter := range card.Adapters {
				if !slices.Contains(m.Adapters, adapter) {
					m.Adapters = append(m.Adapters, adapter)
				}
			}
		} else if status.Reason != "" {
			m.Reason = status.Reason
		}
	}
	list := make([]ModelInfo, 0, len(byName))
	for _, m := range byName {
		m.gate()
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b ModelInfo) int { return strings.Compare(a.ID, b.ID) })
	told := map[any]bool{}
	for i := range list {
		if m := loaded[list[i].ID]; m != nil {
			list[i].remember(m, told)
		}
	}
	return list
}

// gate finds out whether somebody can answer: who does whole requests, or decodes,
// and has whom it needs beside it.
func (info *ModelInfo) gate() {
	missing := map[engine.Role]bool{}
	for _, role := range []engine.Role{engine.Aggregated, engine.Decode} {
		r, played := info.Roles[role]
		met := played
		for _, need := range r.Needs {
			if _, ok := info.Roles[need]; !ok {
				met, missing[need] = false, true
			}
		}
		info.Ready = info.Ready || met
	}
	switch {
	case info.Ready:
		info.Reason = ""
		return
	case info.Workers == 0:
		return
	case len(missing) == 0:
		missing[engine.Decode] = true
	}
	info.Missing = slices.Sorted(maps.Keys(missing))
	names := make([]string, len(info.Missing))
	for i, role := range info.Missing {
		names[i] = string(role)
	}
	info.Reason = "missing worker types: " + strings.Join(names, ", ")
}

// remember sets what the caches of a model hold that were not told yet.
func (info *ModelInfo) remember(m *prompt.Model, told map[any]bool) {
	if m.Cache != nil && !told[m.Cache] {
		s := m.Cache.Stats()
		told[m.Cache], info.Cache = true, &s
	}
	if m.Turns != nil && !told[m.Turns] {
		s := m.Turns.Stats()
		told[m.Turns], info.Turns = true, &s
	}
	if m.Template != nil && !told[m.Template] {
		s := m.Template.ToolCache()
		told[m.Template], info.Tools = true, &s
	}
}

// Workers tells who serves, in the order of their ids, and what the router has
// booked there.
func (p *Pipeline) Workers() []WorkerInfo {
	loads := p.Router.Loads()
	var list []WorkerInfo
	for _, w := range p.Fleet.Snapshot() {
		status := w.Status()
		info := WorkerInfo{ID: w.ID(), Name: w.Name(), State: w.State(), Restarts: w.Restarts(), Events: w.EventCounts()}
		if !w.Admitted() {
			info.Reason = status.Reason
		}
		if card := w.Card(); card != nil {
			info.Engine, info.Model, info.Role = card.Engine, card.Model, card.Role
		}
		if r := w.Refusal(); r != nil {
			info.Refused = r.Field
		}
		for _, l := range loads {
			if l.Target.Worker == w.ID() {
				seen := p.seen.last(l.Target)
				info.Ranks = append(info.Ranks, RankInfo{
					Rank: l.Target.Rank, Requests: l.Requests, DecodeBlocks: l.ActiveBlocks,
					PrefillTokens: l.PrefillTokens, CachedBlocks: l.CachedBlocks,
					LastTTFT: seconds(&seen.ttft), LastITL: seconds(&seen.itl),
					LastInputTokens: int(seen.input.Load()),
				})
			}
		}
		list = append(list, info)
	}
	return list
}

// Caches tells what is known of the fleet's caches.
func (p *Pipeline) Caches() CacheInfo {
	return CacheInfo{
		Index: p.Router.IndexStats(), Intake: p.Router.Intake(), Views: p.Router.CacheViews(),
		SharedErrors: p.Router.Counters().SharedErrors,
	}
}

func seconds(ns *atomic.Int64) float64 { return time.Duration(ns.Load()).Seconds() }
