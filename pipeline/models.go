package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/prompt"
)

// models holds what was loaded, by the files it was loaded from.
type models struct {
	load func(card *engine.Card) (*prompt.Model, error)

	mu     sync.Mutex
	loaded map[string]func() (*prompt.Model, error)
	// byCard spares the fingerprint of cards that were seen before.
	byCard map[*engine.Card]func() (*prompt.Model, error)
}

// maxCards bounds byCard. Cards that have been replaced stay in it until it is
// cleared.
const maxCards = 1024

// get loads a model, or returns what an earlier call has loaded. Concurrent
// calls wait for one load; a failure is kept as well, until the card changes.
func (m *models) get(card *engine.Card) (*prompt.Model, error) {
	m.mu.Lock()
	once, ok := m.byCard[card]
	if !ok {
		once = m.find(card)
	}
	m.mu.Unlock()
	return once()
}

// find looks a card up by what it says. The lock is held.
func (m *models) find(card *engine.Card) func() (*prompt.Model, error) {
	key := fingerprint(card)
	once, ok := m.loaded[key]
	if !ok {
		once = sync.OnceValues(func() (*prompt.Model, error) { return m.load(card) })
		if m.loaded == nil {
			m.loaded = make(map[string]func() (*prompt.Model, error))
		}
		m.loaded[key] = once
	}
	if m.byCard == nil || len(m.byCard) >= maxCards {
		m.byCard = make(map[*engine.Card]func() (*prompt.Model, error))
	}
	m.byCard[card] = once
	return once
}

// fingerprint names everything that a loaded model depends on.
func fingerprint(card *engine.Card) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %d %v", card.Model, card.ContextLength, card.EOS)
	for _, f := range card.Files {
		fmt.Fprintf(&b, " %q %q %q", f.Kind, f.URI, f.SHA256)
	}
	return b.String()
}

// model returns what the prompt stage knows about a model, and its primary
// name.
func (p *Pipeline) model(name string) (*prompt.Model, string, error) {
	known := ""
	for _, w := range p.Fleet.Snapshot() {
		card := w.Status().Card
		if card == nil || card.Model != name && !slices.Contains(card.Aliases, name) {
			continue
		}
		known = card.Model
		if !w.Ready() {
			continue
		}
		m, err := p.models.get(card)
		if err != nil {
			return nil, "", &engine.Error{Kind: engine.Internal, Op: "load model " + card.Model, Worker: w.ID(), Err: err}
		}
		return m, card.Model, nil
	}
	if known == "" {
		return nil, "", &engine.Error{Kind: engine.NotFound, Message: fmt.Sprintf("The model `%s` does not exist", name), Param: "model", Code: "model_not_found"}
	}
	return nil, "", &engine.Error{Kind: engine.Unavailable, Param: "model", Message: fmt.Sprintf("Model `%s` is not ready to serve requests yet. The deployment may still be starting up or is not fully provisioned. Please retry shortly.", name)}
}

// Preload loads the models of all workers that are known, so that the first
// request does not pay for it.
func (p *Pipeline) Preload() error {
	for _, w := range p.Fleet.Snapshot() {
		card := w.Status().Card
		if card == nil {
			continue
		}
		if _, err := p.models.get(card); err != nil {
			return fmt.Errorf("load model %s: %w", card.Model, err)
		}
	}
	return nil
}

// Models lists the models of the fleet in the order of their names.
func (p *Pipeline) Models() []ModelInfo {
	byName := map[string]*ModelInfo{}
	for _, w := range p.Fleet.Snapshot() {
		status := w.Status()
		card := status.Card
		if card == nil {
			continue
		}
		m := byName[card.Model]
		if m == nil {
			m = &ModelInfo{ID: card.Model, Reason: "no worker is ready"}
			byName[card.Model] = m
		}
		for _, alias := range card.Aliases {
			if !slices.Contains(m.Aliases, alias) {
				m.Aliases = append(m.Aliases, alias)
			}
		}
		m.ContextLength = cmp.Or(m.ContextLength, int(card.ContextLength))
		m.BlockSize = cmp.Or(m.BlockSize, int(card.BlockSize))
		m.TotalBlocks = cmp.Or(m.TotalBlocks, int(card.TotalBlocks))
		m.MaxSeqs = cmp.Or(m.MaxSeqs, int(card.MaxSeqs))
		m.MaxBatchedTokens = cmp.Or(m.MaxBatchedTokens, int(card.MaxBatchedTokens))
		if w.Ready() {
			m.Ready, m.Reason = true, ""
			m.Workers++
		} else if !m.Ready && status.Reason != "" {
			m.Reason = status.Reason
		}
	}
	list := make([]ModelInfo, 0, len(byName))
	for _, m := range byName {
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b ModelInfo) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// Workers tells who serves, in the order of their ids, and what the router has
// booked there.
func (p *Pipeline) Workers() []WorkerInfo {
	loads := p.Router.Loads()
	present := make(map[kv.Target]bool, len(loads))
	for _, l := range loads {
		present[l.Target] = true
	}
	p.seen.keep(present)
	var list []WorkerInfo
	for _, w := range p.Fleet.Snapshot() {
		info := WorkerInfo{ID: w.ID(), Name: w.Name(), State: w.Status().State.String()}
		if card := w.Card(); card != nil {
			info.Model = card.Model
		}
		if w.Admitted() && !w.Ready() {
			info.State = "inhibited"
		}
		for _, l := range loads {
			if l.Target.Worker == w.ID() {
				seen := p.seen.of(l.Target)
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

func seconds(ns *atomic.Int64) float64 { return time.Duration(ns.Load()).Seconds() }

// Tokenize returns the ids of a request's prompt, and the model's context
// length. Without generation prompt a conversation ends with its last turn.
func (p *Pipeline) Tokenize(r *chat.Request, generationPrompt bool) ([]uint32, int, error) {
	m, _, err := p.model(r.Model)
	if err != nil {
		return nil, 0, err
	}
	ids, err := m.Tokens(r, generationPrompt)
	return ids, m.ContextLength, err
}

// Detokenize returns the text of ids, special tokens included.
func (p *Pipeline) Detokenize(model string, ids []uint32) (string, error) {
	m, _, err := p.model(model)
	if err != nil {
		return "", err
	}
	return m.Text(ids)
}

// pinned returns the worker that the client has fixed, or nil.
func pinned(r *Request) *nvext.WorkerID {
	if r.Ext == nil {
		return nil
	}
	if r.Ext.DecodeWorkerID != nil {
		return r.Ext.DecodeWorkerID
	}
	return r.Ext.BackendInstanceID
}
