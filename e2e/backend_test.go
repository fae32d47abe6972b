//go:build e2e

package e2e_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// backend is a worker in Python.
type backend struct {
	address string
	cmd     *exec.Cmd
	ended   chan struct{}

	mu   sync.Mutex
	said string
}

// start starts one of the examples on a free port.
func startBackend(t *testing.T, script string, args ...string) *backend {
	t.Helper()
	python := setting(t, "E2E_BACKEND_PYTHON")
	b := &backend{ended: make(chan struct{})}
	b.cmd = exec.Command(python, append([]string{filepath.Join(setting(t, "E2E_BACKENDS"), script), "--listen", "127.0.0.1:0"}, args...)...)
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.cmd.Stderr = b
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	port := make(chan string, 1)
	go func() {
		defer close(b.ended)
		defer b.cmd.Wait() //nolint:errcheck // tests look at its state
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if p, ok := strings.CutPrefix(lines.Text(), "listening on port "); ok {
				port <- p
			}
			b.Write([]byte(lines.Text() + "\n")) //nolint:errcheck // it cannot fail
		}
	}()
	t.Cleanup(func() {
		b.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-b.ended
		if t.Failed() {
			t.Logf("%s said:\n%s", script, b.says())
		}
	})
	select {
	case p := <-port:
		b.address = "grpc://127.0.0.1:" + p
	case <-b.ended:
		t.Fatalf("%s ended:\n%s", script, b.says())
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not listen", script)
	}
	return b
}

func (b *backend) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said += string(p)
	return len(p), nil
}

func (b *backend) says() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said
}

// await waits until something has been said.
func (b *backend) await(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(b.says(), text); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in what it said:\n%s", text, b.says())
		}
	}
}

// tokens starts the backend of token ids.
func tokens(t *testing.T, script string, args ...string) *backend {
	t.Helper()
	return startBackend(t, script, append([]string{"--model", setting(t, "E2E_BACKEND_MODEL")}, args...)...)
}

const counter = "example/counter"

// chatWith begins a streamed answer of so many tokens.
func chatWith(t *testing.T, s *server, model, text string, most int) (pieces *bufio.Scanner, leave func()) {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"model": model, "stream": true, "max_tokens": most, "temperature": 0, "stream_options": map[string]any{"include_usage": true},
		"messages": []map[string]any{{"role": "user", "content": text}},
	})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("status %d: %s", resp.StatusCode, text)
	}
	return bufio.NewScanner(resp.Body), func() { resp.Body.Close() }
}

// whole reads an answer to its end, and calls at with each piece.
func whole(t *testing.T, pieces *bufio.Scanner, at func(n int)) (text string, usage map[string]any) {
	t.Helper()
	n, ended := 0, false
	for pieces.Scan() {
		data, ok := strings.CutPrefix(pieces.Text(), "data: ")
		if !ok {
			continue
		}
		if ended = data == "[DONE]"; ended {
			break
		}
		var m struct {
			Choices []struct{ Delta struct{ Content string } }
			Usage   map[string]any
			Error   any
		}
		if err := json.Unmarshal([]byte(data), &m); err != nil || m.Error != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for _, c := range m.Choices {
			text += c.Delta.Content
		}
		if m.Usage != nil {
			usage = m.Usage
		}
		if n++; at != nil {
			at(n)
		}
	}
	if !ended {
		t.Fatalf("the answer has no end: %v", pieces.Err())
	}
	return text, usage
}

// A worker of a page of Python serves all that a client may ask for.
func TestBackendChat(t *testing.T) {
	b := tokens(t, "tokens.py", "--pause", "0.001")
	s := serve(t, "--engine", b.address)
	s.waitFor(t, "/ready", http.StatusOK)
	pieces, leave := chatWith(t, s, counter, "Which rivers cross Paris?", 60)
	defer leave()
	want, usage := whole(t, pieces, nil)
	if want == "" || usage["completion_tokens"] != 60.0 || usage["prompt_tokens"] == 0.0 {
		t.Errorf("%q %v", want, usage)
	}
	pieces, leave = chatWith(t, s, counter, "Which rivers cross Paris?", 60)
	defer leave()
	if got, _ := whole(t, pieces, nil); got != want {
		t.Errorf("%q, the first time %q", got, want)
	}
}

// A client that leaves frees the worker.
func TestBackendCancel(t *testing.T) {
	b := tokens(t, "tokens.py", "--pause", "0.01")
	s := serve(t, "--engine", b.address)
	s.waitFor(t, "/ready", http.StatusOK)
	pieces, leave := chatWith(t, s, counter, "hello", 4000)
	for range 10 {
		pieces.Scan()
	}
	leave()
	b.await(t, "has ended, 0 running")
}

// A worker that drains ends its streams, and leaves.
func TestBackendDrain(t *testing.T) {
	b := tokens(t, "tokens.py", "--pause", "0.01")
	s := serve(t, "--engine", b.address)
	s.waitFor(t, "/ready", http.StatusOK)
	pieces, leave := chatWith(t, s, counter, "hello", 100)
	defer leave()
	_, usage := whole(t, pieces, func(n int) {
		if n == 5 {
			b.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // the answer shows it
		}
	})
	if usage["completion_tokens"] != 100.0 {
		t.Errorf("usage %v", usage)
	}
	select {
	case <-b.ended:
		if code := b.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
	s.waitFor(t, "/ready", http.StatusServiceUnavailable)
}

// A worker that is killed under its streams costs nobody a word: they go on on the
// other one.
func TestBackendKilled(t *testing.T) {
	first, second := tokens(t, "tokens.py", "--pause", "0.01"), tokens(t, "tokens.py", "--pause", "0.01")
	s := serve(t, "--engine", first.address, "--engine", second.address, "--router-mode", "round-robin")
	s.waitFor(t, "/ready", http.StatusOK)
	s.says(t, first.address)
	s.says(t, second.address)
	const most = 150
	pieces, leave := chatWith(t, s, counter, "hello", most)
	want, _ := whole(t, pieces, nil)
	leave()
	var all sync.WaitGroup
	var once sync.Once
	for range 8 {
		all.Go(func() {
			pieces, leave := chatWith(t, s, counter, "hello", most)
			defer leave()
			got, usage := whole(t, pieces, func(n int) {
				if n == 30 {
					once.Do(func() { first.cmd.Process.Kill() }) //nolint:errcheck // the answers show it
				}
			})
			if got != want || usage["completion_tokens"] != float64(most) {
				t.Errorf("%v\n%q\nundisturbed\n%q", usage, got, want)
			}
		})
	}
	all.Wait()
}

// A worker that tells of its cache is preferred for what it knows.
func TestBackendEvents(t *testing.T) {
	a, b := tokens(t, "events.py", "--pause", "0.001"), tokens(t, "events.py", "--pause", "0.001")
	s := serve(t, "--engine", a.address, "--engine", b.address)
	s.waitFor(t, "/ready", http.StatusOK)
	long := strings.Repeat("Many rivers cross many cities of the world. ", 40)
	cached := func() float64 {
		pieces, leave := chatWith(t, s, counter, long, 3)
		defer leave()
		_, usage := whole(t, pieces, nil)
		details, _ := usage["prompt_tokens_details"].(map[string]any)
		n, _ := details["cached_tokens"].(float64)
		return n
	}
	if n := cached(); n != 0 {
		t.Errorf("%v tokens were cached the first time", n)
	}
	for range 4 {
		if n := cached(); n < 200 {
			t.Errorf("%v tokens cached: the worker that knows the prompt was passed over", n)
		}
	}
}

// A worker of conversations needs no files here.
func TestBackendText(t *testing.T) {
	b := startBackend(t, "text.py", "--pause", "0.001")
	s := serve(t, "--engine", b.address)
	s.waitFor(t, "/ready", http.StatusOK)
	pieces, leave := chatWith(t, s, "example/parrot", "one two three", 10)
	defer leave()
	text, usage := whole(t, pieces, nil)
	if text != "one two three" || usage["completion_tokens"] != 6.0 || usage["prompt_tokens"] != 3.0 {
		t.Errorf("%q %v", text, usage)
	}
	const body = `{"model":"example/parrot","max_tokens":50,"messages":[{"role":"user","content":"call it"}],` +
		`"tools":[{"name":"echo","input_schema":{"type":"object","properties":{"text":{"type":"string"}}}}]}`
	resp, err := http.Post(s.url+"/v1/messages", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var m struct {
		Content []struct {
			Type, Name string
			Input      map[string]string
		}
		StopReason string `json:"stop_reason"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	last := m.Content[len(m.Content)-1]
	if last.Type != "tool_use" || last.Name != "echo" || last.Input["text"] != "x" || m.StopReason != "tool_use" {
		t.Errorf("%+v", m)
	}
}
