package echo_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/echo"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/internal/gen/inferencepb"
)

func worker(t testing.TB) *echo.Engine {
	e, err := echo.New("echo")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestContract(t *testing.T) {
	enginetest.Run(t, enginetest.Subject{New: func(t *testing.T) engine.Engine { return worker(t) }})
}

func request(p engine.Parameters) *engine.TensorRequest {
	return &engine.TensorRequest{ID: "1", Model: "echo", Parameters: p, Inputs: []engine.Tensor{
		{Name: "a", Datatype: "INT32", Shape: []int64{1}, Data: []byte{1, 2, 3, 4}},
		{Name: "b", Datatype: "BYTES", Shape: []int64{1}, Data: []byte{0, 0, 0, 0}},
	}}
}

func TestFailures(t *testing.T) {
	for name, want := range map[string]struct {
		datatype string
		data     int
		kind     engine.ErrorKind
	}{
		"else":         {datatype: "INT32", data: 4},
		echo.Malformed: {datatype: "", data: 4},
		echo.Mismatch:  {datatype: "INT32", data: 0},
		echo.Raise:     {kind: engine.Internal},
	} {
		r := request(engine.Parameters{name: false})
		for got, err := range worker(t).Infer(t.Context(), r) {
			switch {
			case engine.KindOf(err) != want.kind && err != nil:
				t.Errorf("%s: %v", name, err)
			case err != nil:
			case want.kind != "":
				t.Errorf("%s: no error", name)
			case got.Outputs[0].Datatype != want.datatype || len(got.Outputs[0].Data) != want.data || got.Outputs[1].Check() != nil:
				t.Errorf("%s: %+v", name, got)
			case got.Parameters[name] != false || got.Parameters[echo.Processed] != true:
				t.Errorf("%s: parameters %v", name, got.Parameters)
			}
		}
		if r.Inputs[0].Check() != nil || len(r.Parameters) != 1 {
			t.Errorf("%s: the request has changed: %+v", name, r)
		}
	}
}

// Not a byte of the tensors is copied.
func TestSameBytes(t *testing.T) {
	r := request(nil)
	for got, err := range worker(t).Infer(t.Context(), r) {
		if err != nil || &got.Outputs[0].Data[0] != &r.Inputs[0].Data[0] {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestConfig(t *testing.T) {
	for s, err := range worker(t).Card(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		var m inferencepb.ModelConfig
		if err := proto.Unmarshal(s.Card.Tensor.Triton, &m); err != nil {
			t.Fatal(err)
		}
		if m.Name != "echo" || len(m.Input) != 2 || !m.Input[1].Optional || len(m.Output) != 1 || !m.ModelTransactionPolicy.Decoupled {
			t.Errorf("config %v", &m)
		}
		break
	}
}

func Example() {
	e, err := echo.New("echo")
	if err != nil {
		fmt.Println(err)
		return
	}
	r := &engine.TensorRequest{Inputs: []engine.Tensor{{Name: "x", Datatype: "UINT8", Shape: []int64{2}, Data: []byte{3, 4}}}}
	for answer, err := range e.Infer(context.Background(), r) {
		fmt.Println(answer.Outputs[0].Name, answer.Outputs[0].Data, answer.Parameters, err)
	}
	// Output: x [3 4] map[processed:true] <nil>
}
