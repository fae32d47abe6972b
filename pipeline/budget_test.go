package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

// thinker thinks for ever in deltas of n tokens, until its prompt ends with a
// closed thought; then it answers.
func (h *house) thinker(n int, opener, end string) func(context.Context, *engine.Request, func(engine.Delta, error) bool) {
	return func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		told := &engine.Usage{Prompt: len(r.TokenIDs), Cached: new(int)}
		if closed := h.ids(end); len(closed) > 0 && len(r.TokenIDs) > len(closed) && slices.Equal(r.TokenIDs[len(r.TokenIDs)-len(closed):], closed) {
			*told.Cached, told.Output = len(r.TokenIDs)-1, len(h.ids("Done."))
			yield(engine.Delta{TokenIDs: h.ids("Done."), Finish: engine.FinishEOS, Usage: told}, nil)
			return
		}
		*told.Cached = 5
		ids := h.ids(opener + strings.Repeat(" and so on", 200))
		for i := 0; i+n <= len(ids); i += n {
			d := engine.Delta{TokenIDs: ids[i : i+n]}
			if i == 0 {
				d.Usage = told
			}
			if !yield(d, nil) {
				return
			}
		}
		<-context.Background().Done()
	}
}

// However large the engine's deltas are, a thought has as many tokens as it may
// have, and the answer comes from the same worker behind it.
func TestThinkingBudget(t *testing.T) {
	const end = "\n</think>\n\n"
	for _, n := range []int{1, 3, 7} {
		for _, most := range []int{0, 1, 5, 40} {
			t.Run(fmt.Sprintf("%d of deltas of %d", most, n), func(t *testing.T) {
				f, other := &fake{}, &fake{}
				h := newHouse(t, pipeline.Config{}, f, other)
				f.generate = h.thinker(n, "<think>", end)
				other.generate = f.generate
				r := request("why?")
				r.Notes = new(pipeline.Notes)
				r.Chat.Thinking.Budget = &most
				answers, err := chat.Fold(h.Run(t.Context(), r))
				if err != nil {
					t.Fatal(err)
				}
				a := answers[0]
				thought, text := "", ""
				for _, b := range a.Blocks {
					switch b.Kind {
					case chat.Thought:
						thought += b.Text
					case chat.Text:
						text += b.Text
					}
				}
				if got := len(h.ids(thought)); got > most || most > 0 && got == 0 {
					t.Errorf("thought %d tokens, want at most %d: %q", got, most, thought)
				}
				if text != "Done." || a.Finish.Reason != chat.FinishStop {
					t.Errorf("got %q, finish %s", text, a.Finish.Reason)
				}
				sent := append(f.sent(), other.sent()...)
				if len(sent) != 2 || len(f.sent()) == 1 {
					t.Fatalf("%d and %d requests, want two to one worker", len(f.sent()), len(other.sent()))
				}
				whole := slices.Concat(sent[0].TokenIDs, a.IDs[:len(a.IDs)-len(h.ids("Done."))])
				if !slices.Equal(sent[1].TokenIDs, whole) {
					t.Errorf("the second attempt does not go on where the client's answer stands")
				}
				if used := len(sent[1].TokenIDs) - len(sent[0].TokenIDs); sent[1].Stop.MaxTokens != sent[0].Stop.MaxTokens-used {
					t.Errorf("%d tokens are left, want %d", sent[1].Stop.MaxTokens, sent[0].Stop.MaxTokens-used)
				}
				if u := a.Usage; u.Output != len(a.IDs) || u.Cached == nil || *u.Cached != 5 || u.Prompt != len(sent[0].TokenIDs) {
					t.Errorf("usage %+v for %d tokens", u, len(a.IDs))
				}
				if got := r.Notes.BudgetBy; got != pipeline.ByUs {
					t.Errorf("kept by %q", got)
				}
				h.released(t)
			})
		}
	}
}

func TestThinkingBudgetElsewhere(t *testing.T) {
	most := 3
	t.Run("thought that ends in time", func(t *testing.T) {
		f := &fake{}
		h := newHouse(t, pipeline.Config{}, f)
		f.generate = h.say("<think>no</think>yes", 2, engine.FinishEOS)
		r := request("why?")
		r.Notes = new(pipeline.Notes)
		long := 50
		r.Chat.Thinking.Budget = &long
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil || len(f.sent()) != 1 || texts(answers)[0] != "noyes" {
			t.Errorf("%v, %d requests, %q", err, len(f.sent()), texts(answers))
		}
	})
	t.Run("engine that keeps it", func(t *testing.T) {
		f := &fake{features: engine.Features{engine.FeatureThinkingBudget}}
		h := newHouse(t, pipeline.Config{}, f)
		f.generate = h.say("<think>one two three four five six seven</think>yes", 2, engine.FinishEOS)
		r := request("why?")
		r.Notes = new(pipeline.Notes)
		r.Chat.Thinking.Budget = &most
		if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
			t.Fatal(err)
		}
		if sent := f.sent(); len(sent) != 1 || sent[0].ThinkingBudget == nil || *sent[0].ThinkingBudget != most {
			t.Errorf("%d requests, budget %v", len(sent), sent[0].ThinkingBudget)
		}
		if got := r.Notes.BudgetBy; got != pipeline.ByEngine {
			t.Errorf("kept by %q", got)
		}
	})
	t.Run("answer of a form", func(t *testing.T) {
		f := &fake{features: engine.Features{engine.FeatureGuidedObject}}
		h := newHouse(t, pipeline.Config{}, f)
		f.generate = h.say("<think>one two three four five six seven</think>{}", 2, engine.FinishEOS)
		r := request("why?")
		r.Notes = new(pipeline.Notes)
		r.Chat.Thinking.Budget = &most
		r.Chat.Output.Kind = chat.FormatJSONObject
		if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil || len(f.sent()) != 1 {
			t.Fatalf("%v, %d requests", err, len(f.sent()))
		}
		if got := r.Notes.BudgetBy; got != pipeline.ByNobody {
			t.Errorf("kept by %q", got)
		}
	})
}

// Who sees to the form and to the budget of an answer is known with its first event,
// whichever choice that is of.
func TestNotedByAnyChoice(t *testing.T) {
	tokens, conversations := &fake{}, newTalker()
	for name, h := range map[string]*house{
		"tokens":        newHouse(t, pipeline.Config{}, tokens),
		"conversations": newRoom(t, pipeline.Config{}, conversations),
	} {
		t.Run(name, func(t *testing.T) {
			tokens.generate = h.say("{}", 1, engine.FinishEOS)
			conversations.chat = tells(nil, spoken("{", "}", chat.Usage{})...)
			budgetBy := map[string]string{"tokens": pipeline.ByUs, "conversations": pipeline.ByNobody}[name]
			for i := range 2 {
				r := request("Hi")
				r.Chat.Sampling.N, r.Chat.Thinking.Budget = 2, new(100)
				r.Chat.Output.Kind = chat.FormatJSONObject
				for _, err := range h.Choice(t.Context(), r, i) {
					if err != nil {
						t.Fatal(err)
					}
					if n := r.Notes; n.FormBy != pipeline.ByUs || n.BudgetBy != budgetBy {
						t.Fatalf("choice %d: form by %q, budget by %q", i, n.FormBy, n.BudgetBy)
					}
				}
			}
		})
	}
}
