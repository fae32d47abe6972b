package responses_test

import (
	"fmt"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai/responses"
)

// A body becomes a conversation; the events that answer it become the events of a
// stream, and an object at its end.
func Example() {
	call, err := responses.Decode([]byte(`{
		"model": "acme/chat-8b", "instructions": "Be brief.",
		"input": [{"role": "user", "content": "Which river?"}]
	}`), responses.Options{})
	if err == nil {
		err = call.Resolve(nil) // it refers to nothing
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(call.Request.System[0].Text, call.Request.Turns[0].Blocks[0].Text)

	enc := call.Encoder(responses.Header{ID: "resp_1b3f", Model: call.Model, Created: 1790000001})
	out := enc.AppendOpening(nil)
	for _, e := range []chat.Event{
		{Kind: chat.Start, Usage: chat.Usage{Prompt: 21}},
		{Kind: chat.BlockStart, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Text: "Rhine"},
		{Kind: chat.BlockStop},
		{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}, Usage: chat.Usage{Prompt: 21, Output: 2}},
	} {
		out = enc.AppendEvent(out, e)
	}
	out = enc.AppendEnd(out, 1790000002)
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			fmt.Print(name)
		}
	}
	fmt.Printf("%s\n", enc.Items()[0].Wire)
	// Output:
	// Be brief. Which river?
	// response.created
	// response.in_progress
	// response.output_item.added
	// response.content_part.added
	// response.output_text.delta
	// response.output_text.done
	// response.content_part.done
	// response.output_item.done
	// response.completed
	// {"type":"message","id":"msg_1b3f00","role":"assistant","content":[{"type":"output_text","text":"Rhine","annotations":[],"logprobs":[]}],"status":"completed"}
}
