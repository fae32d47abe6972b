//go:build e2e

package remote_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/remote"
)

// backend starts one of the examples in Python, and returns its address.
func backend(t *testing.T, name string, args ...string) (address string, process *running) {
	t.Helper()
	python := os.Getenv("E2E_BACKEND_PYTHON")
	if python == "" {
		t.Fatal("E2E_BACKEND_PYTHON is not set; start these tests with make backends")
	}
	script := filepath.Join(os.Getenv("E2E_BACKENDS"), name)
	c := exec.Command(python, append([]string{script, "--listen", "127.0.0.1:0"}, args...)...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	process = &running{Process: c.Process, end: func() {
		c.Process.Kill() //nolint:errcheck // it may have ended
		<-read
		c.Wait() //nolint:errcheck // as it was told to
	}}
	t.Cleanup(func() {
		process.kill()
		if strings.Contains(said.String(), "Traceback") {
			t.Errorf("%s says:\n%s", name, &said)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if port, ok := strings.CutPrefix(lines.Text(), "listening on port "); ok {
			go func() {
				defer close(read)
				for lines.Scan() {
				}
			}()
			return "grpc://127.0.0.1:" + port, process
		}
	}
	close(read)
	t.Fatalf("%s does not listen:\n%s", name, &said)
	return "", nil
}

// A backend in a page of Python keeps the contract, as far as its card goes.
func TestBackendTokens(t *testing.T) {
	cache := t.TempDir()
	for script, skips := range map[string][]string{
		// Nobody can tell these processes to restart, to be slow or to drain.
		"tokens.py": {
			"03-restart-is-another-epoch", "04-drain", "07-logprobs", "07-prompt-logprobs", "11-cached-tokens", "15-leaving", "16-cancelled",
			"17-deadline", "19-killed", "25-events-fold", "25-namespaces", "26-resume", "26-loss", "27-restart", "28-load",
		},
		"events.py": {
			"03-restart-is-another-epoch", "04-drain", "07-logprobs", "07-prompt-logprobs", "15-leaving", "16-cancelled",
			"17-deadline", "19-killed",
			"25-namespaces", "26-loss", "27-restart", "28-load",
		},
	} {
		t.Run(script, func(t *testing.T) {
			fresh := func(t *testing.T) engine.Engine {
				address, process := backend(t, script, "--model", os.Getenv("E2E_BACKEND_MODEL"), "--pause", "0")
				return &example{dial(t, remote.Config{URL: address, Cache: cache}), process}
			}
			enginetest.Run(t, enginetest.Subject{New: fresh, Skips: skips})
		})
	}
}

// example is a client that ends its worker's process with itself.
type example struct {
	*remote.Client
	process *running
}

func (e *example) Close() error {
	err := e.Client.Close()
	e.process.kill()
	return err
}

// running is a process, and whoever reads what it says.
type running struct {
	*os.Process
	once sync.Once
	end  func()
}

func (r *running) kill() { r.once.Do(r.end) }

func TestBackendFiles(t *testing.T) {
	address, _ := backend(t, "tokens.py", "--model", os.Getenv("E2E_BACKEND_MODEL"))
	cache := t.TempDir()
	e := dial(t, remote.Config{URL: address, Cache: cache})
	card := await(t, e, inState(engine.Ready)).Card
	if len(card.Files) != 5 {
		t.Fatalf("files %+v", card.Files)
	}
	for _, name := range []string{"tokenizer.json", "chat_template.jinja"} {
		got, err := os.ReadFile(filepath.Join(card.Files[0].URI, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(os.Getenv("E2E_BACKEND_MODEL"), name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestBackendDrains(t *testing.T) {
	address, process := backend(t, "tokens.py", "--model", os.Getenv("E2E_BACKEND_MODEL"))
	e := dial(t, remote.Config{URL: address, Cache: t.TempDir()})
	stay, cancel := context.WithCancel(t.Context())
	defer cancel()
	draining := make(chan struct{})
	go func() {
		for s := range e.Card(stay) {
			if s.State == engine.Draining {
				close(draining)
				return
			}
		}
	}()
	n := 0
	for d, err := range e.Generate(t.Context(), &engine.Request{ID: "1-0", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 40}}) {
		if err != nil {
			t.Fatal(err)
		}
		if n += len(d.TokenIDs); n == 1 {
			if err := process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n != 40 {
		t.Errorf("%d tokens of 40", n)
	}
	select {
	case <-draining:
	case <-time.After(5 * time.Second):
		t.Error("the drain was not seen")
	}
	await(t, e, func(s engine.Status) bool { return s.State == engine.Dead || strings.Contains(s.Reason, "refused") })
}

func TestBackendText(t *testing.T) {
	address, _ := backend(t, "text.py", "--pause", "0")
	e := dial(t, remote.Config{URL: address})
	if card := await(t, e, inState(engine.Ready)).Card; !card.Accept(engine.InputChat) || card.Accept(engine.InputTokens) {
		t.Errorf("accepts %v", card.Accepts)
	}
	r := &engine.Request{ID: "1-0", Chat: &chat.Request{
		Turns: []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "please call it"}}}},
		Tools: []chat.Tool{{Kind: chat.ToolFunction, Name: "echo"}},
	}}
	answer := ""
	for ev, err := range e.Chat(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		answer += fmt.Sprintf("%d:%s%s ", ev.Kind, ev.BlockKind, ev.Text)
	}
	const want = "1: 2:thinking 4:They said something. 7: 2:text 3:please 3: call 3: it 7: 2:tool_use 5:{\"text\": 5: \"x\"} 8: 7: 9: "
	if answer != want {
		t.Errorf("events\n%s\nwant\n%s", answer, want)
	}
}

func TestBackendTensors(t *testing.T) {
	enginetest.Run(t, enginetest.Subject{
		New: func(t *testing.T) engine.Engine {
			address, process := backend(t, "tensors.py")
			return &example{dial(t, remote.Config{URL: address}), process}
		},
	})
}
