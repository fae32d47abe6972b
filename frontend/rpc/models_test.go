package rpc_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/frontend/rpc"
	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

func TestReadiness(t *testing.T) {
	h := open(t, nil)
	ctx := t.Context()
	if out, err := h.ServerLive(ctx, &pb.ServerLiveRequest{}); err != nil || !out.GetLive() {
		t.Errorf("%v %v", out, err)
	}
	for _, ready := range []bool{true, false} {
		h.fake.setReady(ready)
		if out, err := h.ServerReady(ctx, &pb.ServerReadyRequest{}); err != nil || out.GetReady() != ready {
			t.Errorf("the server: %v %v, want %v", out, err, ready)
		}
		for model, want := range map[string]bool{"words": ready, "echo": false, "nobody": false, "": false} {
			if out, err := h.ModelReady(ctx, &pb.ModelReadyRequest{Name: model, Version: "7"}); err != nil || out.GetReady() != want {
				t.Errorf("%s: %v %v, want %v", model, out, err, want)
			}
		}
	}
}

func TestServerMetadata(t *testing.T) {
	for rest, want := range map[bool][]string{
		false: {"model_configuration", "parameters", "statistics"},
		true:  {"model_configuration", "parameters", "statistics", "binary_tensor_data"},
	} {
		h := open(t, func(_ *frontend.Config, c *rpc.Config) { c.REST = rest })
		out, err := h.ServerMetadata(t.Context(), &pb.ServerMetadataRequest{})
		if err != nil || out.GetName() != "dynago" || out.GetVersion() != "1.2.3" || !slices.Equal(out.GetExtensions(), want) {
			t.Errorf("%v %v, want %q", out, err, want)
		}
	}
}

func TestModelMetadata(t *testing.T) {
	h := open(t, nil)
	out, err := h.ModelMetadata(t.Context(), &pb.ModelMetadataRequest{Name: "words"})
	if err != nil || out.GetName() != "words" || out.GetPlatform() != "dynamo" || len(out.GetInputs()) != 2 || out.GetInputs()[0].GetName() != "text_input" {
		t.Errorf("%v %v", out, err)
	}
	config, err := h.ModelConfig(t.Context(), &pb.ModelConfigRequest{Name: "echo"})
	if err != nil || config.GetConfig().GetName() != "echo" || config.GetConfig().GetInput()[0].GetDataType() != pb.DataType_TYPE_FP32 {
		t.Errorf("%v %v", config, err)
	}
	_, first := h.ModelMetadata(t.Context(), &pb.ModelMetadataRequest{Name: "nobody"})
	_, second := h.ModelConfig(t.Context(), &pb.ModelConfigRequest{Name: "nobody"})
	for _, err := range []error{first, second} {
		if status.Code(err) != codes.NotFound || status.Convert(err).Message() != "Model 'nobody' not found" {
			t.Error(err)
		}
	}
}

func TestRepositoryIndex(t *testing.T) {
	h := open(t, nil)
	list := func(in *pb.RepositoryIndexRequest) (rows []string) {
		out, err := h.RepositoryIndex(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out.GetModels() {
			rows = append(rows, m.GetName()+" "+m.GetVersion()+" "+m.GetState()+" "+m.GetReason())
		}
		return rows
	}
	if got, want := list(&pb.RepositoryIndexRequest{}), []string{"echo 1 UNAVAILABLE missing worker types: prefill", "words 1 READY "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := list(&pb.RepositoryIndexRequest{Ready: true}), []string{"words 1 READY "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	_, err := h.RepositoryIndex(t.Context(), &pb.RepositoryIndexRequest{RepositoryName: "other"})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "'repository_name' specification is not supported") {
		t.Error(err)
	}
}

// Statistics add up over calls, and never go back.
func TestModelStatistics(t *testing.T) {
	h := open(t, nil)
	read := func(name string) *pb.ModelStatistics {
		t.Helper()
		out, err := h.ModelStatistics(t.Context(), &pb.ModelStatisticsRequest{Name: name})
		if err != nil || len(out.GetModelStats()) != 1 {
			t.Fatal(out, err)
		}
		return out.GetModelStats()[0]
	}
	if s := read("words"); s.GetInferenceCount() != 0 || s.GetLastInference() != 0 || s.GetInferenceStats().GetSuccess().GetCount() != 0 {
		t.Errorf("before any call: %v", s)
	}
	for _, in := range []*pb.ModelInferRequest{text("", "one"), text("", "two"), text("", "refuse"), {ModelName: "words"}} {
		h.ModelInfer(t.Context(), in) //nolint:errcheck // two fail
	}
	until(t, "all are counted", func() bool { return read("words").GetInferenceStats().GetFail().GetCount() == 2 })
	s := read("words")
	i := s.GetInferenceStats()
	if s.GetName() != "words" || s.GetVersion() != "1" || s.GetInferenceCount() != 2 || s.GetExecutionCount() != 2 || s.GetLastInference() == 0 {
		t.Errorf("%v", s)
	}
	// Each has been in a queue for a millisecond, so its books say.
	success, queue, infer := i.GetSuccess(), i.GetQueue(), i.GetComputeInfer()
	if success.GetCount() != 2 || queue.GetCount() != 2 || infer.GetCount() != 2 || success.GetNs() != queue.GetNs()+infer.GetNs() || queue.GetNs() == 0 || i.GetFail().GetNs() == 0 {
		t.Errorf("%v", i)
	}
	if out, err := h.ModelStatistics(t.Context(), &pb.ModelStatisticsRequest{}); err != nil || len(out.GetModelStats()) != 2 {
		t.Errorf("of all models: %v %v", out, err)
	}
	if _, err := h.ModelStatistics(t.Context(), &pb.ModelStatisticsRequest{Name: "nobody"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

// Every method of the service answers, or says by its name that it is not there.
func TestUnsupported(t *testing.T) {
	h := open(t, nil)
	served := []string{
		"ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer", "ModelConfig", "ModelStatistics", "RepositoryIndex",
	}
	methods := pb.GRPCInferenceService_ServiceDesc.Methods
	if len(methods) != 19 {
		t.Errorf("%d methods with one answer, want 19", len(methods))
	}
	client := reflect.ValueOf(h.GRPCInferenceServiceClient)
	for _, m := range methods {
		call := client.MethodByName(m.MethodName)
		in := reflect.New(call.Type().In(1).Elem())
		err, _ := call.Call([]reflect.Value{reflect.ValueOf(t.Context()), in})[1].Interface().(error)
		switch code := status.Code(err); {
		case slices.Contains(served, m.MethodName):
			if code == codes.Unimplemented {
				t.Errorf("%s: %v", m.MethodName, err)
			}
		case code != codes.Unimplemented || status.Convert(err).Message() != m.MethodName+" is not supported by this server":
			t.Errorf("%s: %v", m.MethodName, err)
		}
	}
}
