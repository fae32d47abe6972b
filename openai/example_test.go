package openai_test

import (
	"fmt"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai"
)

// A body becomes a conversation; the events that answer it become chunks.
func Example() {
	call, err := openai.DecodeChat([]byte(`{
		"model": "acme/chat-8b", "stream": true, "stream_options": {"include_usage": true},
		"messages": [{"role": "user", "content": "Which river?"}]
	}`), openai.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(call.Requests[0].Turns[0].Blocks[0].Text)

	enc := call.Encoder(openai.Header{ID: "1b3f", Model: call.Model, Created: 1790000001})
	var out []byte
	for _, e := range []chat.Event{
		{Kind: chat.Start, Usage: chat.Usage{Prompt: 21}},
		{Kind: chat.BlockStart, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Text: "Rhine"},
		{Kind: chat.BlockStop},
		{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}, Usage: chat.Usage{Prompt: 21, Output: 2}},
	} {
		out = enc.AppendEvent(out, e)
	}
	fmt.Printf("%s", enc.AppendEnd(out))
	// Output:
	// Which river?
	// data: {"id":"chatcmpl-1b3f","object":"chat.completion.chunk","created":1790000001,"model":"acme/chat-8b","choices":[{"index":0,"delta":{"role":"assistant","content":"Rhine"},"finish_reason":null,"logprobs":null}],"usage":null,"service_tier":null,"system_fingerprint":null}
	//
	// data: {"id":"chatcmpl-1b3f","object":"chat.completion.chunk","created":1790000001,"model":"acme/chat-8b","choices":[{"index":0,"delta":{},"finish_reason":"stop","logprobs":null}],"usage":null,"service_tier":null,"system_fingerprint":null}
	//
	// data: {"id":"chatcmpl-1b3f","object":"chat.completion.chunk","created":1790000001,"model":"acme/chat-8b","choices":[],"usage":{"prompt_tokens":21,"completion_tokens":2,"total_tokens":23},"service_tier":null,"system_fingerprint":null}
	//
	// data: [DONE]
}
