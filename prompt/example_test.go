package prompt_test

import (
	"fmt"
	"iter"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/prompt"
)

// The way down and the way up: a conversation becomes ids, and what an engine
// makes of them becomes text, up to a stop string that no token knows.
func Example() {
	model, err := prompt.Load(demo.File, prompt.Parsers{})
	if err != nil {
		fmt.Println(err)
		return
	}
	request := &chat.Request{Model: demo.Name, Turns: []chat.Turn{
		{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "Count!"}}},
	}}
	p, err := model.Build(request, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%q\n", model.Tokenizer.Decode(p.IDs, false))

	// An engine that gives one id at a time.
	var answer iter.Seq2[engine.Delta, error] = func(yield func(engine.Delta, error) bool) {
		for _, id := range model.Tokenizer.Append(nil, "One, two, STOP and three") {
			if !yield(engine.Delta{TokenIDs: []uint32{id}}, nil) {
				fmt.Println("the engine may stop")
				return
			}
		}
	}
	text := ""
	for out, err := range model.Decode(answer, prompt.Decoding{Stop: p.Stop, Strings: []string{"STOP"}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		text += out.Piece.Text
		if out.End != nil {
			fmt.Printf("%q, ended by %q\n", text, out.End.StopText)
		}
	}
	// Output:
	// "<|im_start|>user\nCount!<|im_end|>\n<|im_start|>assistant\n"
	// "One, two, ", ended by "STOP"
	// the engine may stop
}
