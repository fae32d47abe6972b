//go:build e2e

package kserve_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// repeated asks the echoing worker for so many responses, until it is lost.
func repeated(model, id string, n int64) *inferencepb.ModelInferRequest {
	return &inferencepb.ModelInferRequest{
		ModelName: model, Id: id,
		Inputs:           []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8", Shape: []int64{1}}},
		RawInputContents: [][]byte{{7}},
		Parameters:       map[string]*inferencepb.InferParameter{"repeat": integer(n), "triton_enable_empty_final_response": boolean(true)},
	}
}

// A worker that is killed under a stream costs its requests an error, and nobody else
// anything: the stream goes on, and so does the model on the other worker.
func TestWorkerKilled(t *testing.T) {
	const model = "example/echo"
	workers := []*program{echo(t, model), echo(t, model)}
	s := serve(t, "--engine", workers[0].address(t), "--engine", workers[1].address(t), "--router-mode", "round-robin")
	s.eventually(t, "both workers are there", func() bool { return strings.Count(s.printed(), `msg="worker is ready"`) == 2 })
	c := dial(t, s.grpc)
	stream, err := c.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const most = 1 << 40
	for _, id := range []string{"a", "b"} {
		if err := stream.Send(repeated(model, id, most)); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	next := func() *inferencepb.ModelStreamInferResponse {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for len(seen) < 2 {
		seen[next().InferResponse.Id] = true
	}
	if err := workers[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	lost := ""
	for lost == "" {
		if m := next(); m.ErrorMessage != "" {
			lost = m.InferResponse.Id
		}
	}
	other := "a"
	if lost == "a" {
		other = "b"
	}
	for n := 0; n < 100; {
		m := next()
		if m.ErrorMessage != "" || m.InferResponse.Id == lost {
			t.Fatalf("after %s was lost: %v", lost, m)
		}
		if m.InferResponse.Id == other {
			n++
		}
	}
	for range 20 {
		if m, err := c.ModelInfer(t.Context(), repeated(model, "c", 1)); err != nil || outputs(m)["x"][0] != 7 {
			t.Fatalf("%v %v", m, err)
		}
	}
}

// Connections that say half of what opens them, or nothing, are let go of, and hold up
// nobody, on the port that takes both protocols.
func TestStalledConnections(t *testing.T) {
	ports := freePorts(t, 2)
	s := &server{url: "http://127.0.0.1:" + ports[0], grpc: "127.0.0.1:" + ports[0], side: "http://127.0.0.1:" + ports[1]}
	s.program = start(t, nil, "serve", "--kserve-grpc-server", "--http-port", ports[0], "--grpc-metrics-port", ports[1],
		"--speedup-ratio", "0", "--http-header-timeout", "500ms", "--http-idle-timeout", "500ms")
	s.waitFor(t, s.url+"/ready", http.StatusOK)
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	var conns []net.Conn
	for _, said := range []string{"", "P", preface[:10], preface[:20], "PRI * HTTP/1.1\r\n\r\n", "POST /v2", strings.Repeat("\xff", 24)} {
		conn, err := net.Dial("tcp", s.grpc)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, said); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	if m, err := dial(t, s.grpc).ModelInfer(t.Context(), prompt("1", "hello", false)); err != nil || len(outputs(m)) != 2 {
		t.Errorf("%v %v", m, err)
	}
	for i, conn := range conns {
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
			t.Errorf("connection %d is still open", i)
		}
	}
}
