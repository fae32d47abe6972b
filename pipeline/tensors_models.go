package pipeline

import (
	"github.com/dynago/dynago/engine"
)

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
