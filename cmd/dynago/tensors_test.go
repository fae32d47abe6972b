package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A model that gives tensors back stands beside those of text, here or in another
// process, and is none that answers a chat.
func TestTensorEcho(t *testing.T) {
	t.Parallel()
	_, spec := attachable(t, "worker", "--engine", "echo", "--model-name", "far", "--listen", "127.0.0.1:0")
	for _, args := range [][]string{{"--tensor-echo", "near"}, {"--engine", spec, "--tensor-echo", "near"}} {
		p := serve(t, args...)
		says(t, p, "/v1/models", `"near"`)
		if len(args) > 2 {
			says(t, p, "/v1/models", `"far"`)
		}
		resp, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"near","messages":[{"role":"user","content":"hello"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !json.Valid(body) || resp.StatusCode != http.StatusNotFound || !strings.Contains(string(body), "takes tensors") {
			t.Errorf("%d %s %v", resp.StatusCode, body, err)
		}
	}
}
