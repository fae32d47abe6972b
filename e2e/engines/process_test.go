//go:build realengine

// Package engines drives the built binary in front of real engines, as their
// projects build them: vLLM and llama.cpp on processors, with the tiny model of
// e2e/tiny. It imports nothing of ours.
//
// What is asserted is that both sides say the same: the text, the number of
// tokens, what was cached, who waits. e2e/vllm/run and e2e/llamacpp/run install an
// engine each and set the environment.
package engines_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// setting returns a variable that the run scripts set.
func setting(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set; start the suites with make e2e-vllm or make e2e-llamacpp", name)
	}
	return value
}

// process is one that runs, with all that it starts.
type process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}

	mu     sync.Mutex
	output bytes.Buffer
}

// start starts a program in a process group of its own. It ends with the test,
// whose log has its last lines if the test fails.
func start(t testing.TB, name string, env []string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s printed last:\n%s", name, p.last(60))
		}
	})
	return p
}

// kill ends the group at once, as a machine that loses its power would.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// Write keeps what the process prints.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

func (p *process) last(n int) string {
	lines := strings.Split(strings.TrimSpace(p.printed()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// running says whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

// freePorts returns ports that nobody listens on.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}

var client = &http.Client{Timeout: 60 * time.Second}

// ask makes a request with an optional JSON body, and returns status and body; 0
// where there was no answer.
func ask(method, url, body string) (int, string) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// metric returns the sum of all series of a name whose labels hold these texts.
func metric(t testing.TB, url, name string, labels ...string) (sum float64) {
	t.Helper()
	status, page := ask("GET", url+"/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("%s/metrics: status %d %s", url, status, page)
	}
lines:
	for line := range strings.Lines(page) {
		rest, found := strings.CutPrefix(line, name)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		if err != nil {
			t.Fatalf("%s/metrics: %q: %v", url, line, err)
		}
		sum += v
	}
	return sum
}

// local is an address on this machine.
func local(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

// slay ends one process of others at once.
func slay(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
