package rpc_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/frontend/rpc"
	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

func TestModelInfer(t *testing.T) {
	h := open(t, nil)
	out, err := h.ModelInfer(t.Context(), text("job-7", "dummy input"))
	if err != nil {
		t.Fatal(err)
	}
	if out.GetId() != "job-7" || out.GetModelName() != "words" || out.GetModelVersion() != "1" || len(out.GetOutputs()) != 2 || len(out.GetRawOutputContents()) != 0 {
		t.Errorf("%v", out)
	}
	if got := out.GetOutputs()[0]; got.GetName() != "text_output" || string(got.GetContents().GetBytesContents()[0]) != "dummyinput" {
		t.Errorf("%v", got)
	}
	if _, ok := out.GetParameters()["triton_final_response"]; ok {
		t.Error("an answer that is alone has the flag of streams")
	}
	if out, err = h.ModelInfer(t.Context(), tensors("raw", 1)); err != nil || len(out.GetRawOutputContents()) != 1 || out.GetModelName() != "echo" {
		t.Errorf("%v %v", out, err)
	}
	page := h.metrics()
	for _, want := range []string{
		`dynamo_frontend_requests_total{endpoint="tensor",error_type="",model="echo",request_type="unary",status="success"} 1`,
		`dynamo_frontend_output_sequence_tokens_count{model="words"} 1`,
		`dynamo_frontend_output_sequence_tokens_count{model="echo"} 0`, // tensors have no tokens
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s in\n%s", want, grep(page, "_requests_total", "output_sequence"))
		}
	}
}

// What cannot be answered has its code and its words.
func TestModelInferErrors(t *testing.T) {
	h := open(t, nil)
	for name, c := range map[string]struct {
		in      *pb.ModelInferRequest
		code    codes.Code
		message string
		kind    string // in metrics
	}{
		"no model":        {&pb.ModelInferRequest{ModelName: "nobody"}, codes.NotFound, "Model 'nobody' not found", "not_found"},
		"no inputs":       {&pb.ModelInferRequest{ModelName: "words"}, codes.InvalidArgument, "Failed to parse request: Missing required input: 'text_input'", "validation"},
		"pieces":          {pieces("", "dummy input"), codes.InvalidArgument, "Streaming is not supported for this endpoint: use ModelStreamInfer or generate_stream", "validation"},
		"refused":         {text("", "refuse"), codes.Internal, "Failed to generate completions: the engine is broken", "internal"},
		"broken":          {text("", "dummy break"), codes.Internal, "Failed to fold completions stream: the engine is broken", "internal"},
		"vanished":        {text("", "vanished"), codes.NotFound, "model not found: The model `words` does not exist", "not_found"},
		"busy":            {text("", "busy"), codes.ResourceExhausted, "Service temporarily overloaded", "overload"},
		"panic":           {text("", "panic"), codes.Internal, "Internal server error", "internal"},
		"no tensors":      {tensors("", 0), codes.Internal, "Failed to generate tensor response stream: No response received", "internal"},
		"too many":        {tensors("", 2), codes.Internal, "Failed to generate tensor response stream: Multiple responses in non-streaming mode", "internal"},
		"failing tensors": {with(tensors("", 0), "fail", true), codes.Internal, "Failed to generate tensor response stream: the worker has raised", "internal"},
		"bad tensors":     {with(tensors("", 1), "bad", true), codes.Internal, "Failed to parse response: parameter 'bad' is not valid UTF-8", "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			before := strings.Count(h.log.String(), "error_type="+c.kind)
			_, err := h.ModelInfer(t.Context(), c.in)
			if status.Code(err) != c.code || status.Convert(err).Message() != c.message {
				t.Errorf("%v, want %v %s", err, c.code, c.message)
			}
			if after := strings.Count(h.log.String(), "error_type="+c.kind); after != before+1 {
				t.Errorf("%d are logged as %s", after-before, c.kind)
			}
		})
	}
	page := h.metrics()
	for _, want := range []string{
		`dynamo_frontend_requests_total{endpoint="completions",error_type="not_found",model="unknown_model",request_type="unary",status="error"} 1`,
		`dynamo_frontend_requests_total{endpoint="completions",error_type="validation",model="words",request_type="unary",status="error"} 2`,
		`dynamo_frontend_requests_total{endpoint="tensor",error_type="internal",model="echo",request_type="unary",status="error"} 4`,
		`dynamo_frontend_model_rejection_total{endpoint="completions",model="words"} 1`,
		`dynamo_frontend_inflight_requests{model="words"} 0`,
		`dynamo_frontend_queued_requests{model="words"} 0`,
		`dynamo_frontend_queued_requests{model="echo"} 0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s in\n%s", want, grep(page, "_requests_total", "rejection", "inflight", "queued"))
		}
	}
}

// Cancelling a call, or letting its time run out, kills what it has begun.
func TestModelInferCancelled(t *testing.T) {
	h := open(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.ModelInfer(ctx, text("", "forever")); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	gone, leave := context.WithCancel(t.Context())
	go func() {
		until(t, "both run", func() bool { return len(h.fake.requests()) == 2 })
		leave()
	}()
	if _, err := h.ModelInfer(gone, text("", "forever")); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	until(t, "both are killed and counted", func() bool {
		return len(h.fake.ends()) == 2 && strings.Contains(h.metrics(), `dynamo_frontend_model_cancellation_total{endpoint="grpc_completions",model="words",request_type="unary"} 2`)
	})
}

// TestTimeIsOver: a client whose own clock is slow is told that the time of its call is
// over, and does not find the call reset. This one has no clock at all.
func TestTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil)
		line := &http.Transport{
			Protocols:   new(http.Protocols),
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return h.line.DialContext(ctx) },
		}
		line.Protocols.SetUnencryptedHTTP2(true)
		defer line.CloseIdleConnections()
		forever, err := proto.Marshal(text("", "forever"))
		if err != nil {
			t.Fatal(err)
		}
		const most = 20 * time.Millisecond
		for method, message := range map[string][]byte{
			pb.GRPCInferenceService_ModelInfer_FullMethodName:       forever,
			pb.GRPCInferenceService_ModelStreamInfer_FullMethodName: forever,
			healthpb.Health_Watch_FullMethodName:                    nil,
		} {
			for _, given := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 10 * time.Second} {
				var body io.Reader = bytes.NewReader(slices.Concat([]byte{0}, binary.BigEndian.AppendUint32(nil, uint32(len(message))), message))
				if method == pb.GRPCInferenceService_ModelStreamInfer_FullMethodName {
					more, _ := io.Pipe() // it has no end
					body = struct {
						io.Reader
						io.Closer
					}{io.MultiReader(body, more), more}
				}
				r, err := http.NewRequest(http.MethodPost, "http://house"+method, body)
				if err != nil {
					t.Fatal(err)
				}
				r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Grpc-Timeout": {fmt.Sprintf("%du", given.Microseconds())}}
				began := time.Now()
				resp, err := line.RoundTrip(r)
				if err != nil {
					t.Errorf("%s, %v: %v", method, given, err)
					continue
				}
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				code := cmp.Or(resp.Header.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Status"))
				if took := time.Since(began); err != nil || code != "4" || took >= given || took < given-min(given/16, most) {
					t.Errorf("%s, %v: after %v: status %q, %v", method, given, took, code, err)
				}
			}
		}
	})
}

// A client can bound its call by a parameter as well.
func TestTimeoutParameter(t *testing.T) {
	h := open(t, nil)
	in := text("", "dummy input")
	in.Parameters = map[string]*pb.InferParameter{"timeout": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 1_500_000}}}
	if _, err := h.ModelInfer(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	r := h.fake.requests()[0]
	if got := r.Deadline.Sub(r.Arrived); got != 1500*time.Millisecond {
		t.Errorf("the deadline is %v after the arrival", got)
	}
}

// What metadata says is what headers say.
func TestMetadata(t *testing.T) {
	h := open(t, nil)
	ctx := metadata.AppendToOutgoingContext(
		t.Context(),
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate", "a=b",
		"x-request-id", "corr-1", "x-dynamo-session-id", "chain-1", "x-dynamo-parent-session-id", "chain-0",
		"x-dynamo-request-priority", "7", "x-dynamo-meta-policy-class", " batch ", "x-dynamo-meta-a", "first", "x-dynamo-meta-a", "second",
		"x-tenant-id", "acme", "x-dynamo-worker-instance-id", "42",
		"x-dynamo-meta-authorization", "secret", "x-dynamo-meta-b", "Bearer secret", "x-dynamo-meta-c-bin", "text",
	)
	const id = "0AF7651916CD43DD8448EB211C80319C"
	if out, err := h.ModelInfer(ctx, text(id, "dummy input")); err != nil || out.GetId() != id {
		t.Fatal(out, err)
	}
	r := h.fake.requests()[0]
	if r.ID != "0af76519-16cd-43dd-8448-eb211c80319c" {
		t.Errorf("id %s", r.ID)
	}
	if r.Trace.Parent == "" || r.Trace.State != "a=b" {
		t.Errorf("trace %+v", r.Trace)
	}
	if r.Identity.Chain != "chain-1" || r.Identity.Parent != "chain-0" || r.KV.Session.ID != "chain-1" {
		t.Errorf("identity %+v %+v", r.Identity, r.KV)
	}
	if r.KV.Priority == nil || *r.KV.Priority != 7 || r.Class != "batch" {
		t.Errorf("priority %v class %q", r.KV.Priority, r.Class)
	}
	if r.KV.Namespace.Salt != "acme" || r.Ext.BackendInstanceID == nil || *r.Ext.BackendInstanceID != 42 {
		t.Errorf("tenant and place %+v %+v", r.KV, r.Ext)
	}
	if len(r.Meta) != 2 || r.Meta["a"] != "first" || r.Meta["policy-class"] != "batch" {
		t.Errorf("metadata %q", r.Meta)
	}
	if !strings.Contains(h.log.String(), "x_request_id=corr-1") {
		t.Errorf("the client's own id is not logged:\n%s", h.log)
	}
}

// What headers of answers tell over HTTP, they tell here, to whoever asks.
func TestToldByMetadata(t *testing.T) {
	h := open(t, nil)
	for _, debug := range []string{"", "1"} {
		var header metadata.MD
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-dynago-debug", debug)
		if _, err := h.ModelInfer(ctx, text("", "dummy"), grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		if got := header.Get("x-dynago-debug"); (len(got) == 1) != (debug != "") {
			t.Errorf("asked by %q, told %q", debug, got)
		}
	}
}

// There is a limit to what a client may say to workers.
func TestMetadataLimits(t *testing.T) {
	h := open(t, nil)
	ctx := t.Context()
	for i := range 65 {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-dynamo-meta-"+strings.Repeat("k", i+1), "v")
	}
	long := metadata.AppendToOutgoingContext(t.Context(), "x-dynamo-meta-k", strings.Repeat("v", 65_536))
	for want, ctx := range map[string]context.Context{
		"metadata headers exceed the limit of 64 entries": ctx, "metadata headers exceed the limit of 65536 bytes": long,
	} {
		if _, err := h.ModelInfer(ctx, text("", "dummy")); status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if got, err := h.talk(ctx, text("a", "dummy")); err != nil || got[0] != "a: error "+want+" final" {
			t.Errorf("%q %v, want %s", got, err, want)
		}
	}
	// Beyond all that anybody has to say nothing is kept at all.
	flood := metadata.AppendToOutgoingContext(t.Context(), "k", strings.Repeat("v", 1<<20))
	if _, err := h.ModelInfer(flood, text("", "dummy")); err == nil {
		t.Error("metadata of a MiB was taken")
	}
	// What is wrong with the call itself comes first.
	if _, err := h.ModelInfer(ctx, &pb.ModelInferRequest{ModelName: "words"}); !strings.Contains(err.Error(), "Missing required input") {
		t.Error(err)
	}
}

// sequence_id is the last thing that names a chain, and its end is the chain's.
func TestSequence(t *testing.T) {
	h := open(t, nil)
	in := with(text("", "dummy"), "sequence_end", true)
	in.Parameters["sequence_id"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: 42}}
	if _, err := h.ModelInfer(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if _, err := h.ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "x-dynamo-session-id", "chain-1"), in); err != nil {
		t.Fatal(err)
	}
	r := h.fake.requests()
	if id := r[0].Identity; id.Chain != "42" || !id.Final || !r[0].KV.EvictSession {
		t.Errorf("%+v %+v", id, r[0].KV)
	}
	if id := r[1].Identity; id.Chain != "chain-1" || id.Final {
		t.Errorf("%+v", id)
	}
}

func TestMessageLimit(t *testing.T) {
	h := open(t, func(_ *frontend.Config, c *rpc.Config) { c.MaxMessage = 10_000 })
	if _, err := h.ModelInfer(t.Context(), text("", strings.Repeat("x", 10_001))); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if _, err := h.ModelInfer(t.Context(), text("", strings.Repeat("x ", 1000))); err != nil {
		t.Error(err)
	}
	// What grows when it is unpacked is held to the limit, too.
	if _, err := h.ModelInfer(t.Context(), text("", strings.Repeat("x", 1<<20)), grpc.UseCompressor(gzip.Name)); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if _, err := h.ModelInfer(t.Context(), text("", "x"), grpc.UseCompressor(gzip.Name)); err != nil {
		t.Error(err)
	}
	if err := func() error { _, err := h.talk(t.Context(), text("", strings.Repeat("x", 10_001))); return err }(); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

// Without settings messages may be larger than the library lets them.
func TestLargeMessages(t *testing.T) {
	h := open(t, nil, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	in := tensors("", 1)
	in.RawInputContents[0], in.Inputs[0].Shape = make([]byte, 64<<20), []int64{16 << 20}
	if out, err := h.ModelInfer(t.Context(), in); err != nil || len(out.GetRawOutputContents()[0]) != 64<<20 {
		t.Error(err)
	}
}

// grep returns the lines that hold one of the words.
func grep(text string, words ...string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		for _, w := range words {
			if strings.Contains(line, w) && line[0] != '#' {
				b.WriteString(line)
				break
			}
		}
	}
	return b.String()
}
