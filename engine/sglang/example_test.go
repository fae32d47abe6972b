package sglang_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/sglang"
	fake "github.com/dynago/dynago/internal/fake/sglang"
)

func Example() {
	args := mock.DefaultArgs()
	args.SpeedupRatio = 0
	server, err := fake.New(fake.Config{Mock: mock.Config{Model: "m", Args: args, Source: mock.SourceEcho}})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	hs := httptest.NewServer(server)
	defer hs.Close()

	e, err := sglang.New(sglang.Config{HTTP: httpapi.Config{URL: hs.URL}})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	var ids []uint32
	for d, err := range e.Generate(context.Background(), &engine.Request{
		ID: "r-1", TokenIDs: []uint32{4, 5, 6}, Stop: engine.Stop{MaxTokens: 3},
	}) {
		if err != nil {
			panic(err)
		}
		ids = append(ids, d.TokenIDs...)
		if d.Finish != engine.Running {
			fmt.Println(ids, d.Finish)
		}
	}
	// Output: [4 5 6] length
}
