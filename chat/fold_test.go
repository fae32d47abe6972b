package chat_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/dynago/dynago/chat"
)

// stream yields events, and then an error if there is one.
func stream(events []chat.Event, err error) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(chat.Event{}, err)
		}
	}
}

// A choice may begin while the one before it already speaks.
func TestFoldInterleaved(t *testing.T) {
	answers, err := chat.Fold(stream([]chat.Event{
		{Kind: chat.Start},
		{Kind: chat.BlockStart, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Text: "a", IDs: []uint32{1}, Logprobs: []chat.Logprob{{ID: 1}}},
		{Kind: chat.Start, Choice: 1},
		{Kind: chat.UsageUpdate, Usage: chat.Usage{Output: 1}},
		{Kind: chat.TextDelta, Text: "b", IDs: []uint32{2, 3}, Logprobs: []chat.Logprob{{ID: 2}, {ID: 3}}},
		{Kind: chat.BlockStop},
		{Kind: chat.Dropped, Text: "junk", IDs: []uint32{4}},
		{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}, Usage: chat.Usage{Output: 4}},
		{Kind: chat.Finished, Choice: 1},
	}, nil))
	if err != nil || len(answers) != 2 || answers[0].Blocks[0].Text != "ab" || len(answers[1].Blocks) != 0 {
		t.Fatalf("got %+v, %v", answers, err)
	}
	if a := answers[0]; !slices.Equal(a.IDs, []uint32{1, 2, 3, 4}) || len(a.Logprobs) != 3 || a.Usage.Output != 4 || a.Finish.Reason != chat.FinishStop {
		t.Errorf("got %+v", a)
	}
}

// A stream that breaks its own grammar is no answer, and says where it broke.
func TestFoldRefuses(t *testing.T) {
	start, stop, finish := chat.Event{Kind: chat.Start}, chat.Event{Kind: chat.BlockStop}, chat.Event{Kind: chat.Finished}
	open, say := chat.Event{Kind: chat.BlockStart, BlockKind: chat.Text}, chat.Event{Kind: chat.TextDelta, Text: "a"}
	at := func(e chat.Event, index int) chat.Event { e.Index = index; return e }
	for want, events := range map[string][]chat.Event{
		"chat: choice 0: event before its start":               {open},
		"chat: choice 0: started twice":                        {start, start},
		"chat: choice 0: block 1 opened out of order":          {start, at(open, 1)},
		"chat: choice 0: block 0 opened out of order":          {start, open, open},
		"chat: choice 0: delta for block 0, which is not open": {start, say},
		"chat: choice 0: delta for block 1, which is not open": {start, open, at(say, 1)},
		"chat: choice 0: block 0 closed, which is not open":    {start, stop},
		"chat: choice 0: block 1 closed, which is not open":    {start, open, at(stop, 1)},
		"chat: choice 0 finished with an open block":           {start, open, finish},
		"chat: choice 0: event after its finish":               {start, finish, finish},
		"chat: choice 0 ended without a finish":                {start},
		"chat: choice 1: event before its start":               {start, {Kind: chat.Finished, Choice: 1}},
		"chat: choice -1: choices count from 0":                {{Kind: chat.Start, Choice: -1}},
	} {
		if answers, err := chat.Fold(stream(events, nil)); fmt.Sprint(err) != want {
			t.Errorf("got %+v, %v, want %s", answers, err, want)
		}
	}
	gone := errors.New("gone")
	if _, err := chat.Fold(stream([]chat.Event{start}, gone)); err != gone {
		t.Errorf("the error of the stream became %v", err)
	}
}
