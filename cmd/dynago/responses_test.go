//go:build unix

package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// respond asks for a response and returns its id.
func (p *program) respond(members string) string {
	p.t.Helper()
	var r struct{ ID string }
	p.post("/v1/responses", `{"model":"dynago/demo","max_output_tokens":4,`+members+`}`, &r)
	return r.ID
}

// TestResponsesSurviveARestart goes on from a response that another process has
// made, and ended.
func TestResponsesSurviveARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "responses")
	p := serve(t, "--responses-store", dir)
	id := p.respond(`"input":"hello"`)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	p = serve(t, "--responses-store", dir)
	next := p.respond(`"previous_response_id":"` + id + `","input":"go on"`)
	status, items := p.get(p.url + "/v1/responses/" + next + "/input_items?order=asc")
	if strings.Count(items, `"type":"message"`) != 3 || !strings.Contains(items, `"text":"hello"`) {
		t.Fatalf("%d %s", status, items)
	}
}

func TestResponsesStoreOff(t *testing.T) {
	t.Parallel()
	p := serve(t, "--responses-store", "off")
	id := p.respond(`"input":"hello"`)
	if status, body := p.get(p.url + "/v1/responses/" + id); status != http.StatusNotFound {
		t.Fatalf("%d %s", status, body)
	}
}
