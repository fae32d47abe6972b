//go:build e2e

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// setting returns a variable that e2e/backend/run sets.
func setting(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set; start these tests with make backends", name)
	}
	return value
}

// program is a running process that has said on which port it listens.
type program struct {
	cmd  *exec.Cmd
	port string
}

// started starts a program, and returns when it has said what matches.
func started(t *testing.T, says string, name string, args ...string) *program {
	t.Helper()
	var errors bytes.Buffer
	p := &program{cmd: exec.Command(name, args...)}
	p.cmd.Stderr = &errors
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill() //nolint:errcheck // it may have ended
		p.cmd.Wait()         //nolint:errcheck // as it was told to
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(name), &errors)
		}
	})
	pattern := regexp.MustCompile(says)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := pattern.FindStringSubmatch(lines.Text()); m != nil {
			p.port = m[1]
			go func() {
				for lines.Scan() {
				}
			}()
			return p
		}
	}
	t.Fatalf("%s ended:\n%s", name, &errors)
	return nil
}

// worker starts a worker: a script in Python, or this program.
func worker(t *testing.T, script ...string) *program {
	t.Helper()
	const says = `listening on port (\d+)`
	if len(script) == 0 {
		return started(t, says, setting(t, "E2E_TENSORWORKER"), "--listen", "127.0.0.1:0")
	}
	return started(t, says, setting(t, "E2E_BACKEND_PYTHON"), filepath.Join(append([]string{setting(t, "E2E_BACKENDS"), ".."}, script...)...), "--listen", "127.0.0.1:0")
}

// served starts the built binary before workers, and returns its service of KServe when
// their model is ready.
func served(t *testing.T, model string, workers ...*program) inferencepb.GRPCInferenceServiceClient {
	t.Helper()
	args := []string{"serve", "--http-port", "0", "--kserve-grpc-server", "--grpc-port", "0"}
	for _, w := range workers {
		args = append(args, "--engine", "grpc://127.0.0.1:"+w.port)
	}
	p := started(t, `kserve +127\.0\.0\.1:(\d+)`, setting(t, "DYNAGO_BINARY"), args...)
	line, err := grpc.NewClient("passthrough:///127.0.0.1:"+p.port, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	service := inferencepb.NewGRPCInferenceServiceClient(line)
	for end := time.Now().Add(20 * time.Second); ; <-time.After(20 * time.Millisecond) {
		r, err := service.ModelReady(t.Context(), &inferencepb.ModelReadyRequest{Name: model})
		if err == nil && r.Ready {
			return service
		}
		if time.Now().After(end) {
			t.Fatalf("model %s does not become ready: %v, %v", model, r, err)
		}
	}
}

// input is a tensor of a request, whose data go beside it.
func input(name, datatype string, shape ...int64) *inferencepb.ModelInferRequest_InferInputTensor {
	return &inferencepb.ModelInferRequest_InferInputTensor{Name: name, Datatype: datatype, Shape: shape}
}

// octets are the data of a tensor of BYTES.
func octets(elements ...string) (data []byte) {
	for _, e := range elements {
		data = append(binary.LittleEndian.AppendUint32(data, uint32(len(e))), e...)
	}
	return data
}

func parameters(set map[string]any) map[string]*inferencepb.InferParameter {
	all := map[string]*inferencepb.InferParameter{}
	for name, v := range set {
		p := &inferencepb.InferParameter{}
		switch v := v.(type) {
		case bool:
			p.ParameterChoice = &inferencepb.InferParameter_BoolParam{BoolParam: v}
		case int:
			p.ParameterChoice = &inferencepb.InferParameter_Int64Param{Int64Param: int64(v)}
		}
		all[name] = p
	}
	return all
}

// wrong says whether err is of a code and has these texts.
func wrong(err error, code codes.Code, texts ...string) bool {
	for _, text := range texts {
		if !strings.Contains(status.Convert(err).Message(), text) {
			return false
		}
	}
	return status.Code(err) == code
}

// The worker in Go makes one thumbnail for a plain call, and as many as are asked for
// on a stream.
func TestBackendThumbnails(t *testing.T) {
	const model = "example/thumbnails"
	service := served(t, model, worker(t))
	meta, err := service.ModelMetadata(t.Context(), &inferencepb.ModelMetadataRequest{Name: model})
	if err != nil || len(meta.Inputs) != 2 || meta.Inputs[1].Datatype != "INT32" || meta.Outputs[0].Shape[2] != 3 {
		t.Errorf("metadata %v, %v", meta, err)
	}
	ask := func(file []byte, sides ...int32) *inferencepb.ModelInferRequest {
		of := call(file, sides...)
		return &inferencepb.ModelInferRequest{
			ModelName: model, Id: "7",
			Inputs:           []*inferencepb.ModelInferRequest_InferInputTensor{input("image", "BYTES", 1), input("sizes", "INT32", of.Inputs[1].Shape...)},
			RawInputContents: [][]byte{of.Inputs[0].Data, of.Inputs[1].Data},
		}
	}
	file := halves(t, 40, 20)
	one, err := service.ModelInfer(t.Context(), ask(file, 2, 1))
	if err != nil {
		t.Fatal(err)
	}
	if one.Id != "7" || !bytes.Equal(one.RawOutputContents[0], []byte{200, 0, 0, 0, 0, 100}) || one.Parameters["index"].GetInt64Param() != 0 {
		t.Errorf("one thumbnail: %v", one)
	}
	if _, err := service.ModelInfer(t.Context(), ask(file, 2, 1, 1, 1)); !wrong(err, codes.Internal, "Multiple responses in non-streaming mode") {
		t.Errorf("two thumbnails of a plain call: %v", err)
	}
	if _, err := service.ModelInfer(t.Context(), ask([]byte("text"), 2, 1)); !wrong(err, codes.InvalidArgument, "want a PNG, JPEG or GIF") {
		t.Errorf("a text as picture: %v", err)
	}

	stream, err := service.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	several := ask(file, 2, 1, 4, 4, 30, 10)
	several.Parameters = parameters(map[string]any{"triton_enable_empty_final_response": true})
	if err := stream.Send(several); err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{2 * 1 * 3, 4 * 4 * 3, 30 * 10 * 3} {
		m, err := stream.Recv()
		r := m.GetInferResponse()
		if err != nil || m.ErrorMessage != "" || len(r.RawOutputContents) != 1 || len(r.RawOutputContents[0]) != size || r.Parameters["triton_final_response"].GetBoolParam() {
			t.Fatalf("thumbnail %d: %v, %v", i, m, err)
		}
	}
	m, err := stream.Recv()
	if r := m.GetInferResponse(); err != nil || len(r.Outputs) != 0 || !r.Parameters["triton_final_response"].GetBoolParam() {
		t.Errorf("the end: %v, %v", m, err)
	}
}

// The worker in Python describes itself in Triton's words, and puts like texts near
// each other.
func TestBackendEmbeddings(t *testing.T) {
	const model = "example/embed"
	service := served(t, model, worker(t, "tensorworker-python", "embed.py"))
	config, err := service.ModelConfig(t.Context(), &inferencepb.ModelConfigRequest{Name: model})
	if err != nil || config.Config.MaxBatchSize != 512 || config.Config.Parameters["normalized"].GetStringValue() != "true" || config.Config.Backend != "python" {
		t.Errorf("config %v, %v", config, err)
	}
	meta, err := service.ModelMetadata(t.Context(), &inferencepb.ModelMetadataRequest{Name: model})
	if err != nil || fmt.Sprintln(meta.Inputs[0].Datatype, meta.Inputs[0].Shape, meta.Outputs[0].Shape) != "BYTES [-1 1] [-1 256]\n" {
		t.Errorf("metadata %v, %v", meta, err)
	}
	texts := []string{"The river crosses the city of Lyon", "Rivers cross cities, as in Lyon", "def main(): return 0", ""}
	raw, err := service.ModelInfer(t.Context(), &inferencepb.ModelInferRequest{
		ModelName: model, Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{input("text", "BYTES", 4, 1)}, RawInputContents: [][]byte{octets(texts...)},
	})
	if err != nil {
		t.Fatal(err)
	}
	vectors := make([][]float64, len(texts))
	for i := range vectors {
		for at := i * 256 * 4; at < (i+1)*256*4; at += 4 {
			vectors[i] = append(vectors[i], float64(math.Float32frombits(binary.LittleEndian.Uint32(raw.RawOutputContents[0][at:]))))
		}
	}
	dot := func(a, b []float64) (sum float64) {
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	near, far := dot(vectors[0], vectors[1]), dot(vectors[0], vectors[2])
	if near < far+0.2 || math.Abs(dot(vectors[1], vectors[1])-1) > 1e-5 || dot(vectors[3], vectors[3]) != 0 {
		t.Errorf("near %v, far %v, length %v", near, far, dot(vectors[1], vectors[1]))
	}
	typed := input("text", "BYTES", 4)
	typed.Contents = &inferencepb.InferTensorContents{}
	for _, text := range texts {
		typed.Contents.BytesContents = append(typed.Contents.BytesContents, []byte(text))
	}
	answer, err := service.ModelInfer(t.Context(), &inferencepb.ModelInferRequest{ModelName: model, Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{typed}})
	if err != nil || len(answer.RawOutputContents) != 0 || len(answer.Outputs[0].Contents.Fp32Contents) != 4*256 || float64(answer.Outputs[0].Contents.Fp32Contents[300]) != vectors[1][44] {
		t.Errorf("typed: %v, %v", answer.GetOutputs(), err)
	}
	number := input("text", "INT32", 1)
	number.Contents = &inferencepb.InferTensorContents{IntContents: []int32{1}}
	if _, err := service.ModelInfer(t.Context(), &inferencepb.ModelInferRequest{ModelName: model, Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{number}}); !wrong(err, codes.InvalidArgument, "want one input 'text' of BYTES") {
		t.Errorf("a number as text: %v", err)
	}
}

// A worker that fails in the ways in which workers fail is told apart from clients that
// do.
func TestBackendEchoFails(t *testing.T) {
	const model = "example/echo"
	service := served(t, model, worker(t, "backend", "tensors.py"))
	ask := func(set map[string]any) *inferencepb.ModelInferRequest {
		return &inferencepb.ModelInferRequest{
			ModelName: model, Parameters: parameters(set),
			Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{input("x", "INT16", 2)}, RawInputContents: [][]byte{{1, 2, 3, 4}},
		}
	}
	ok, err := service.ModelInfer(t.Context(), ask(map[string]any{"k": 3}))
	if err != nil || !ok.Parameters["processed"].GetBoolParam() || ok.Parameters["k"].GetInt64Param() != 3 || !bytes.Equal(ok.RawOutputContents[0], []byte{1, 2, 3, 4}) {
		t.Errorf("%v, %v", ok, err)
	}
	for set, texts := range map[string][]string{
		"malformed_response": {"missing field", "data_type"},
		"data_mismatch":      {"shape implies 2 elements but data has 0"},
		"raise_exception":    {"Failed to generate tensor response stream", "the request asked for it"},
	} {
		if _, err := service.ModelInfer(t.Context(), ask(map[string]any{set: true})); !wrong(err, codes.Internal, texts...) {
			t.Errorf("%s: %v", set, err)
		}
		stream, err := service.ModelStreamInfer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*inferencepb.ModelInferRequest{ask(map[string]any{set: true}), ask(nil)} {
			if err := stream.Send(r); err != nil {
				t.Fatal(err)
			}
			m, err := stream.Recv()
			if failed := r.Parameters[set] != nil; err != nil || (m.ErrorMessage != "") != failed || failed && !strings.Contains(m.ErrorMessage, texts[0]) {
				t.Errorf("%s on a stream: %v, %v", set, m, err)
			}
		}
	}
	if _, err := service.ModelInfer(t.Context(), ask(map[string]any{"repeat": 0})); !wrong(err, codes.Internal, "No response received") {
		t.Errorf("no response: %v", err)
	}
}

// A worker that is killed under its calls fails those that have begun, soon, and costs
// others nothing while there is another one.
func TestBackendTensorWorkerKilled(t *testing.T) {
	const model = "example/echo"
	first, second := worker(t, "backend", "tensors.py"), worker(t, "backend", "tensors.py")
	service := served(t, model, first, second)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ask := func(repeat int) *inferencepb.ModelInferRequest {
		return &inferencepb.ModelInferRequest{
			ModelName: model, Parameters: parameters(map[string]any{"repeat": repeat}),
			Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{input("x", "UINT8", 1)}, RawInputContents: [][]byte{{1}},
		}
	}
	// Two calls that never end: one on each worker.
	stream, err := service.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		r := ask(math.MaxInt32)
		r.Id = id
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	begun := map[string]int{}
	for len(begun) < 2 {
		m, err := stream.Recv()
		if err != nil || m.ErrorMessage != "" {
			t.Fatalf("%v, %v", m, err)
		}
		begun[m.InferResponse.Id]++
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := service.ModelInfer(ctx, ask(1)); err != nil {
			t.Errorf("a call beside the dead worker: %v", err)
		}
	}
	failed := ""
	for failed == "" {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.ErrorMessage != "" {
			failed = m.InferResponse.Id
		}
	}
	m, err := stream.Recv()
	if err != nil || m.InferResponse.Id == failed || m.ErrorMessage != "" {
		t.Errorf("beside the call that has failed: %v, %v", m, err)
	}
}

// What a client of Triton sends comes to the worker byte for byte, and comes back.
func TestBackendLargeTensors(t *testing.T) {
	const model = "example/echo"
	service := served(t, model, worker(t, "backend", "tensors.py"))
	data := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 8<<20)
	r, err := service.ModelInfer(t.Context(), &inferencepb.ModelInferRequest{
		ModelName: model, Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{input("x", "FP64", 8<<20)}, RawInputContents: [][]byte{data},
	})
	if err != nil || !bytes.Equal(r.RawOutputContents[0], data) || proto.Size(r) < 64<<20 {
		t.Errorf("%d bytes, %v", proto.Size(r), err)
	}
}
