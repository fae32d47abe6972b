//go:build e2e

package kserve_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/internal/gen/inferencepb"
)

const text = "DYNAGO_MODEL=" + demo

// The clients of Triton in Python, over gRPC and HTTP, before models of text.
func TestText(t *testing.T) {
	for _, suite := range []string{"grpc_surface", "grpc_completions", "grpc_errors", "grpc_streams", "grpc_aio", "http_completions"} {
		t.Run(suite, func(t *testing.T) {
			mock(t, "--max-model-len", "8192", "--router-session-affinity-ttl-secs", "600").python(t, suite, text)
		})
	}
}

// The same before models of tensors.
func TestTensors(t *testing.T) {
	const model = "example/echo"
	for _, suite := range []string{"grpc_tensors", "http_tensors"} {
		t.Run(suite, func(t *testing.T) {
			serve(t, "--engine", worker(t, model)).python(t, suite, "DYNAGO_MODEL="+model, "DYNAGO_ECHO="+model)
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

// The environment sets up what flags set up, and what has no other name.
func TestSettings(t *testing.T) {
	ports := freePorts(t, 3)
	s := &server{url: "http://127.0.0.1:" + ports[0], grpc: "127.0.0.1:" + ports[1], side: "http://127.0.0.1:" + ports[2]}
	s.program = start(t, []string{
		"DYN_KSERVE_GRPC_SERVER=1", "DYN_HTTP_PORT=" + ports[0], "DYN_GRPC_PORT=" + ports[1], "DYN_GRPC_METRICS_PORT=" + ports[2],
		"DYN_GRPC_STREAM_ERROR_MODE=status", "DYN_GRPC_MAX_MESSAGE_BYTES=65536", "DYN_GRPC_STREAM_MAX_INFLIGHT=1", "DYN_GRPC_REFLECTION=0",
		"DYN_GRPC_INITIAL_CONNECTION_WINDOW_SIZE=4194304", "DYN_DISABLE_FRONTEND_NVEXT=1", "DYN_HTTP_BODY_LIMIT_MB=1",
	}, "serve", "--speedup-ratio", "0", "--mock-script", "script.yaml",
		"--request-template", written(t, "template.json", `{"model": "`+demo+`", "temperature": 0, "max_completion_tokens": 7}`))
	s.waitFor(t, s.url+"/ready", http.StatusOK)
	s.python(t, "grpc_settings", text)
}

// Who is told to end ends when all is answered.
func TestDrain(t *testing.T) {
	s := mock(t)
	s.python(t, "grpc_drain", text)
	select {
	case <-s.ended:
		if code := s.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
}

// REST is there without gRPC for who wants that, and neither is for who wants neither.
func TestREST(t *testing.T) {
	for flag, status := range map[string]int{"--kserve-rest": http.StatusOK, "--no-kserve-rest": http.StatusNotFound} {
		ports := freePorts(t, 2)
		s := &server{url: "http://127.0.0.1:" + ports[0], grpc: "127.0.0.1:" + ports[1]}
		s.program = start(t, nil, "serve", flag, "--http-port", ports[0], "--grpc-port", ports[1], "--speedup-ratio", "0")
		s.waitFor(t, s.url+"/ready", http.StatusOK)
		for _, path := range []string{"/v2", "/v2/models/" + demo, "/v2/models/" + demo + "/ready"} {
			if got, body := get(s.url + path); got != status {
				t.Errorf("%s: %s has status %d: %s", flag, path, got, body)
			}
		}
		for _, address := range []string{s.grpc, "127.0.0.1:" + ports[0]} {
			if m, err := dial(t, address).ServerLive(t.Context(), &inferencepb.ServerLiveRequest{}); err == nil {
				t.Errorf("%s: gRPC is there: %v", flag, m)
			}
		}
	}
}

// Two servers do not share a port that was asked for.
func TestPortThatIsTaken(t *testing.T) {
	first := mock(t)
	port := first.grpc[strings.LastIndexByte(first.grpc, ':')+1:]
	second := start(t, nil, "serve", "--kserve-grpc-server", "--http-port", "0", "--grpc-port", port)
	select {
	case <-second.ended:
		if code, said := second.cmd.ProcessState.ExitCode(), second.printed(); code == 0 || !strings.Contains(said, "--grpc-port") {
			t.Errorf("exit code %d:\n%s", code, said)
		}
	case <-time.After(10 * time.Second):
		t.Error("it serves")
	}
}

// Of those who wait goes first who matters most, as metadata or the extension says it.
func TestPriority(t *testing.T) {
	const slow = `{"max_num_seqs": 1, "timing_model": "constant", "prefill_ms": 10, "decode_ms": 40}`
	serve(t, "--workers", "1", "--extra-engine-args", slow).python(t, "grpc_priority", text)
}
