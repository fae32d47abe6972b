package pipeline_test

import (
	"context"
	"slices"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

// However an answer ended, the next prompt begins with the one before it and the
// answer's tokens, as far as the client has seen them.
func TestNextPromptExtendsTheAnswer(t *testing.T) {
	const text = "Spelled in an odd way."
	for name, tc := range map[string]struct {
		// fail ends the first attempt with this behind three tokens.
		fail   engine.ErrorKind
		finish engine.Finish
		eos    bool
		leave  bool // behind the third item
		want   int  // tokens of text that the next prompt has as they were
	}{
		"ended":           {finish: engine.FinishEOS, eos: true, want: len(text)},
		"length":          {finish: engine.FinishLength, want: len(text)},
		"moved":           {fail: engine.Disconnected, finish: engine.FinishEOS, eos: true, want: len(text)},
		"failed for good": {fail: engine.InvalidArgument, want: 3},
		"cancelled":       {finish: engine.FinishEOS, eos: true, leave: true, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			var ids []uint32 // byte by byte
			e := &fake{}
			h := newHouse(t, pipeline.Config{MigrationLimit: 1}, e, e)
			for _, b := range []byte(text) {
				id, ok := h.model.Tokenizer.ID(string(b))
				if b == ' ' {
					id, ok = h.model.Tokenizer.ID("Ġ")
				}
				if !ok {
					t.Fatalf("no token for %q", b)
				}
				ids = append(ids, id)
			}
			if slices.Equal(ids, h.ids(text)) {
				t.Fatal("the tokenizer itself chooses single bytes")
			}
			spoken := slices.Clone(ids)
			if tc.eos {
				spoken = append(spoken, h.model.EOS[0])
			}
			first := 0 // tokens of the first prompt
			e.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
				if first == 0 {
					first = len(r.TokenIDs)
				}
				rest := spoken[min(len(spoken), len(r.TokenIDs)-first):]
				if len(rest) == 0 {
					yield(engine.Delta{Finish: engine.FinishEOS}, nil)
					return
				}
				for i, id := range rest {
					if tc.fail != "" && i == 3 && len(rest) == len(spoken) {
						yield(engine.Delta{}, engine.Errorf(tc.fail, "a fault"))
						return
					}
					d := engine.Delta{TokenIDs: []uint32{id}}
					if i == len(rest)-1 {
						d.Finish = tc.finish
					}
					if !yield(d, nil) {
						return
					}
				}
			}
			r := request("spell oddly, " + name)
			said, items := "", 0
			for event, err := range h.Run(t.Context(), r) {
				if err != nil {
					break // the fault that the case is about
				}
				if event.Kind == chat.TextDelta {
					said += event.Text
					if items++; tc.leave && items == 3 {
						break
					}
				}
			}
			before := slices.Concat(e.sent()[0].TokenIDs, ids[:tc.want])
			r = request("spell oddly, " + name)
			r.Chat.Turns = append(r.Chat.Turns,
				chat.Turn{Role: chat.RoleAssistant, Blocks: []chat.Block{{Kind: chat.Text, Text: said}}},
				chat.Turn{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "go on"}}},
			)
			attempts := len(e.sent())
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
				t.Fatal(err)
			}
			after := e.sent()[attempts].TokenIDs
			if said == "" || len(after) < len(before) || !slices.Equal(after[:len(before)], before) {
				t.Errorf("said %q; the prompt\n%v\ndoes not begin with\n%v", said, after, before)
			}
			h.released(t)
		})
	}
}
