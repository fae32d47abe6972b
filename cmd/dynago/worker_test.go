//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dynago/dynago/internal/demo"
)

// A worker beside an engine serves it to those who have a key, and leaves without
// cutting anybody off.
func TestWorkerBesideAnEngine(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("secret frontends\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	model := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json", "generation_config.json"} {
		text, err := demo.File(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(model, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, fake := attachable(t, "mocker", "--api", "vllm", "--http-port", "0", "--extra-engine-args", paced(5))
	w, spec := attachable(t, "worker", "--engine", fake, "--model-path", model, "--listen", "127.0.0.1:0", "--api-keys-file", keys,
		"--graceful-shutdown-grace-period-secs", "0.1")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())

	denied := serve(t, "--engine", spec)
	if text := says(t, denied, "/admin/workers", "bearer token"); !strings.Contains(text, `"failed"`) {
		t.Errorf("without a key: %s", text)
	}
	p := serve(t, "--engine", spec+",api_key=secret")
	says(t, p, "/admin/workers", `"ready"`)
	s := stream{number: 1, pieces: new(atomic.Int64)}
	done := make(chan struct{})
	go func() { defer close(done); s.run(p, demo.Name, 60) }()
	until(t, "the stream has begun", func() bool { return s.pieces.Load() > 0 })
	w.signal(syscall.SIGTERM)
	says(t, p, "/admin/workers", `"draining"`)
	<-done
	if s.err != nil || !s.whole {
		t.Errorf("the stream was cut: %v", s.err)
	}
	if code := w.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// says asks until an answer holds a text, and returns it.
func says(t *testing.T, p *program, path, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	last := ""
	for ctx.Err() == nil {
		resp, err := http.DefaultClient.Do(p.request(ctx, "GET", p.url+path, ""))
		if err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if last = fmt.Sprintf("%d %s", resp.StatusCode, body); strings.Contains(last, text) {
				return last
			}
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("%s has no %q:\n%s", path, text, last)
	return ""
}
