//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Without flags that matter there is a whole system, and the line it prints is
// one that works.
func TestServe(t *testing.T) {
	t.Parallel()
	p := serve(t, "--speedup-ratio", "0")
	if first := regexp.MustCompile(`https?://\S+`).FindString(p.banner); first != p.url {
		t.Errorf("the first address printed is %s", first)
	}
	for _, want := range []string{"dynago/demo", "4 mock engines", "kv"} {
		if !strings.Contains(p.banner, want) {
			t.Errorf("no %q in\n%s", want, p.banner)
		}
	}
	m := regexp.MustCompile(`curl -N (\S+) -H '([^']+)' -d '([^']+)'`).FindStringSubmatch(p.banner)
	if m == nil {
		t.Fatalf("no curl line in\n%s", p.banner)
	}
	resp, err := http.Post(m[1], strings.TrimPrefix(m[2], "Content-Type: "), strings.NewReader(m[3]))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !strings.HasSuffix(string(body), "data: [DONE]\n\n") || strings.Count(string(body), "data: ") < 3 {
		t.Errorf("%d %s %v", resp.StatusCode, body, err)
	}
	for path, want := range map[string]int{"/ready": 200, "/live": 200, "/health": 200, "/metrics": 200, "/debug/pprof/": 404} {
		if status, _ := p.get(p.url + path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	if _, page := p.get(p.url + "/metrics"); !strings.Contains(page, `dynamo_frontend_model_kv_cache_block_size{model="dynago/demo"} 16`) {
		t.Errorf("metrics:\n%s", page)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// The first signal lets a stream finish, while health says what goes on.
func TestDrainFinishesStreams(t *testing.T) {
	t.Parallel()
	p := serve(t, "--startup-time", "0")
	resp := p.ask(200)
	p.signal(syscall.SIGINT)
	until(t, "/health is 503", func() bool { status, _ := p.get(p.url + "/health"); return status == 503 })
	if status, _ := p.get(p.url + "/live"); status != 200 {
		t.Errorf("/live: %d", status)
	}
	if late := p.ask(1); late.StatusCode != 503 {
		t.Errorf("a late request: %d", late.StatusCode)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") || strings.Contains(string(body), `"error"`) {
		t.Errorf("the stream ended with %q %v", body[max(0, len(body)-200):], err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// When time is up the stream is cut, and told so.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	p := serve(t, "--drain-timeout", "50ms")
	resp := p.ask(100_000)
	p.signal(syscall.SIGTERM)
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(body), "\"status\":503}\n\ndata: [DONE]\n\n") {
		t.Errorf("the stream ended with %q %v", body[max(0, len(body)-200):], err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(p.log.String(), "requests were cut") {
		t.Error("the log does not tell")
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	p := serve(t)
	p.ask(100_000)
	p.signal(syscall.SIGTERM)
	until(t, "it drains", func() bool { return strings.Contains(p.log.String(), "draining") })
	begin := time.Now()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code == 0 || time.Since(begin) > 5*time.Second {
		t.Errorf("exit code %d after %v", code, time.Since(begin))
	}
}

func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	for _, flag := range []string{"--http-port", "--admin-port"} {
		var out, errs bytes.Buffer
		args := []string{"serve", "--http-port", "0", flag, fmt.Sprint(port)}
		if code := run(args, outlet{&out, &errs}); code != 1 {
			t.Errorf("%s: exit code %d", flag, code)
		}
		for _, want := range []string{fmt.Sprintf("127.0.0.1:%d is taken", port), fmt.Sprintf("%s %d", flag, port+1), "lsof"} {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%s: no %q in %s", flag, want, errs.String())
			}
		}
		if out.Len() > 0 {
			t.Errorf("%s: it printed %s", flag, out.String())
		}
	}
}

func TestAdminPort(t *testing.T) {
	t.Parallel()
	p := serve(t, "--admin-port", "0")
	for url, want := range map[string]int{
		p.url + "/metrics": 404, p.url + "/debug/pprof/": 404,
		p.admin + "/metrics": 200, p.admin + "/debug/pprof/": 200, p.admin + "/debug/pprof/heap": 200,
	} {
		if status, _ := p.get(url); status != want {
			t.Errorf("%s: %d, want %d", url, status, want)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// SIGHUP reads the keys again, at once.
func TestKeysReload(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	p := serve(t, "--api-keys-file", path)
	if !strings.Contains(p.banner, "Authorization: Bearer") {
		t.Errorf("the curl line has no key: %s", p.banner)
	}
	for key, want := range map[string]int{"first": 200, "second": 401, "": 401} {
		if status, _ := p.get(p.url+"/v1/models", "Authorization", "Bearer "+key); status != want {
			t.Errorf("key %q: %d", key, status)
		}
	}
	write("second\n")
	p.signal(syscall.SIGHUP)
	until(t, "the new key is taken", func() bool {
		status, _ := p.get(p.url+"/v1/models", "X-Api-Key", "second")
		return status == 200
	})
	if status, _ := p.get(p.url+"/v1/models", "X-Api-Key", "first"); status != 401 {
		t.Errorf("the old key: %d", status)
	}
}

// Workers that come and go cost no request: each moves to another worker.
func TestChurn(t *testing.T) {
	p := serve(t, "--mock-churn", "30ms", "--speedup-ratio", "2", "--migration-limit", "100")
	var streams sync.WaitGroup
	for range 8 {
		resp := p.ask(60)
		streams.Go(func() {
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 || !strings.HasSuffix(string(body), "data: [DONE]\n\n") || strings.Contains(string(body), `"error"`) {
				t.Errorf("%d: %q %v", resp.StatusCode, body[max(0, len(body)-300):], err)
			}
		})
	}
	streams.Wait()
}

// A script decides what is said.
func TestMockScript(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(path, []byte("default:\n  emit: The Seine does.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--mock-script", path, "--speedup-ratio", "0", "--model-name", "my/model", "--logging-console-format", "jsonl")
	r := p.send("/v1/chat/completions", `{"model":"my/model","messages":[{"role":"user","content":"secret words"}]}`)
	if !strings.Contains(r.body, `"content":"The Seine does."`) {
		t.Errorf("%s", r.body)
	}
	until(t, "a log line in JSON", func() bool {
		return strings.Contains(p.log.String(), `"message":"request completed"`)
	})
	if strings.Contains(p.log.String(), "secret words") {
		t.Error("the log tells the prompt")
	}
}
