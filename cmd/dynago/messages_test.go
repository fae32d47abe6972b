//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The settings of Messages reach the answers.
func TestMessagesSettings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(path, []byte("default:\n  emit: \"<think>Which river?</think>The Seine.\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const ask = `{"model":"my/model","max_tokens":99,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"ls","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":"gone"}]}]}`
	count := func(p *program) string { return p.send("/v1/messages/count_tokens", ask).body }

	plain := serve(t, "--mock-script", path, "--speedup-ratio", "0", "--model-name", "my/model")
	if r := plain.send("/v1/messages", ask); r.status != 200 || !strings.Contains(r.body, `"signature":"r1.`) || !strings.Contains(r.body, `"thinking":"Which river?"`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	other := serve(t, "--mock-script", path, "--speedup-ratio", "0", "--model-name", "my/model", "--reasoning-envelope-key", "k", "--tool-error-prefix")
	if r := other.send("/v1/messages", ask); r.status != 200 || !strings.Contains(r.body, `"signature":"r1e.`) {
		t.Errorf("with a key: %d %s", r.status, r.body)
	}
	if short, long := count(plain), count(other); short == long {
		t.Errorf("the result is shown without its mark: %s and %s", short, long)
	}
	off := serve(t, "--mock-script", path, "--speedup-ratio", "0", "--model-name", "my/model", "--enable-anthropic-api=false")
	if r := off.send("/v1/messages", ask); r.status != 404 {
		t.Errorf("switched off: %d %s", r.status, r.body)
	}
}
