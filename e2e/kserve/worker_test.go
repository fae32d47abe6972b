//go:build e2e

package kserve_test

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// stranger is a worker of tensors as a user writes one, over the stubs alone. Its
// configuration is Triton's, with what no version of it knows yet; calls with the
// parameter hang have no end.
type stranger struct {
	workerpb.UnimplementedWorkerServer
	config []byte
}

const strangers = "example/stranger"

func (w *stranger) Describe(_ *workerpb.DescribeRequest, out grpc.ServerStreamingServer[workerpb.Description]) error {
	for {
		err := out.Send(&workerpb.Description{
			Protocol: 1, Epoch: 1, Revision: 1, State: workerpb.State_STATE_READY,
			Card: &workerpb.Card{
				Model: strangers, Engine: "stranger", Accepts: []workerpb.Input{workerpb.Input_INPUT_TENSOR},
				Tensor: &workerpb.TensorConfig{TritonModelConfig: w.config},
			},
		})
		if err != nil {
			return err
		}
		select {
		case <-out.Context().Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func (w *stranger) TensorInfer(calls grpc.BidiStreamingServer[workerpb.TensorCall, workerpb.TensorReply]) error {
	var writing sync.Mutex
	reply := func(r *workerpb.TensorReply) {
		writing.Lock()
		defer writing.Unlock()
		_ = calls.Send(r) // who has left needs no answer
	}
	hanging := false
	for {
		c, err := calls.Recv()
		if err == io.EOF && hanging {
			<-calls.Context().Done()
			return nil
		} else if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		r := c.GetRequest()
		if _, hangs := r.GetParameters()["hang"]; r == nil || hangs {
			hanging = true
			continue
		}
		reply(&workerpb.TensorReply{Call: c.Call, What: &workerpb.TensorReply_Response{Response: &workerpb.TensorResponse{Id: r.Id, Model: r.Model, Outputs: r.Inputs}}})
		reply(&workerpb.TensorReply{Call: c.Call, What: &workerpb.TensorReply_End{End: &workerpb.Error{}}})
	}
}

// strangersConfig is what the worker registers.
func strangersConfig(t *testing.T) []byte {
	t.Helper()
	b, err := proto.Marshal(&inferencepb.ModelConfig{
		Name: "inner-name", Platform: "onnxruntime_onnx", Backend: "onnxruntime", MaxBatchSize: 8,
		Input: []*inferencepb.ModelInput{
			{Name: "pixels", DataType: inferencepb.DataType_TYPE_FP16, Format: inferencepb.ModelInput_FORMAT_NCHW, Dims: []int64{3, -1, -1}},
			{Name: "caption", DataType: inferencepb.DataType_TYPE_STRING, Dims: []int64{1}, Optional: true},
		},
		Output:                 []*inferencepb.ModelOutput{{Name: "scores", DataType: inferencepb.DataType_TYPE_BF16, Dims: []int64{1000}, LabelFilename: "labels.txt"}},
		InstanceGroup:          []*inferencepb.ModelInstanceGroup{{Name: "gpu", Count: 2, Gpus: []int32{0, 1}, Kind: inferencepb.ModelInstanceGroup_KIND_GPU}},
		SchedulingChoice:       &inferencepb.ModelConfig_DynamicBatching{DynamicBatching: &inferencepb.ModelDynamicBatching{PreferredBatchSize: []int32{4, 8}, MaxQueueDelayMicroseconds: 100}},
		Parameters:             map[string]*inferencepb.ModelParameter{"threads": {StringValue: "4"}},
		ModelTransactionPolicy: &inferencepb.ModelTransactionPolicy{Decoupled: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	b = protowire.AppendTag(b, 4000, protowire.BytesType)
	return protowire.AppendString(b, "of a later version")
}

// served starts a worker with this configuration, and a server before it.
func served(t *testing.T, config []byte) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	workerpb.RegisterWorkerServer(g, &stranger{config: config})
	go g.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(g.Stop)
	return serve(t, "--engine", "grpc://"+l.Addr().String())
}

// What a worker has registered comes back bit by bit, and its calls end when their
// clients leave.
func TestStranger(t *testing.T) {
	registered := strangersConfig(t)
	s := served(t, registered)
	s.python(t, "grpc_stranger", "DYNAGO_MODEL="+strangers, "DYNAGO_CONFIG="+hex.EncodeToString(registered))

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	m, err := dial(t, s.grpc).ModelConfig(ctx, &inferencepb.ModelConfigRequest{Name: strangers})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := (proto.MarshalOptions{Deterministic: true}).Marshal(m.Config); err != nil || string(got) != string(registered) {
		t.Errorf("registered\n%x\nanswered\n%x", registered, got)
	}
}

// A model whose configuration cannot be read, or is not there, is served all the same.
func TestBadConfig(t *testing.T) {
	for want, config := range map[string][]byte{"failed to decode Protobuf message": {0xff, 0xff}, "no model config is provided": nil} {
		c := dial(t, served(t, config).grpc)
		for name, ask := range map[string]func() error{
			"config": func() error {
				_, err := c.ModelConfig(t.Context(), &inferencepb.ModelConfigRequest{Name: strangers})
				return err
			},
			"metadata": func() error {
				_, err := c.ModelMetadata(t.Context(), &inferencepb.ModelMetadataRequest{Name: strangers})
				return err
			},
		} {
			if err := ask(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
		r := &inferencepb.ModelInferRequest{
			ModelName: strangers, Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8", Shape: []int64{1}}}, RawInputContents: [][]byte{{7}},
		}
		if m, err := c.ModelInfer(t.Context(), r); err != nil || string(outputs(m)["x"]) != "\a" {
			t.Errorf("%v %v", m, err)
		}
	}
}
