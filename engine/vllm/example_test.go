package vllm_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/vllm"
	fake "github.com/dynago/dynago/internal/fake/vllm"
)

func Example() {
	server, err := fake.New(fake.Config{Mock: mock.Config{Model: "m", Args: args(), Source: mock.SourceEcho}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	h := httptest.NewServer(server)
	defer h.Close()

	e, err := vllm.New(vllm.Config{URL: h.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	ctx := context.Background()
	for st := range e.Card(ctx) {
		fmt.Println(st.State, st.Card.Engine, st.Card.BlockSize)
		break
	}
	r := &engine.Request{ID: "u-1", TokenIDs: []uint32{3, 1, 4}, Stop: engine.Stop{MaxTokens: 2}}
	for d, err := range e.Generate(ctx, r) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if d.Finish != engine.Running {
			fmt.Println(d.Finish, d.Usage.Output)
		}
	}
	// Output:
	// ready vllm 0.31.0 16
	// length 2
}
