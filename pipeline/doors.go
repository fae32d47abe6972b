package pipeline

import (
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
)

// Workers take requests in several forms. Tokens come first: all that is exact here
// rests on them. Which door a request goes through is read off the cards and never
// found out by trying, and it keeps to it: on its way from one worker to the next
// it meets only such as take it in the same form.

// doorOf returns the form in which a worker is sent requests for text. Who takes
// tensors and nothing else has a door of its own, which is never that of text.
func doorOf(card *engine.Card) engine.Input {
	for _, in := range []engine.Input{engine.InputTokens, engine.InputChat, engine.InputText, engine.InputTensor} {
		if card.Accept(in) {
			return in
		}
	}
	return engine.InputTokens
}

// through returns the workers of a model, by its primary name, that take requests
// through a door; nil if all of them do.
func (p *Pipeline) through(door engine.Input, model string) (ids []uint64) {
	workers := p.Fleet.Snapshot()
	other := slices.ContainsFunc(workers, func(w *fleet.Worker) bool {
		card := w.Card()
		return card != nil && card.Model == model && doorOf(card) != door
	})
	if !other {
		return nil
	}
	ids = []uint64{} // nil would be all
	for _, w := range workers {
		if card := w.Card(); card != nil && card.Model == model && doorOf(card) == door {
			ids = append(ids, w.ID())
		}
	}
	return ids
}

// noTokens is the error for those who ask for tokens of a model that has none here.
func noTokens(card *engine.Card) error {
	return &engine.Error{
		Kind: engine.Unsupported, Param: "model", Code: "unsupported_parameter",
		Message: "Model '" + card.Model + "' is served as conversations alone (" + card.Engine + "): its tokenizer is not here, so that tokens can neither be counted nor shown",
	}
}

// noText is the error for those who ask a model for text that takes tensors alone.
func noText(card *engine.Card) error {
	return &engine.Error{
		Kind: engine.NotFound, Param: "model", Code: "model_not_found",
		Message: "The model `" + card.Model + "` takes tensors, and gives no text: it is served over KServe alone",
	}
}
