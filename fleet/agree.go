package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dynago/dynago/engine"
)

// Refusal is why a worker is kept from serving beside others: a conversation would
// become other tokens there, or its model's name means another one.
type Refusal struct {
	Model  string
	Field  string // the first one in which the cards differ
	Reason string // both values, for operators
}

// trait is one thing that all workers of a model must have in common, because the
// prompts are made for all of them alike. An empty value is unknown, and agrees
// with any.
type trait struct{ field, value string }

// traits are those of a card. Role, sizes of blocks and of contexts, capacity and
// what else a worker can do are its own.
func traits(c *engine.Card) []trait {
	if c == nil {
		return nil
	}
	var accepts, eos []string
	for _, in := range c.Accepts {
		accepts = append(accepts, string(in))
	}
	for _, id := range c.EOS {
		eos = append(eos, fmt.Sprint(id))
	}
	list := []trait{{"accepts", strings.Join(sorted(accepts), " ")}, {"eos", strings.Join(sorted(eos), " ")}}
	for _, f := range c.Files {
		if f.Kind == "tokenizer" || f.Kind == "chat_template" {
			list = append(list, trait{f.Kind, f.SHA256})
		}
	}
	return list
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// differ returns the first trait in which two cards differ, with both values.
func differ(a, b []trait) (field, of, against string) {
	for _, x := range a {
		for _, y := range b {
			if x.field == y.field && x.value != y.value && x.value != "" && y.value != "" {
				return x.field, x.value, y.value
			}
		}
	}
	return "", "", ""
}

// candidate is a worker that could serve.
type candidate struct {
	worker *Worker
	view   *view
	group  int // how many candidates have the same traits
}

// settle makes v what is known of a worker, and judges anew who serves beside whom.
func (f *Fleet) settle(w *Worker, v *view) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := w.view.Load()
	if v.told.Card == old.told.Card {
		v.traits, v.status.Card = old.traits, old.status.Card // one card has one pointer
	} else {
		v.traits = traits(v.told.Card)
	}
	v.refusal = old.refusal
	v.agreed = old.agreed && old.told.Epoch == v.told.Epoch && slices.Equal(old.traits, v.traits)
	w.view.Store(v)
	if v.agreed != old.agreed || v.told.Card != old.told.Card || v.live() != old.live() {
		f.judge()
	}
	f.announceLocked()
}

// live says whether a worker serves, or would.
func (v *view) live() bool {
	s := v.told.State
	return v.admitted && (s == engine.Ready || s == engine.Draining || s == engine.Suspect)
}

// judge decides which workers serve. Those who serve a model go on, and one that
// comes and does not agree with them is refused. When none of them is left the
// others take over: the largest group that agrees, and of several the one that has
// been there longest. The lock must be held.
func (f *Fleet) judge() {
	models := map[string][]*candidate{}
	for _, w := range f.Snapshot() {
		v := w.view.Load()
		if !v.live() {
			f.say(w, v, false, nil, v.told.Card)
			continue
		}
		model := v.told.Card.Model
		models[model] = append(models[model], &candidate{worker: w, view: v})
	}
	names := map[string]string{} // that models have, and whose they are
	for _, list := range ranked(models) {
		var serving []*candidate
		for _, c := range list {
			refusal, card := refuse(c, serving, names), c.view.told.Card
			if refusal == nil {
				serving = append(serving, c)
				names[card.Model] = card.Model
				card = own(c.view, names)
			}
			f.say(c.worker, c.view, refusal == nil, refusal, card)
		}
	}
}

// ranked puts the candidates of each model in order: those who serve it already,
// then those who have the most beside them, then those who came first. Models are
// in the order of their first ones.
func ranked(models map[string][]*candidate) [][]*candidate {
	first := func(a, b *candidate) int { return cmp.Compare(a.worker.seen, b.worker.seen) }
	agreed := func(a, b *candidate) int {
		switch {
		case a.view.agreed == b.view.agreed:
			return 0
		case a.view.agreed:
			return -1
		}
		return 1
	}
	var lists [][]*candidate
	for _, list := range models {
		size := map[string]int{}
		for _, c := range list {
			size[fmt.Sprint(c.view.traits)]++
		}
		for _, c := range list {
			c.group = size[fmt.Sprint(c.view.traits)]
		}
		slices.SortFunc(list, func(a, b *candidate) int {
			return cmp.Or(agreed(a, b), cmp.Compare(b.group, a.group), first(a, b))
		})
		lists = append(lists, list)
	}
	slices.SortFunc(lists, func(a, b []*candidate) int { return cmp.Or(agreed(a[0], b[0]), first(a[0], b[0])) })
	return lists
}

// refuse returns why a worker cannot serve beside those who do.
func refuse(c *candidate, serving []*candidate, names map[string]string) *Refusal {
	model := c.view.told.Card.Model
	if of, ok := names[model]; ok && of != model {
		return &Refusal{model, "model", fmt.Sprintf("it serves model %s, which is another name of model %s here already: want another name for one of them", model, of)}
	}
	for _, other := range serving {
		if field, mine, theirs := differ(c.view.traits, other.view.traits); field != "" {
			return &Refusal{model, field, fmt.Sprintf("it does not agree with %s, which serves model %s: %s is %s here and %s there; want the same model's files behind both, or another name for one of them", other.worker.name, model, field, brief(mine), brief(theirs))}
		}
	}
	return nil
}

// brief shows enough of a checksum to tell it from another one.
func brief(value string) string {
	const enough = 16
	if len(value) > 2*enough && !strings.Contains(value, " ") {
		return value[:enough]
	}
	return value
}

// own returns the card of a worker without further names that belong to other
// models, and notes whose the rest are.
func own(v *view, names map[string]string) *engine.Card {
	card := v.told.Card
	foreign := func(name string) bool { return names[name] != "" && names[name] != card.Model }
	mine := slices.DeleteFunc(slices.Clone(card.Aliases), foreign)
	for _, name := range mine {
		names[name] = card.Model
	}
	switch {
	case len(mine) == len(card.Aliases):
		return card
	case v.status.Card != card && slices.Equal(v.status.Card.Aliases, mine):
		return v.status.Card
	}
	c := *card
	c.Aliases = mine
	return &c
}

// say makes a judgement known.
func (f *Fleet) say(w *Worker, v *view, agreed bool, refusal *Refusal, card *engine.Card) {
	same := refusal == v.refusal || refusal != nil && v.refusal != nil && *refusal == *v.refusal
	if same && agreed == v.agreed && card == v.status.Card {
		return
	}
	switch {
	case same:
	case refusal != nil:
		f.log.Error("worker is refused", "worker", w.name, "id", w.id, "field", refusal.Field, "reason", refusal.Reason)
	case agreed:
		f.log.Info("worker is not refused any more", "worker", w.name, "id", w.id)
	}
	if agreed && card != v.told.Card && card != v.status.Card {
		f.log.Warn("further names of the worker's model are left out; they are taken by other models", "worker", w.name, "id", w.id, "names", v.told.Card.Aliases, "left", card.Aliases)
	}
	next := *v
	next.agreed, next.refusal, next.status.Card = agreed, refusal, card
	w.view.Store(&next)
}
