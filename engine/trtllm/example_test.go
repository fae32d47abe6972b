package trtllm_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/trtllm"
)

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"choices\":[{\"token_ids\":[11,12],\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	e, err := trtllm.New(trtllm.Config{Config: httpapi.Config{URL: server.URL}, ContextLength: 4096})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	for d, err := range e.Generate(context.Background(), &engine.Request{TokenIDs: []uint32{1, 2}, Stop: engine.Stop{MaxTokens: 2}}) {
		fmt.Println(d.TokenIDs, d.Finish, err)
	}
	// Output:
	// [11 12]  <nil>
	// [] length <nil>
}
