package attach_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/vllm"
)

func Example() {
	server, err := vllm.New(vllm.Config{Mock: mock.Config{Model: "m", Args: args()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	h := httptest.NewServer(server)
	defer h.Close()

	spec, err := attach.Parse("auto=" + h.URL + ",model=m,model_path=/models/m")
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := attach.New(spec, attach.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	for st := range e.Card(context.Background()) {
		fmt.Println(st.State, st.Card.Engine, st.Card.Model, st.Card.Files[0].URI)
		break
	}
	_, err = attach.Parse("vllm=http://10.0.0.1:8000,block_size=big")
	fmt.Println(err)
	// Output:
	// ready vllm 0.31.0 m /models/m
	// block_size: "big": want 1..1048576
}
