//go:build e2e

package kserve_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Triton's own benchmark measures models of text and of tensors.
func TestPerfAnalyzer(t *testing.T) {
	const tensors = "example/echo"
	web := func(s *server) string { return strings.TrimPrefix(s.url, "http://") }
	rpc := func(s *server) string { return s.grpc }
	for name, c := range map[string]struct {
		model, data string
		at          func(s *server) string
		args        []string
		responses   int // of each request
	}{
		"grpc":           {demo, `{"text_input": ["dummy input"]}`, rpc, []string{"-i", "grpc"}, 1},
		"grpc, async":    {demo, `{"text_input": ["dummy input"], "streaming": [false]}`, rpc, []string{"-i", "grpc", "--async"}, 1},
		"grpc, gzip":     {demo, `{"text_input": ["dummy input"]}`, rpc, []string{"-i", "grpc", "--grpc-compression-algorithm", "gzip"}, 1},
		"stream":         {demo, `{"text_input": ["dummy input"], "streaming": [true]}`, rpc, []string{"-i", "grpc", "--async", "--streaming", "--request-parameter", "max_tokens:8:int"}, 3},
		"stream, folded": {demo, `{"text_input": ["dummy input"], "streaming": [false]}`, rpc, []string{"-i", "grpc", "--async", "--streaming"}, 1},
		"http":           {demo, `{"text_input": ["dummy input"]}`, web, []string{"-i", "http"}, 1},
		"tensors":        {tensors, `{"input": {"content": ["a", "", "c"], "shape": [3]}}`, rpc, []string{"-i", "grpc", "--async", "--streaming"}, 2},
		"tensors, http":  {tensors, `{"input": {"content": ["a", "", "c"], "shape": [3]}}`, web, []string{"-i", "http"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var s *server
			if c.model == tensors {
				s = serve(t, "--engine", worker(t, tensors))
			} else {
				s = mock(t)
			}
			if name == "tensors, http" {
				// The model says that it is decoupled, and the benchmark keeps to it.
				if out := s.perf(t, c.model, c.data, c.at(s), c.args); !strings.Contains(out.said, "Decoupled models") {
					t.Errorf("it said:\n%s", out.said)
				}
				return
			}
			out := s.perf(t, c.model, c.data, c.at(s), c.args)
			if out.err != nil || len(out.requests) < 50 {
				t.Fatalf("%v, %d requests; it said:\n%s", out.err, len(out.requests), out.said)
			}
			for i, n := range out.requests {
				if n != c.responses {
					t.Fatalf("request %d has %d responses, want %d; it said:\n%s", i, n, c.responses, out.said)
				}
			}
		})
	}
}

// profiled is what a run of the benchmark came to.
type profiled struct {
	said     string
	err      error
	requests []int // how many responses each had
}

func (s *server) perf(t *testing.T, model, data, address string, more []string) (p profiled) {
	t.Helper()
	export := filepath.Join(t.TempDir(), "profile.json")
	program := strings.Fields(setting(t, "E2E_PERF_ANALYZER"))
	args := append(program[1:], "-m", model, "-u", address, "--service-kind", "triton", "--concurrency-range", "4", "--request-count", "100",
		"--input-data", written(t, "data.json", `{"data": [`+data+`]}`), "--profile-export-file", export, "--max-threads", strconv.Itoa(4))
	out, err := exec.CommandContext(t.Context(), program[0], append(args, more...)...).CombinedOutput()
	p.said, p.err = string(out), err
	if err != nil {
		return p
	}
	text, err := os.ReadFile(export)
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Experiments []struct {
			Requests []struct {
				ResponseTimestamps []uint64 `json:"response_timestamps"`
			}
		}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	for _, e := range m.Experiments {
		for _, r := range e.Requests {
			p.requests = append(p.requests, len(r.ResponseTimestamps))
		}
	}
	return p
}
