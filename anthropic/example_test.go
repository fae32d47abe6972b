package anthropic_test

import (
	"fmt"

	"github.com/dynago/dynago/anthropic"
	"github.com/dynago/dynago/chat"
)

// A body becomes a request, and the events of its answer become a message.
func Example() {
	c, err := anthropic.Decode([]byte(`{
		"model": "acme/chat-8b", "max_tokens": 64,
		"system": "Be brief.",
		"messages": [{"role": "user", "content": "Name a river."}]
	}`), anthropic.Dialect{Version: "2023-06-01"}, anthropic.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Request.System[0].Text, c.Request.Turns[0].Blocks[0].Text)

	e := c.Encoder(anthropic.Header{ID: "1b3f0c52-8a55-4a8e-b1a7-0a7b6bd0f001", Model: c.Model})
	fmt.Print(string(e.AppendEvent(nil, chat.Event{Kind: chat.BlockStart, BlockKind: chat.Text})))
	fmt.Print(string(e.AppendEvent(nil, chat.Event{Kind: chat.TextDelta, Text: "Rhine"})))
	// Output:
	// Be brief. Name a river.
	// event: content_block_start
	// data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
	//
	// event: content_block_delta
	// data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Rhine"}}
}
