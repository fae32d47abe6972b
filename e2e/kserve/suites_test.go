//go:build e2e

package kserve_test

import (
	"net/http"
	"testing"
)

const text = "DYNAGO_MODEL=" + demo

// The clients of Triton in Python, over gRPC and HTTP, before models of text.
func TestText(t *testing.T) {
	for _, suite := range []string{"grpc_surface", "grpc_completions", "grpc_errors", "grpc_streams", "grpc_aio", "http_completions"} {
		t.Run(suite, func(t *testing.T) { mock(t, "--max-model-len", "8192").python(t, suite, text) })
	}
}

// The same before models of tensors.
func TestTensors(t *testing.T) {
	const echo = "example/echo"
	for _, suite := range []string{"grpc_tensors", "http_tensors"} {
		t.Run(suite, func(t *testing.T) {
			serve(t, "--engine", worker(t, echo)).python(t, suite, "DYNAGO_MODEL="+echo, "DYNAGO_ECHO="+echo)
		})
	}
}

// With keys nobody is served without.
func TestKeys(t *testing.T) {
	mock(t, "--api-keys-file", written(t, "keys", key+" e2e\n")).python(t, "keys", text, "DYNAGO_KEY="+key)
}

// Where nobody has said which port gRPC has, that of HTTP takes it as well, as launch
// lines of the reference want.
func TestPortOfHTTP(t *testing.T) {
	ports := freePorts(t, 2)
	s := &server{url: "http://127.0.0.1:" + ports[0], grpc: "127.0.0.1:" + ports[0], side: "http://127.0.0.1:" + ports[1]}
	s.program = start(t, nil, "serve", "--kserve-grpc-server", "--http-port", ports[0], "--grpc-metrics-port", ports[1],
		"--speedup-ratio", "0", "--mock-script", "script.yaml")
	s.waitFor(t, s.url+"/ready", http.StatusOK)
	s.python(t, "grpc_aio", text)
}
