package pipeline_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// A request keeps to its door: when the workers that it was made for have left, those
// that take over its model do not get it in a form that they do not take.
func TestDoors(t *testing.T) {
	tokens, text := &fake{}, newTalker()
	h := newHouse(t, pipeline.Config{MigrationLimit: 3}, tokens)
	if _, err := h.fleet.Add(fleet.Entry{Name: "text", Engine: text, ID: 2}); err != nil {
		t.Fatal(err)
	}
	await := func(is func(text *fleet.Worker) bool) {
		for {
			changed := h.fleet.Changed()
			i := slices.IndexFunc(h.fleet.Snapshot(), func(w *fleet.Worker) bool { return w.ID() == 2 })
			if i >= 0 && is(h.fleet.Snapshot()[i]) {
				return
			}
			<-changed
		}
	}
	await(func(w *fleet.Worker) bool { return w.Card() != nil && !w.Ready() })
	tokens.generate = h.say("Yes.", 1, engine.FinishEOS)
	for range 3 {
		answers, err := chat.Fold(h.Run(t.Context(), request("Hi")))
		if err != nil || texts(answers)[0] != "Yes." {
			t.Fatalf("%+v, %v", answers, err)
		}
	}
	tokens.generate = func(_ context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
		h.fleet.Remove(1)
		await((*fleet.Worker).Ready)
		yield(engine.Delta{}, engine.Errorf(engine.Disconnected, "gone"))
	}
	if _, err := chat.Fold(h.Run(t.Context(), request("Hi"))); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("%v, want nobody to be left", err)
	}
	if len(text.sent()) != 0 {
		t.Error("a request changed its form on its way")
	}
	text.chat = tells(nil, spoken("Text ", "now.", chat.Usage{})...)
	if answers, err := chat.Fold(h.Run(t.Context(), request("Hi"))); err != nil || texts(answers)[0] != "Text now." {
		t.Errorf("%+v, %v", answers, err)
	}
	h.released(t)
}

// Of the forms that a worker takes, tokens are preferred.
func TestPreferredDoor(t *testing.T) {
	f := newTalker()
	f.change = func(c *engine.Card) { c.Accepts = []engine.Input{engine.InputChat, engine.InputTokens} }
	h := newHouse(t, pipeline.Config{}, f)
	f.generate = h.say("Yes.", 1, engine.FinishEOS)
	if answers, err := chat.Fold(h.Run(t.Context(), request("Hi"))); err != nil || texts(answers)[0] != "Yes." {
		t.Errorf("%+v, %v", answers, err)
	}
}

// A worker of texts gets the prompt as text, and cannot be followed once it has begun.
func TestTextDoor(t *testing.T) {
	writer := func() *fake {
		return &fake{change: func(c *engine.Card) { c.Accepts = []engine.Input{engine.InputText} }}
	}
	first, second := writer(), writer()
	h := newHouse(t, pipeline.Config{MigrationLimit: 3}, first, second)
	first.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		if want, _ := h.model.Text(r.TokenIDs); r.Prompt == "" || r.Prompt != want || len(r.Stop.Strings) != 1 {
			t.Errorf("prompt %q, want %q; stop %+v", r.Prompt, want, r.Stop)
		}
		_ = yield(engine.Delta{Text: "Half "}, nil) && yield(engine.Delta{}, engine.Errorf(engine.Disconnected, "gone"))
	}
	r := request("Hi")
	r.Chat.Sampling.Stop = []string{"END"}
	if _, err := chat.Fold(h.Run(t.Context(), r)); engine.KindOf(err) != engine.Disconnected || len(second.sent()) != 0 {
		t.Errorf("error %v, %d requests at the other worker", err, len(second.sent()))
	}
	h.released(t)
}

// Conversations that begin alike go where that was sent before.
func TestConversationAffinity(t *testing.T) {
	a, b := newTalker(), newTalker()
	for _, f := range []*talker{a, b} {
		f.chat = tells(nil, spoken("a", "b", chat.Usage{})...)
	}
	tuning := router.DefaultTuning()
	h := newHouseOf(t, pipeline.Config{}, router.Config{Mode: router.KV, Tuning: &tuning}, a, b)
	text := map[int]string{0: strings.Repeat("one thing and ", 200), 1: strings.Repeat("other ", 400)}
	where := map[int]uint64{}
	for round := range 4 {
		for i := range text {
			text[i] += " and then"
			r := request(text[i])
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
				t.Fatal(err)
			}
			if got := r.Notes.Target.Worker; round > 0 && (got != where[i] || r.Notes.Overlap == 0) {
				t.Errorf("round %d: conversation %d at worker %d with %d blocks, was at %d", round, i, got, r.Notes.Overlap, where[i])
			}
			where[i] = r.Notes.Target.Worker
		}
	}
}
