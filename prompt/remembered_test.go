package prompt_test

import (
	"slices"
	"testing"

	"github.com/dynago/dynago/chat"
	"pgregory.net/rapid"
)

// What is remembered of places in a conversation that goes on, is edited and goes on in
// other ways is what rendering it anew tells: never more, and nothing less where the
// template does not take back what it has shown.
func TestPlacesAreRemembered(t *testing.T) {
	for name, shared := range modelsWithTemplates(t) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := shared.WithOwnPlaces()
				m.ContextLength = 0
				r := ask("w" + planted().Draw(t, "first"))
				r.System = []chat.Block{{Kind: chat.Text, Text: "s" + planted().Draw(t, "system")}}
				for range 3 {
					whatever(t, m, r)
					if rapid.Bool().Draw(t, "edited") {
						r.Turns = slices.Clone(r.Turns)
						r.Turns[0] = said(chat.RoleUser, "w"+planted().Draw(t, "edit"))
					}
					if rapid.Bool().Draw(t, "thinking") {
						r.Thinking.Keep = new(rapid.IntRange(-1, 1).Draw(t, "keep"))
					}
					last := &r.Turns[len(r.Turns)-1]
					if last.Role == chat.RoleUser && rapid.Bool().Draw(t, "longer") {
						last.Blocks = append(slices.Clip(last.Blocks), texts(planted().Draw(t, "more"))...)
					}
					places := []chat.Breakpoint{{Turn: -1}}
					for i := range r.Turns {
						places = append(places, chat.Breakpoint{Turn: i}, chat.Breakpoint{Turn: i, Block: -1})
					}
					built, err := m.Build(r, nil, places...)
					if err != nil {
						t.Fatal(err)
					}
					anew, err := m.WithoutPlaces().Offsets(r, nil, places...)
					if err != nil {
						t.Fatal(err)
					}
					for i := range places {
						if built.Offsets[i] > anew[i] || name != "forgetful" && built.Offsets[i] != anew[i] {
							t.Fatalf("places %v are at %v, and rendered anew at %v", places, built.Offsets, anew)
						}
					}
				}
			})
		})
	}
}

func texts(s string) []chat.Block { return []chat.Block{{Kind: chat.Text, Text: s}} }

// A place that was found is found again without rendering, and one behind it is not
// taken for it.
func TestPlaceOfAnotherTurn(t *testing.T) {
	shared := demoModel(t)
	m := shared.WithOwnPlaces()
	r := &chat.Request{Turns: []chat.Turn{said(chat.RoleUser, "One."), said(chat.RoleAssistant, "Two."), said(chat.RoleUser, "Three.")}}
	offsets := func(places ...chat.Breakpoint) []int {
		t.Helper()
		n, err := m.Offsets(r, nil, places...)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := offsets(chat.Breakpoint{Turn: 0, Block: -1})
	if n := m.KnownPlaces(); n != 1 {
		t.Errorf("%d places are remembered, want 1", n)
	}
	r.Turns = append(r.Turns, said(chat.RoleAssistant, "Four."), said(chat.RoleUser, "Five."))
	both := offsets(chat.Breakpoint{Turn: 0, Block: -1}, chat.Breakpoint{Turn: 2, Block: -1})
	if n := m.KnownPlaces(); n != 2 {
		t.Errorf("%d places are remembered, want 2", n)
	}
	if both[0] != first[0] || both[1] <= both[0] {
		t.Errorf("places at %v, the first one was at %v", both, first)
	}
	r.Turns[0] = said(chat.RoleUser, "Another one, and longer.")
	if edited := offsets(chat.Breakpoint{Turn: 0, Block: -1}); edited[0] <= first[0] {
		t.Errorf("a longer turn ends at %d, the shorter one at %d", edited[0], first[0])
	}
}

// What may follow within a turn is not what may follow it: a place in a turn that goes on
// is another one than at the end of a turn that says the same up to there.
func TestPlaceWithinATurn(t *testing.T) {
	shared := demoModel(t)
	call := chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "c", Name: "f", Args: `{"a": 1}`}}
	long := &chat.Request{Turns: []chat.Turn{said(chat.RoleUser, "One."), {Role: chat.RoleAssistant, Blocks: append(texts("Let me see."), call)}}}
	short := &chat.Request{Turns: []chat.Turn{said(chat.RoleUser, "One."), said(chat.RoleAssistant, "Let me see."), said(chat.RoleUser, "And?")}}
	for _, order := range [][]*chat.Request{{long, short}, {short, long}} {
		m := shared.WithOwnPlaces()
		for _, r := range order {
			at := chat.Breakpoint{Turn: 1}
			got, err := m.Offsets(r, nil, at)
			if err != nil {
				t.Fatal(err)
			}
			anew, err := m.WithoutPlaces().Offsets(r, nil, at)
			if err != nil || got[0] != anew[0] {
				t.Errorf("a turn of %d blocks: the first one ends at %v, rendered anew at %v, %v", len(r.Turns[1].Blocks), got, anew, err)
			}
		}
	}
}
