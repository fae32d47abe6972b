//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What a template says counts on every API but completions, whose model alone it fills
// in, and where the client says nothing.
func TestRequestTemplate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "template.json")
	if err := os.WriteFile(path, []byte(`{"model":"dynago/demo","max_completion_tokens":3,"temperature":0.5}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p, client := kserved(t, "--request-template", path)
	for _, c := range []struct{ path, body, want string }{
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}]}`, `"completion_tokens":3,`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2}`, `"completion_tokens":2,`},
		{"/v1/responses", `{"input":"Hi"}`, `"output_tokens":3,`},
		{"/v1/messages", `{"messages":[{"role":"user","content":"Hi"}]}`, `"output_tokens":3`},
		{"/v1/messages", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":0}`, `"output_tokens":3`},
		{"/v1/messages", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2}`, `"output_tokens":2`},
	} {
		if r := p.send(c.path, c.body); r.status != 200 || !strings.Contains(string(r.body), c.want) {
			t.Errorf("%s %s: %d %s lacks %s", c.path, c.body, r.status, r.body, c.want)
		}
	}
	if r := p.send("/v1/completions", `{"prompt":"Hi"}`); r.status != 200 || strings.Contains(string(r.body), `"completion_tokens":3,`) {
		t.Errorf("%d %s", r.status, r.body)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	call := completion("", "Hi", false)
	call.ModelName, call.Parameters = "", nil
	out, err := client.ModelInfer(ctx, call)
	if err != nil || out.ModelName != "dynago/demo" || out.Parameters["completion_tokens"].GetInt64Param() != 3 {
		t.Errorf("%v, %v", out, err)
	}
	call.ModelName, call.Parameters = "other", nil
	if _, err = client.ModelInfer(ctx, call); err == nil || !strings.Contains(err.Error(), "Model 'other' not found") {
		t.Error(err)
	}
}
