package chat_test

import (
	"fmt"

	"github.com/dynago/dynago/chat"
)

// An answer that thinks, speaks and calls a tool is three blocks.
func ExampleFold() {
	events := []chat.Event{
		{Kind: chat.Start, Usage: chat.Usage{Prompt: 12}},
		{Kind: chat.BlockStart, BlockKind: chat.Thought},
		{Kind: chat.ThinkingDelta, Text: "Weather"},
		{Kind: chat.ThinkingDelta, Text: " needs a tool."},
		{Kind: chat.BlockStop},
		{Kind: chat.BlockStart, Index: 1, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Index: 1, Text: "Let me look."},
		{Kind: chat.BlockStop, Index: 1},
		{Kind: chat.BlockStart, Index: 2, BlockKind: chat.ToolCall, Tool: &chat.ToolUse{ID: "call_1", Name: "weather"}},
		{Kind: chat.ArgsDelta, Index: 2, Text: `{"city":`},
		{Kind: chat.ArgsDelta, Index: 2, Text: `"Paris"}`},
		{Kind: chat.BlockStop, Index: 2},
		{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishToolUse}, Usage: chat.Usage{Prompt: 12, Output: 20}},
	}
	answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	})
	fmt.Println(len(answers), err)
	for _, b := range answers[0].Blocks {
		if b.Use != nil {
			fmt.Println(b.Kind, b.Use.Name, b.Use.Args)
			continue
		}
		fmt.Println(b.Kind, b.Text)
	}
	// Output:
	// 1 <nil>
	// thinking Weather needs a tool.
	// text Let me look.
	// tool_use weather {"city":"Paris"}
}
