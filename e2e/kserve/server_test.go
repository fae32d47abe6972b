//go:build e2e

// Package kserve_test drives the built binary with what users of Triton have: its
// Python clients in all four forms, its benchmark, grpcurl, and a client in Go that
// trusts answers as the one in C++ does. Of ours it knows the stubs of two services
// alone.
//
// The suites of the Python clients are scripts; each prints one line of JSON for a
// case, and each case is a subtest here. run installs what they need and sets the
// environment.
package kserve_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// demo is the model of mock engines.
const demo = "dynago/demo"

// setting returns a variable that run sets.
func setting(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set; start the suites with make e2e-kserve", name)
	}
	return value
}

// environment is that of this process without our own settings, with engines that do as
// a script says, and with more.
func environment(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "DYN_") })
	return append(append(env, "DYN_DEMO=mock"), more...)
}

// freePorts returns ports that nobody listens on, no two of them the same.
func freePorts(t testing.TB, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports
}

// program is a running binary, and what it has printed.
type program struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended

	mu     sync.Mutex
	output bytes.Buffer
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

func (p *program) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// start starts the binary, and ends it with the test. env is in the form of os.Environ.
func start(t testing.TB, env []string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(setting(t, "DYNAGO_BINARY"), args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = environment(env...), p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		// Engines fail here when they are asked to, which is logged; of the server's own
		// there is no error, whatever a client does, or leaves undone.
		for line := range strings.Lines(p.printed()) {
			if strings.Contains(line, "panic") || strings.Contains(line, "level=ERROR") && !strings.Contains(line, `msg="request completed"`) {
				t.Errorf("dynago %s printed %s", args[0], line)
			}
		}
		if t.Failed() {
			t.Logf("dynago %s printed:\n%s", strings.Join(args, " "), p.printed())
		}
	})
	return p
}

// eventually waits until something holds.
func (p *program) eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); <-time.After(5 * time.Millisecond) {
		select {
		case <-p.ended:
			t.Fatalf("%s: dynago has ended: %v", what, p.cmd.ProcessState)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// server is dynago serve with KServe on.
type server struct {
	*program
	url, grpc, side string
}

// serve starts a server on free ports.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	ports := freePorts(t, 3)
	web, rpc, side := ports[0], ports[1], ports[2]
	s := &server{url: "http://127.0.0.1:" + web, grpc: "127.0.0.1:" + rpc, side: "http://127.0.0.1:" + side}
	if slices.Contains(args, "--tls-cert-path") {
		s.url = "https://127.0.0.1:" + web
	}
	s.program = start(t, nil, append([]string{
		"serve", "--kserve-grpc-server", "--http-port", web, "--grpc-port", rpc, "--grpc-metrics-port", side,
	}, args...)...)
	s.waitFor(t, s.url+"/ready", http.StatusOK)
	return s
}

// mock is a server of mock engines that need no time and follow the script.
func mock(t testing.TB, args ...string) *server {
	t.Helper()
	return serve(t, append([]string{"--speedup-ratio", "0", "--mock-script", "script.yaml"}, args...)...)
}

// key is a key that the servers of keyed suites know.
const key = "sk-e2e-kserve"

// asking looks at no certificates: clients of the suites do.
var asking = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// get returns status and body of a GET with the key; status 0 is no answer.
func get(url string) (status int, body string) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, ""
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := asking.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(text)
}

// waitFor waits until a GET has the status.
func (s *server) waitFor(t testing.TB, url string, status int) {
	t.Helper()
	s.eventually(t, fmt.Sprintf("%s has status %d", url, status), func() bool {
		got, _ := get(url)
		return got == status
	})
}

var grpcAddress = regexp.MustCompile(`grpc://127\.0\.0\.1:\d+`)

// echo starts a worker that gives tensors back.
func echo(t testing.TB, model string) *program {
	t.Helper()
	return start(t, nil, "worker", "--engine", "echo", "--model-name", model, "--listen", "127.0.0.1:0")
}

// address is where a worker says that it listens.
func (p *program) address(t testing.TB) string {
	t.Helper()
	p.eventually(t, "the worker says where it listens", func() bool { return grpcAddress.MatchString(p.printed()) })
	return grpcAddress.FindString(p.printed())
}

// worker starts a worker that gives tensors back, and returns its address.
func worker(t testing.TB, model string) string {
	t.Helper()
	return echo(t, model).address(t)
}

// python runs a suite of a client, and makes a subtest of each case.
func (s *server) python(t *testing.T, suite string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), setting(t, "E2E_KSERVE_PYTHON"), suite+".py")
	cmd.Env = environment(append(env, "DYNAGO_GRPC="+s.grpc, "DYNAGO_URL="+s.url, "DYNAGO_SIDE="+s.side,
		"DYNAGO_PID="+strconv.Itoa(s.cmd.Process.Pid), "PYTHONDONTWRITEBYTECODE=1", "GRPC_VERBOSITY=NONE")...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for lines := bufio.NewScanner(out); lines.Scan(); n++ {
		var c struct {
			Name, Detail string
			OK           bool
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatalf("%v in %s", err, lines.Bytes())
		}
		t.Run(c.Name, func(t *testing.T) {
			if !c.OK {
				t.Error(strings.TrimSpace(c.Detail))
			}
		})
	}
	if err := cmd.Wait(); err != nil || n == 0 {
		t.Errorf("%s reported %d cases: %v\n%s", suite, n, err, problems.String())
	}
}

// written writes a file that ends with the test.
func written(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
