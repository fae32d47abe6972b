package parser_test

import (
	"fmt"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// A model's text arrives in pieces that respect nothing, and leaves as the
// deltas of blocks.
func Example() {
	family := parser.Detect(`… <tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call> … <think>`, nil)
	p := parser.New(family, parser.Options{
		Start:   family.StartOf("<|im_start|>assistant\n<think>\n"),
		Tools:   []chat.Tool{{Name: "weather"}},
		ToolsOn: true, ThinkOn: true,
		NewID: func() string { return "call_1" },
	})
	var events []chat.Event
	for _, text := range []string{"Rome, th", "en.</th", "ink>\n\n<tool_", "call>\n{\"name\": \"weather\", \"argu", "ments\": {\"city\":", " \"Rome\"}}\n</tool_call>"} {
		events = p.Push(events, chat.Piece{Text: text})
	}
	events, reason := p.Finish(events, chat.FinishStop)
	for _, e := range events {
		switch e.Kind {
		case chat.BlockStart:
			fmt.Print(e.BlockKind)
			if e.Tool != nil {
				fmt.Print(" ", e.Tool.ID, " ", e.Tool.Name)
			}
		case chat.BlockStop:
			fmt.Println()
		default:
			fmt.Printf(" %q", e.Text)
		}
	}
	fmt.Println(reason)
	// Output:
	// thinking "Rome, th" "en."
	// tool_use call_1 weather "{\"city\":" " \"Rome\"}"
	// tool_use
}
