package rpc_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/frontend/rpc"
	pb "github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/nvext"
)

const (
	serving    = healthpb.HealthCheckResponse_SERVING
	notServing = healthpb.HealthCheckResponse_NOT_SERVING
)

// Health is that of the process, unless somebody asks whether it is ready.
func TestHealth(t *testing.T) {
	h := open(t, nil)
	health := healthpb.NewHealthClient(h.conn)
	check := func(want map[string]healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for name, want := range want {
			if out, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name}); err != nil || out.GetStatus() != want {
				t.Errorf("%q: %v %v, want %v", name, out, err, want)
			}
		}
		all, err := health.List(t.Context(), &healthpb.HealthListRequest{})
		if err != nil || len(all.GetStatuses()) != len(want) {
			t.Errorf("%v %v", all, err)
		}
	}
	const service, ready = "inference.GRPCInferenceService", "inference.GRPCInferenceService/ready"
	check(map[string]healthpb.HealthCheckResponse_ServingStatus{"": serving, service: serving, ready: serving})
	h.fake.setReady(false)
	check(map[string]healthpb.HealthCheckResponse_ServingStatus{"": serving, service: serving, ready: notServing})
	h.fake.setReady(true)
	if _, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	h.rpc.Leave()
	check(map[string]healthpb.HealthCheckResponse_ServingStatus{"": notServing, service: notServing, ready: notServing})
}

// Whoever watches is told of each change, and of the end.
func TestHealthWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil)
		health := healthpb.NewHealthClient(h.conn)
		watch := func(name string) grpc.ServerStreamingClient[healthpb.HealthCheckResponse] {
			stream, err := health.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: name})
			if err != nil {
				t.Fatal(err)
			}
			return stream
		}
		hear := func(stream grpc.ServerStreamingClient[healthpb.HealthCheckResponse], want healthpb.HealthCheckResponse_ServingStatus) {
			t.Helper()
			if out, err := stream.Recv(); err != nil || out.GetStatus() != want {
				t.Fatalf("%v %v, want %v", out, err, want)
			}
		}
		live, ready, other := watch(""), watch("inference.GRPCInferenceService/ready"), watch("other")
		hear(live, serving)
		hear(ready, serving)
		hear(other, healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
		h.fake.setReady(false)
		hear(ready, notServing)
		h.fake.setReady(true)
		hear(ready, serving)
		h.rpc.Leave()
		hear(live, notServing)
		hear(ready, notServing)
		h.rpc.Close()
		if _, err := live.Recv(); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	})
}

// While the server drains what runs may end, and nothing new begins.
func TestDrain(t *testing.T) {
	h := open(t, nil)
	h.fake.step = make(chan struct{})
	idle, err := h.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := idle.Send(text("0", "zero")); err != nil {
		t.Fatal(err)
	}
	if m, err := idle.Recv(); err != nil || said(m) != "0: zero final" {
		t.Fatal(m, err)
	}
	busy, err := h.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := busy.Send(text("1", "stepwise")); err != nil {
		t.Fatal(err)
	}
	until(t, "a call runs", func() bool { return len(h.fake.requests()) == 2 })

	drained := make(chan int)
	go func() {
		h.rpc.Leave()
		cut := h.front.Drain(context.Background())
		h.rpc.Close()
		drained <- cut
	}()
	until(t, "calls are refused", func() bool {
		_, err := h.ModelInfer(t.Context(), text("", "late"))
		return status.Code(err) == codes.Unavailable && status.Convert(err).Message() == "server is shutting down"
	})
	if out, err := h.ServerReady(t.Context(), &pb.ServerReadyRequest{}); err != nil || out.GetReady() {
		t.Errorf("%v %v", out, err)
	}
	if out, err := h.ModelReady(t.Context(), &pb.ModelReadyRequest{Name: "words"}); err != nil || out.GetReady() {
		t.Errorf("%v %v", out, err)
	}
	if out, err := h.ServerLive(t.Context(), &pb.ServerLiveRequest{}); err != nil || !out.GetLive() {
		t.Errorf("%v %v", out, err)
	}
	if _, err := idle.Recv(); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "server is shutting down" {
		t.Errorf("a stream on which nothing runs: %v", err)
	}
	if err := busy.Send(text("2", "late")); err != nil {
		t.Fatal(err)
	}
	until(t, "a call of a stream is refused", func() bool { return strings.Count(h.log.String(), "error_type=unavailable") > 1 })
	h.fake.step <- struct{}{}
	for _, want := range []string{"1: stepwise final", "2: error server is shutting down final"} {
		if m, err := busy.Recv(); err != nil || said(m) != want {
			t.Errorf("%v %v, want %s", m, err, want)
		}
	}
	if cut := <-drained; cut != 0 {
		t.Errorf("%d calls were cut", cut)
	}
}

// When the time is up, what still runs is cut, and told so.
func TestDrainCuts(t *testing.T) {
	h := open(t, nil)
	failed := make(chan error)
	go func() {
		_, err := h.ModelInfer(t.Context(), text("", "forever"))
		failed <- err
	}()
	until(t, "a call runs", func() bool { return len(h.fake.requests()) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.rpc.Leave()
	if cut := h.front.Drain(ctx); cut != 1 {
		t.Errorf("%d calls were cut", cut)
	}
	h.rpc.Close()
	if err := <-failed; status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "server is shutting down" {
		t.Error(err)
	}
}

// Where keys are wanted, all but health wants one, and caps are those of its tenant.
func TestKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("good acme\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := frontend.ReadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	h := open(t, func(c *frontend.Config, _ *rpc.Config) {
		c.Keys = keys
		c.Tenants = map[string]*nvext.Caps{"acme": {MaxPriority: new(int32(3))}}
	})
	for _, pair := range [][]string{nil, {"x-api-key", "bad"}, {"authorization", "Basic good"}} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), pair...)
		_, unary := h.ModelInfer(ctx, text("", "dummy"))
		_, stream := h.talk(ctx, text("", "dummy"))
		_, ready := h.ServerReady(ctx, &pb.ServerReadyRequest{})
		for _, err := range []error{unary, stream, ready} {
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%q: %v", pair, err)
			}
		}
	}
	if _, err := healthpb.NewHealthClient(h.conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	// Who has no key learns so before the message, which may be large, has come.
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	unsent, err := h.conn.NewStream(soon, &grpc.StreamDesc{ClientStreams: true}, pb.GRPCInferenceService_ModelInfer_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := unsent.RecvMsg(new(pb.ModelInferResponse)); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
	for _, pair := range [][]string{{"x-api-key", "good"}, {"authorization", "bearer good"}} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), append(pair, "x-dynamo-request-priority", "9")...)
		if _, err := h.ModelInfer(ctx, text("", "dummy")); err != nil {
			t.Errorf("%q: %v", pair, err)
		}
	}
	for _, r := range h.fake.requests() {
		if r.Tenant != "acme" || r.KV.Priority == nil || *r.KV.Priority != 3 {
			t.Errorf("tenant %q, priority %v", r.Tenant, r.KV.Priority)
		}
	}
}

func TestReflection(t *testing.T) {
	for on, want := range map[bool]codes.Code{true: codes.OK, false: codes.Unimplemented} {
		h := open(t, func(_ *frontend.Config, c *rpc.Config) { c.Reflection = on })
		stream, err := reflectionpb.NewServerReflectionClient(h.conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}) //nolint:errcheck // Recv says why
		out, err := stream.Recv()
		if status.Code(err) != want {
			t.Fatal(err)
		}
		var names []string
		for _, s := range out.GetListServicesResponse().GetService() {
			names = append(names, s.GetName())
		}
		if on && !slices.Contains(names, "inference.GRPCInferenceService") {
			t.Errorf("%q", names)
		}
	}
}

// A connection on the HTTP port that speaks gRPC is served all the same, and those of
// HTTP/1 are, too.
func TestHandedOver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	handed := rpc.NewHanded(l.Addr())
	h := open(t, func(c *frontend.Config, _ *rpc.Config) { c.HTTP2 = handed.Give })
	done := make(chan error, 2)
	go func() { done <- h.front.Serve(l) }()
	go func() { done <- h.rpc.Serve(handed) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		if out, err := pb.NewGRPCInferenceServiceClient(conn).ModelInfer(t.Context(), text("", strings.Repeat("x", 100_000))); err != nil || len(out.GetOutputs()) != 2 {
			t.Error(out, err)
		}
		resp, err := http.Get("http://" + l.Addr().String() + "/live")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Error(resp, err)
		}
		resp.Body.Close()
	}
	h.front.Close() //nolint:errcheck // it never fails
	h.rpc.Close()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	// Those that nobody takes any more are closed.
	here, there := net.Pipe()
	handed.Give(there)
	here.SetReadDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // a pipe has deadlines
	if _, err := here.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Error(err)
	}
}

// The windows are those that were set; the one that was not is as large as it would
// have been.
func TestWindows(t *testing.T) {
	for name, c := range map[string]struct{ stream, conn, wantStream, wantConn int }{
		"neither": {0, 0, 0, 0},
		"stream":  {1 << 18, 0, 1 << 18, 1 << 20},
		"conn":    {0, 1 << 21, 1 << 20, 1 << 21},
		"both":    {1 << 17, 1 << 19, 1 << 17, 1 << 19},
	} {
		t.Run(name, func(t *testing.T) {
			front, err := frontend.New(frontend.Config{Backend: &fake{}})
			if err != nil {
				t.Fatal(err)
			}
			server := rpc.New(rpc.Config{Frontend: front, StreamWindow: int32(c.stream), ConnWindow: int32(c.conn)})
			defer server.Close()
			l := rpc.NewHanded(&net.TCPAddr{})
			go server.Serve(l) //nolint:errcheck // it ends with the server
			here, there := net.Pipe()
			defer here.Close()
			l.Give(there)
			// The preface, settings without any, and a ping, whose answer ends what is sent
			// at the beginning.
			go io.WriteString(here, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x08\x06\x00\x00\x00\x00\x00password") //nolint:errcheck // reading fails as well
			stream, conn := 0, 0
			for kind := byte(0); kind != 6; {
				head := make([]byte, 9)
				if _, err := io.ReadFull(here, head); err != nil {
					t.Fatal(err)
				}
				body := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
				if _, err := io.ReadFull(here, body); err != nil {
					t.Fatal(err)
				}
				switch kind = head[3]; kind {
				case 4: // settings
					for ; len(body) >= 6; body = body[6:] {
						if binary.BigEndian.Uint16(body) == 4 {
							stream = int(binary.BigEndian.Uint32(body[2:]))
						}
					}
				case 8: // window update
					conn = 65535 + int(binary.BigEndian.Uint32(body))
				}
			}
			if stream != c.wantStream || conn != c.wantConn {
				t.Errorf("stream %d, connection %d, want %d and %d", stream, conn, c.wantStream, c.wantConn)
			}
		})
	}
}
