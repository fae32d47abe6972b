package pipeline_test

import (
	"context"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// Tokens are preferred, and a request stays with the workers that take it as it is.
func TestDoors(t *testing.T) {
	for _, order := range []string{"chat first", "tokens first"} {
		text := newTalker()
		tokens := &fake{}
		engines := []engine.Engine{text, tokens}
		if order == "tokens first" {
			engines = []engine.Engine{tokens, text}
		}
		h := newHouse(t, pipeline.Config{MigrationLimit: 3}, engines...)
		tokens.generate = h.say("Yes.", 1, engine.FinishEOS)
		for range 3 {
			answers, err := chat.Fold(h.Run(t.Context(), request("Hi")))
			if err != nil || texts(answers)[0] != "Yes." {
				t.Fatalf("%s: %+v, %v", order, answers, err)
			}
		}
		tokens.generate = func(_ context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
			for _, w := range h.fleet.Snapshot() {
				if w.Card().Accept(engine.InputTokens) {
					h.fleet.Remove(w.ID())
				}
			}
			yield(engine.Delta{}, engine.Errorf(engine.Disconnected, "gone"))
		}
		if _, err := chat.Fold(h.Run(t.Context(), request("Hi"))); engine.KindOf(err) != engine.Unavailable {
			t.Errorf("%s: %v, want nobody to be left", order, err)
		}
		if len(text.sent()) != 0 {
			t.Errorf("%s: a request changed its form on its way", order)
		}
		h.released(t)
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
