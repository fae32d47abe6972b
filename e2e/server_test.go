//go:build e2e

// Package e2e drives the built binary from outside, as its users do: with the
// official SDKs, with agents at work, with signals, with wrong flags. It imports
// nothing of ours.
//
// The suites of the SDKs are scripts in node and python; each prints one line of
// JSON per case, and each case is a subtest here. Agents (agents_*.go) are whole
// programs in scratch repositories, in front of models whose words come from a
// script, with a recorder between them. e2e/run and e2e/agents/run install what
// they need and set the environment.
package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// setting returns a variable that e2e/run sets.
func setting(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set; start the suites with make e2e", name)
	}
	return value
}

// environment is that of this process without our own settings, with engines that do as
// a script says, and with more.
func environment(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "DYN_") })
	return append(append(env, "DYN_DEMO=mock"), more...)
}

// server is a running binary.
type server struct {
	url   string
	model string
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended

	mu     sync.Mutex
	output bytes.Buffer
}

// Write keeps what the server prints.
func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.Write(p)
}

func (s *server) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

// says waits until the server has printed a text: it comes through a pipe, after
// what it tells of has happened.
func (s *server) says(t testing.TB, text string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(s.printed(), text); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("no %q in what it printed", text)
			return
		}
	}
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// serve starts a server on a free port, and ends it with the test.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{
		cmd:   exec.Command(setting(t, "DYNAGO_BINARY"), append([]string{"serve", "--http-port", "0"}, args...)...),
		ended: make(chan struct{}),
	}
	s.cmd.Env = environment()
	s.cmd.Stderr = s
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
		// What a client does, or leaves undone, is no error of the server's.
		for _, word := range []string{"level=ERROR", "panic:"} {
			if strings.Contains(s.printed(), word) {
				t.Errorf("the server printed %s", word)
			}
		}
		if t.Failed() {
			t.Logf("dynago %s printed:\n%s", strings.Join(s.cmd.Args[1:], " "), s.printed())
		}
	})
	urls := make(chan string, 1)
	go func() {
		defer close(s.ended)
		defer func() { _ = s.cmd.Wait() }()
		defer close(urls)
		found := false
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			fmt.Fprintln(s, lines.Text())
			if url := address.FindString(lines.Text()); url != "" && !found {
				found = true
				urls <- url
			}
		}
	}()
	select {
	case url, ok := <-urls:
		if !ok {
			<-s.ended
			t.Fatalf("the server ended (%v) before it said where it listens", s.cmd.ProcessState)
		}
		s.url = url
	case <-time.After(20 * time.Second):
		t.Fatal("the server did not say where it listens")
	}
	s.waitFor(t, "/ready", http.StatusOK)
	s.model = s.firstModel(t)
	return s
}

// key is a key that the servers of keyed suites know, and others ignore.
const key = "sk-e2e-suite"

// get sends a GET with the key.
func (s *server) get(path string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	client := http.Client{Timeout: 5 * time.Second}
	return client.Do(req)
}

// status returns the status of a GET, or 0 if there was no answer.
func (s *server) status(path string) int {
	resp, err := s.get(path)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// waitFor waits until a GET has the status.
func (s *server) waitFor(t testing.TB, path string, status int) {
	t.Helper()
	last := 0
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if last = s.status(path); last == status {
			return
		}
		select {
		case <-s.ended:
			t.Fatalf("%s: the server has ended: %v", path, s.cmd.ProcessState)
		default:
		}
	}
	t.Fatalf("%s has status %d, want %d", path, last, status)
}

func (s *server) firstModel(t testing.TB) string {
	t.Helper()
	resp, err := s.get("/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Data) == 0 {
		t.Fatalf("no model: %v", err)
	}
	return list.Data[0].ID
}

// post sends a chat request with one user message.
func (s *server) post(ctx context.Context, text string, stream bool) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{
		"model": s.model, "stream": stream,
		"messages": []map[string]string{{"role": "user", "content": text}},
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(req)
}

// stream opens a stream and returns once its first words are here. What follows
// is the rest of it, to its end.
func (s *server) stream(t testing.TB, text string) (rest func() (string, error)) {
	t.Helper()
	resp, err := s.post(t.Context(), text, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"content":"`) && !strings.Contains(line, `"content":""`) {
			break
		}
	}
	return func() (string, error) {
		b, err := io.ReadAll(lines)
		return string(b), err
	}
}

// signal sends a signal to the server.
func (s *server) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// exit waits for the end of the process, and returns its code (-1: a signal).
func (s *server) exit(t testing.TB, within time.Duration) int {
	t.Helper()
	select {
	case <-s.ended:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		t.Fatalf("the server still runs after %v", within)
		return 0
	}
}

// script is the path of the mock engines' script.
func script(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("testdata/script.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// command runs the binary to its end, and returns its exit code and all that it
// printed.
func command(t testing.TB, env []string, args ...string) (code int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, setting(t, "DYNAGO_BINARY"), args...)
	cmd.Env = environment(env...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("dynago %s did not end; it printed:\n%s", strings.Join(args, " "), out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// running returns how many requests the workers are answering.
func (s *server) running(t testing.TB) (n int) {
	t.Helper()
	resp, err := s.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	found := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "dynago_worker_active_requests{") {
			var v float64
			if _, err := fmt.Sscan(lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:], &v); err != nil {
				t.Fatal(err)
			}
			n, found = n+int(v), true
		}
	}
	if !found {
		t.Fatal("the metrics page does not tell of workers")
	}
	return n
}
