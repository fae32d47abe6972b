package answer_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/answer"
)

var request = &engine.Request{ID: "r-1", TokenIDs: []uint32{1, 2, 3}}

// Whatever is said in whatever order, the events keep the rules of answers, and add
// up to what was said.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var told []chat.Event
		w := answer.New(request, func(e chat.Event, err error) bool {
			told = append(told, e)
			return err == nil
		})
		var said []string // kind and text of each run
		add := func(kind chat.Kind, text string) {
			if n := len(said); n > 0 && strings.HasPrefix(said[n-1], string(kind)+":") && kind != chat.ToolCall {
				said[n-1] += text
				return
			}
			said = append(said, string(kind)+":"+text)
		}
		pieces, calls := 0, 0
		for range rapid.IntRange(0, 12).Draw(t, "pieces") {
			text := rapid.SampledFrom([]string{"", "a", "bc"}).Draw(t, "text")
			switch kind := rapid.SampledFrom([]chat.Kind{chat.Thought, chat.Text, chat.Refusal, chat.ToolCall}).Draw(t, "kind"); {
			case kind != chat.ToolCall:
				w.Say(kind, text)
				if text != "" {
					pieces++
					add(kind, text)
				}
			default:
				w.Call("", "f")
				w.Args(text)
				if pieces++; text != "" {
					pieces++
				}
				calls++
				said = append(said, "tool_use:"+text)
			}
		}
		if w.Calls() != calls {
			t.Fatalf("%d calls, want %d", w.Calls(), calls)
		}
		w.End(chat.Finish{Reason: chat.FinishStop}, nil)
		answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
			for _, e := range told {
				if !yield(e, nil) {
					return
				}
			}
		})
		if err != nil || len(answers) != 1 {
			t.Fatalf("%v, %v", answers, err)
		}
		var got []string
		ids := map[string]bool{}
		for _, b := range answers[0].Blocks {
			text := b.Text
			if b.Use != nil {
				text = b.Use.Args
				ids[b.Use.ID] = true
			}
			got = append(got, string(b.Kind)+":"+text)
		}
		if fmt.Sprint(got) != fmt.Sprint(said) || len(ids) != calls || answers[0].Usage.Output != pieces || answers[0].Usage.Prompt != 3 {
			t.Fatalf("%q, %d ids, %+v; want %q and %d pieces", got, len(ids), answers[0].Usage, said, pieces)
		}
	})
}

// A call that the limit cuts is marked, and no other block is.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		call   bool
		reason chat.FinishReason
		want   bool
	}{
		{true, chat.FinishLength, true}, {true, chat.FinishToolUse, false}, {false, chat.FinishLength, false},
	} {
		cut := false
		w := answer.New(request, func(e chat.Event, _ error) bool {
			cut = cut || e.Kind == chat.BlockStop && e.Truncated
			return true
		})
		w.Say(chat.Text, "x")
		if c.call {
			w.Call("c", "f")
		}
		w.End(chat.Finish{Reason: c.reason}, &chat.Usage{})
		if cut != c.want {
			t.Errorf("%+v: cut %v", c, cut)
		}
	}
}

// Whoever has left hears nothing more.
func TestLeft(t *testing.T) {
	for leave := range 6 {
		n := 0
		w := answer.New(request, func(chat.Event, error) bool {
			if n++; n > leave+1 {
				t.Errorf("left at %d, and told again", leave)
			}
			return n <= leave
		})
		w.Say(chat.Text, "a")
		w.Say(chat.Text, "b")
		w.Call("c", "f")
		w.Args("{}")
		if ok := w.Begin(); ok {
			t.Errorf("left at %d, and not known", leave)
		}
		w.End(chat.Finish{Reason: chat.FinishStop}, nil)
	}
}

func Example() {
	w := answer.New(request, func(e chat.Event, _ error) bool {
		fmt.Printf("%d %q %q\n", e.Index, e.BlockKind, e.Text)
		return true
	})
	w.Say(chat.Thought, "Hm.")
	w.Say(chat.Text, "Yes.")
	// Output:
	// 0 "" ""
	// 0 "thinking" ""
	// 0 "" "Hm."
	// 0 "" ""
	// 1 "text" ""
	// 1 "" "Yes."
}
