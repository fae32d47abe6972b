package pipeline_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

// A fleet of one worker, a router over it, and the pipeline that joins them. The
// worker thinks, and then calls a tool: raw text there, blocks here.
func Example() {
	workers := fleet.New(fleet.Config{})
	defer workers.Close()
	p := pipeline.New(pipeline.Config{
		Fleet:  workers,
		Router: must(router.New(router.Config{}, workers)),
		Load:   func(*engine.Card) (*prompt.Model, error) { return demoModel() },
	})

	model := must(demoModel())
	changed := workers.Changed()
	worker := must(workers.Add(fleet.Entry{Name: "mock-0", Engine: must(mock.New(mock.Config{
		Model: demo.Name, Encode: model.Tokenizer.Append, EOS: model.EOS,
		Script: must(mock.LoadScript(strings.NewReader(
			`default: {emit: "<think>\nHm.\n</think>\n\n<tool_call>\n{\"name\": \"ls\", \"arguments\": {}}\n</tool_call>"}`,
		))),
	}))}))
	for !worker.Ready() {
		<-changed
		changed = workers.Changed()
	}

	answers, err := chat.Fold(p.Run(context.Background(), &pipeline.Request{
		ID: "7d1f0c9e-52a5-4d0e-9c5e-0f3c1f6a2b11",
		Chat: &chat.Request{
			Model: demo.Name,
			Turns: []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "What is here?"}}}},
			Tools: []chat.Tool{{Name: "ls", Wire: []byte(`{"type":"function","function":{"name":"ls"}}`)}},
		},
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, b := range answers[0].Blocks {
		if b.Use != nil {
			fmt.Println(b.Kind, b.Use.Name, b.Use.Args)
			continue
		}
		fmt.Println(b.Kind, b.Text)
	}
	fmt.Println(answers[0].Finish.Reason)
	// Output:
	// thinking Hm.
	// tool_use ls {}
	// tool_use
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
