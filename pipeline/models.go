package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/prompt"
)

// models holds what was loaded, by the files it was loaded from: no more than
// the workers of the fleet need.
type models struct {
	fleet *fleet.Fleet
	load  func(card *engine.Card) (*prompt.Model, error)

	mu sync.Mutex
	// byCard spares the fingerprint of cards that were seen before. Workers that
	// serve the same files share what was loaded.
	byCard map[*engine.Card]*loading
}

// loading is a model that is loaded once.
type loading struct {
	fingerprint string
	once        func() (*prompt.Model, error)
	model       atomic.Pointer[prompt.Model] // once it is there
}

// get loads a model, or returns what an earlier call has loaded. Concurrent
// calls wait for one load; a failure is kept as well, until the card changes.
func (m *models) get(card *engine.Card) (*prompt.Model, error) {
	m.mu.Lock()
	l := m.byCard[card]
	if l == nil {
		l = m.add(card)
	}
	m.mu.Unlock()
	return l.once()
}

// add makes a new card known, and forgets those that no worker has any more. The
// lock must be held.
func (m *models) add(card *engine.Card) *loading {
	l := m.find(card)
	present := map[*engine.Card]*loading{card: l}
	for _, w := range m.fleet.Snapshot() {
		if known := m.byCard[w.Card()]; known != nil {
			present[w.Card()] = known
		}
	}
	m.byCard = present
	return l
}

// find returns what was loaded from the same files, or is to be.
func (m *models) find(card *engine.Card) *loading {
	f := fingerprint(card)
	for _, l := range m.byCard {
		if l.fingerprint == f {
			return l
		}
	}
	l := &loading{fingerprint: f}
	l.once = sync.OnceValues(func() (*prompt.Model, error) {
		model, err := m.load(card)
		l.model.Store(model)
		return model, err
	})
	return l
}

// loaded returns the model of a card if an earlier call has loaded it.
func (m *models) loaded(card *engine.Card) *prompt.Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.byCard[card]; l != nil {
		return l.model.Load()
	}
	return nil
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
	w, card, err := p.serves(name)
	if err != nil {
		return nil, "", err
	}
	if doorOf(card) == engine.InputChat {
		return nil, "", noTokens(card)
	}
	m, err := p.loadFor(w, card)
	return m, card.Model, err
}

// loadFor returns what the prompt stage knows about the model of a worker's card.
func (p *Pipeline) loadFor(w *fleet.Worker, card *engine.Card) (*prompt.Model, error) {
	m, err := p.models.get(card)
	if err != nil {
		return nil, &engine.Error{Kind: engine.Internal, Op: "load model " + card.Model, Worker: w.ID(), Err: err}
	}
	return m, nil
}

// serves returns a worker that serves a model, or a LoRA adapter of it, now, and its
// card: of several, the one that prompts are best made for.
func (p *Pipeline) serves(name string) (*fleet.Worker, *engine.Card, error) {
	known := ""
	var (
		worker *fleet.Worker
		of     *engine.Card
	)
	for _, w := range p.Fleet.Snapshot() {
		card := w.Status().Card
		if card == nil || card.Model != name && !slices.Contains(card.Aliases, name) && !slices.Contains(card.Adapters, name) {
			continue
		}
		known = card.Model
		if !w.Ready() {
			continue
		}
		if of == nil || better(card, of, name) {
			worker, of = w, card
		}
	}
	if of != nil {
		if doorOf(of) == engine.InputTensor {
			return nil, nil, noText(of)
		}
		return worker, of, nil
	}
	if known == "" {
		return nil, nil, &engine.Error{Kind: engine.NotFound, Message: fmt.Sprintf("The model `%s` does not exist", name), Param: "model", Code: "model_not_found"}
	}
	return nil, nil, &engine.Error{Kind: engine.Unavailable, Param: "model", Message: fmt.Sprintf("Model `%s` is not ready to serve requests yet. The deployment may still be starting up or is not fully provisioned. Please retry shortly.", name)}
}

// better says whether prompts should rather be made for one card than for another: a
// model of that name comes before an adapter, then one that takes tokens, and then the
// one with room for the longest prompt, which goes only where it fits.
func better(card, than *engine.Card, name string) bool {
	if a, b := adapterOf(card, name) == "", adapterOf(than, name) == ""; a != b {
		return a
	}
	if a, b := doorOf(card), doorOf(than); a != b {
		return a == engine.InputTokens || b == engine.InputTensor || a == engine.InputChat && b == engine.InputText
	}
	return card.ContextLength > than.ContextLength
}

// adapterOf returns the LoRA adapter that a name means for a card, or "" if it is the
// model's own.
func adapterOf(card *engine.Card, name string) string {
	if card.Model == name || slices.Contains(card.Aliases, name) {
		return ""
	}
	return name
}

// Preload loads the models of all workers that are known, so that the first
// request does not pay for it.
func (p *Pipeline) Preload() error {
	for _, w := range p.Fleet.Snapshot() {
		card := w.Status().Card
		if card == nil || doorOf(card) == engine.InputChat || doorOf(card) == engine.InputTensor {
			continue
		}
		if _, err := p.models.get(card); err != nil {
			return fmt.Errorf("load model %s: %w", card.Model, err)
		}
	}
	return nil
}

// Tokenize returns the ids of a request's prompt, and the model's context
// length. Without generation prompt a conversation ends with its last turn. Of a
// model whose workers take conversations as they are, nobody here has the tokenizer:
// that is an error of kind unsupported.
func (p *Pipeline) Tokenize(r *chat.Request, generationPrompt bool) ([]uint32, int, error) {
	m, name, err := p.model(r.Model)
	if err != nil {
		return nil, 0, err
	}
	ids, err := m.Tokens(p.show(p.spelt.restore(r), m, name, new(Notes)).chat, generationPrompt)
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
