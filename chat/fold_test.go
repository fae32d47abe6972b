package chat_test

import (
	"testing"

	"github.com/dynago/dynago/chat"
)

// A choice may begin while the one before it already speaks.
func TestFoldInterleaved(t *testing.T) {
	events := []chat.Event{
		{Kind: chat.Start},
		{Kind: chat.BlockStart, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Text: "a"},
		{Kind: chat.Start, Choice: 1},
		{Kind: chat.TextDelta, Text: "b"},
		{Kind: chat.BlockStop},
		{Kind: chat.Finished},
		{Kind: chat.Finished, Choice: 1},
	}
	answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil || len(answers) != 2 || answers[0].Blocks[0].Text != "ab" || len(answers[1].Blocks) != 0 {
		t.Fatalf("got %+v, %v", answers, err)
	}
}
