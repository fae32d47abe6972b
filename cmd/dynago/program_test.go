//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program is a running dynago.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	banner string
	admin  string
	log    *syncBuffer
}

// start starts a command and waits until it has printed a line with some text.
func start(t *testing.T, last string, args ...string) *program {
	t.Helper()
	return startCommand(t, last, exec.Command(os.Args[0], args...))
}

// startCommand is start for a command that may have more in its environment than this
// process has.
func startCommand(t *testing.T, last string, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{t: t, cmd: cmd, log: &syncBuffer{}}
	p.cmd.Env = append(slices.Concat(os.Environ(), cmd.Env), asProgram+"=1")
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("log:\n%s", p.log)
		}
	})
	lines := bufio.NewReader(out)
	for !strings.Contains(p.banner, last) {
		line, err := lines.ReadString('\n')
		if p.banner += line; err != nil {
			t.Fatalf("it printed %q and ended; log:\n%s", p.banner, p.log)
		}
	}
	p.url = regexp.MustCompile(`http://[0-9.]+:\d+`).FindString(p.banner)
	if m := regexp.MustCompile(`admin +(\S+)`).FindStringSubmatch(p.banner); m != nil {
		p.admin = m[1]
	}
	return p
}

// serve starts "dynago serve" on a free port.
func serve(t *testing.T, args ...string) *program {
	t.Helper()
	return serveIn(t, nil, args...)
}

// serveIn is serve with more in the environment.
func serveIn(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"serve", "--http-port", "0"}, args...)...)
	cmd.Env = env
	return startCommand(t, "curl ", cmd)
}

// startRouter starts "dynago router" on a free port.
func startRouter(t *testing.T, args ...string) *program {
	t.Helper()
	return start(t, "  router ", append([]string{"router", "--port", "0"}, args...)...)
}

// wait returns the exit code.
func (p *program) wait() int {
	p.t.Helper()
	done := make(chan struct{})
	go func() {
		p.cmd.Wait()
		close(done)
	}()
	select {
	case <-done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(20 * time.Second):
		p.t.Fatalf("it does not end; log:\n%s", p.log)
		return 0
	}
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// request makes a request with names and values of its header, one after another.
func (p *program) request(ctx context.Context, method, url, body string, header ...string) *http.Request {
	p.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// reply is what came of a request.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

// await sends a request and reads the answer.
func await(req *http.Request) reply {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text), err}
}

// later is await in the background.
func later(req *http.Request) <-chan reply {
	done := make(chan reply, 1)
	go func() { done <- await(req) }()
	return done
}

// answered is await for a request that must have an answer.
func (p *program) answered(req *http.Request) reply {
	p.t.Helper()
	r := await(req)
	if r.err != nil {
		p.t.Fatal(r.err)
	}
	return r
}

// send posts an object.
func (p *program) send(path, body string, header ...string) reply {
	p.t.Helper()
	return p.answered(p.request(p.t.Context(), "POST", p.url+path, body, header...))
}

// post sends an object and reads one.
func (p *program) post(path, body string, into any) {
	p.t.Helper()
	r := p.send(path, body)
	if r.status != 200 {
		p.t.Fatalf("%s: %d %s", path, r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), into); err != nil {
		p.t.Fatalf("%s: %v in %s", path, err, r.body)
	}
}

// get reads a page over a connection of its own.
func (p *program) get(url string, header ...string) (int, string) {
	p.t.Helper()
	req := p.request(p.t.Context(), "GET", url, "", header...)
	req.Close = true
	r := p.answered(req)
	return r.status, r.body
}

// ask opens a stream of so many tokens.
func (p *program) ask(tokens int) *http.Response {
	p.t.Helper()
	body := fmt.Sprintf(`{"model":"dynago/demo","stream":true,"max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user","content":"Which rivers cross Paris?"}]}`, tokens)
	resp, err := http.DefaultClient.Do(p.request(context.Background(), "POST", p.url+"/v1/chat/completions", body))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// syncBuffer is a buffer that is written while it is read.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
