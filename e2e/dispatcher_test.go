//go:build e2e

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// talker is a program that prints lines of JSON.
type talker struct {
	t     *testing.T
	stdin io.WriteCloser
	lines chan []byte
}

// talk starts a program, and ends it with the test.
func talk(t *testing.T, name string, args ...string) *talker {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = environment()
	var problems strings.Builder
	cmd.Stderr = &problems
	p := &talker{t: t, lines: make(chan []byte, 16)}
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- []byte(lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s %s:\n%s", name, strings.Join(args, " "), problems.String())
		}
	})
	return p
}

// next reads the next line into v.
func (p *talker) next(v any) {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatal("the program has ended")
		}
		if err := json.Unmarshal(line, v); err != nil {
			p.t.Fatalf("%v in %s", err, line)
		}
	case <-time.After(20 * time.Second):
		p.t.Fatal("the program says nothing")
	}
}

// startRouter starts the router as a service on a free port.
func startRouter(t *testing.T, args ...string) (url string) {
	t.Helper()
	cmd := exec.Command(setting(t, "DYNAGO_BINARY"), append([]string{"router", "--port", "0"}, args...)...)
	cmd.Env = environment()
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the router:\n%s", problems.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if url = address.FindString(line); url == "" {
		t.Fatalf("%q has no address: %v", line, err)
	}
	return url
}

// metric waits until the router's metrics page has a line.
func metric(t *testing.T, url, line string) {
	t.Helper()
	page := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		resp, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if page = string(b); err == nil && strings.Contains(page, "\n"+line+"\n") {
			return
		}
	}
	t.Fatalf("the page lacks %s:\n%s", line, page)
}

// The example of a dispatcher in Python, on two engines that publish their events
// by libzmq: each conversation goes on where its turns before are cached.
func TestDispatcher(t *testing.T) {
	python := setting(t, "E2E_ZMQ_PYTHON")
	url := startRouter(t, "--log-level", "warn")
	args := []string{filepath.Join("..", "examples", "dispatcher", "dispatcher.py"), "--router", url, "--block-size", "4", "--max-tokens", "8"}
	var engines []*talker
	for id := range 2 {
		e := talk(t, python, filepath.Join("dispatcher", "engine.py"), "--block-size", "4")
		var at struct{ Endpoint, Events string }
		e.next(&at)
		args = append(args, "--worker", fmt.Sprintf("%d,%s,%s", id, at.Endpoint, at.Events))
		engines = append(engines, e)
	}
	d := talk(t, "python3", args...)
	for _, e := range engines {
		var heard struct{ Heard bool }
		if e.next(&heard); !heard.Heard {
			t.Fatal("nobody listens to the engine")
		}
	}

	type turn struct {
		Conversation string
		Worker       int   `json:"worker_id"`
		Tokens       int   `json:"prompt_tokens"`
		Expected     int   `json:"expected_cached"`
		Cached       int   `json:"cached"`
		Answer       []int `json:"token_ids"`
	}
	home, known := map[string]int{}, [2]int{}
	for n := range 3 {
		for i, name := range []string{"a", "b", "c", "d"} {
			fmt.Fprintf(d.stdin, `{"conversation":%q,"token_ids":[%d,2,3,4,5,6,7,%d]}`+"\n", name, 100+i, n)
			var got turn
			d.next(&got)
			if got.Conversation != name || got.Tokens != n*16+8 || len(got.Answer) != 8 {
				t.Fatalf("turn %d of %s: %+v", n, name, got)
			}
			// Of an answer the last token is never computed, and its block not cached.
			cached := max(0, n*16-4)
			if got.Expected != cached || got.Cached != cached {
				t.Errorf("turn %d of %s: %d tokens were expected to be cached and %d were, want %d", n, name, got.Expected, got.Cached, cached)
			}
			if n == 0 {
				home[name] = got.Worker
			} else if got.Worker != home[name] {
				t.Errorf("turn %d of %s went to worker %d, not to %d where it is cached", n, name, got.Worker, home[name])
			}
			known[got.Worker] += 4
			if n == 0 {
				known[got.Worker]--
			}
			metric(t, url, fmt.Sprintf(`dynago_worker_cached_blocks{dp_rank="0",worker_id="%d",worker_type="decode"} %d`, got.Worker, known[got.Worker]))
		}
	}
	for id := range 2 {
		metric(t, url, fmt.Sprintf(`dynago_worker_requests{dp_rank="0",worker_id="%d"} 0`, id))
	}
	metric(t, url, `dynago_router_decisions_total 12`)
}
