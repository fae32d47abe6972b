//go:build e2e

package kserve_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// grpcurl runs a call, and returns what it printed.
func (s *server) grpcurl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), setting(t, "E2E_GRPCURL"), append([]string{"-plaintext", "-max-time", "10"}, args...)...).CombinedOutput()
	return string(out), err
}

// Who asks what there is needs no files of ours.
func TestReflection(t *testing.T) {
	s := mock(t)
	out, err := s.grpcurl(t, s.grpc, "list")
	for _, want := range []string{"inference.GRPCInferenceService", "grpc.health.v1.Health"} {
		if err != nil || !slices.Contains(strings.Split(out, "\n"), want) {
			t.Errorf("no %s: %v\n%s", want, err, out)
		}
	}
	if out, err := s.grpcurl(t, s.grpc, "list", "inference.GRPCInferenceService"); err != nil || strings.Count(out, "\n") != 20 {
		t.Errorf("%v\n%s", err, out)
	}
	const ask = `{"model_name": "dynago/demo", "id": "job-7", "parameters": {"max_tokens": {"int64_param": 8}}, "inputs": [
		{"name": "text_input", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": ["ZHVtbXkgaW5wdXQ="]}}]}`
	out, err = s.grpcurl(t, "-d", ask, s.grpc, "inference.GRPCInferenceService/ModelInfer")
	var m struct {
		ID      string
		Outputs []struct {
			Name     string
			Contents struct{ BytesContents [][]byte }
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &m) != nil || m.ID != "job-7" || len(m.Outputs) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := m.Outputs[0].Contents.BytesContents; len(got) != 1 || string(got[0]) != "dummyinput" {
		t.Errorf("%s: %q", m.Outputs[0].Name, got)
	}
	out, err = s.grpcurl(t, "-d", strings.Replace(ask, demo, "no/such", 1), s.grpc, "inference.GRPCInferenceService/ModelInfer")
	if err == nil || !strings.Contains(out, "Code: NotFound") || !strings.Contains(out, "Model 'no/such' not found") {
		t.Errorf("%v\n%s", err, out)
	}
}
