package pipeline

import (
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
)

// An answer that is held to a form goes on in its middle with those workers alone that
// read what it has so far ([engine.FeatureContinues]): any other one would begin the form
// anew. What else engines count over an answer, penalties above all, is off a little with
// them, and no reason to let an answer go.

// resumes says whether a worker of this card goes on in the middle of a form.
func resumes(card *engine.Card, format *chat.OutputFormat) bool {
	need := guides(format)
	if format.Kind == chat.FormatStructuralTag {
		need = engine.FeatureStructuralTag
	}
	return card.Features.Has(engine.FeatureContinues) && card.Features.Has(need)
}

// resume returns the workers but some that the answer can go on with in the middle of its
// form, none if there are none.
func (j *job) resume(but []uint64) []uint64 {
	ids := []uint64{} // nil would be all
	for _, w := range j.p.Fleet.Snapshot() {
		card := w.Card()
		if card != nil && card.Model == j.request.Notes.Model && doorOf(card) == j.door && resumes(card, j.held.format) && !slices.Contains(but, w.ID()) {
			ids = append(ids, w.ID())
		}
	}
	return ids
}

// resumable says whether anybody is there with whom the answer can go on in its middle,
// as far as its form goes.
func (c *carry) resumable() bool {
	return c.held.format == nil || len(c.resume(append(slices.Clone(c.exclude), c.here.Worker().ID()))) > 0
}
