//go:build e2e

package e2e_test

import (
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The first signal lets streams finish while health checks already fail.
func TestDrain(t *testing.T) {
	s := serve(t, "--speedup-ratio", "0", "--mock-script", script(t))
	rest := s.stream(t, "count slowly")
	s.signal(t, syscall.SIGTERM)
	s.waitFor(t, "/health", http.StatusServiceUnavailable)
	if status := s.status("/live"); status != http.StatusOK {
		t.Errorf("/live has status %d while draining, want 200", status)
	}
	resp, err := s.post(t.Context(), "hello", false)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a new request has status %d while draining, want 503", resp.StatusCode)
	}
	text, err := rest()
	if err != nil || !strings.Contains(text, "done") || !strings.HasSuffix(strings.TrimSpace(text), "data: [DONE]") {
		t.Errorf("the open stream was cut (%v): …%s", err, text)
	}
	if code := s.exit(t, 5*time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// A drain ends at its time limit, whatever is still open.
func TestDrainTimeout(t *testing.T) {
	s := serve(t, "--speedup-ratio", "0", "--mock-script", script(t), "--drain-timeout", "300ms")
	s.stream(t, "go on endlessly")
	s.signal(t, syscall.SIGTERM)
	if code := s.exit(t, 5*time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// A second signal does not wait for anybody.
func TestSecondSignal(t *testing.T) {
	s := serve(t, "--speedup-ratio", "0", "--mock-script", script(t))
	s.stream(t, "go on endlessly")
	s.signal(t, syscall.SIGINT)
	s.waitFor(t, "/health", http.StatusServiceUnavailable)
	s.signal(t, syscall.SIGINT)
	s.exit(t, 2*time.Second)
}

// A signal with nothing open ends the server at once.
func TestIdleStop(t *testing.T) {
	s := serve(t)
	s.signal(t, syscall.SIGTERM)
	if code := s.exit(t, 2*time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// What serve prints is enough to try it.
func TestGreeting(t *testing.T) {
	s := serve(t)
	for _, want := range []string{"curl", s.url + "/v1/chat/completions", s.model} {
		s.says(t, want)
	}
}

func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	code, out := command(t, nil, "serve", "--http-port", port)
	if code == 0 {
		t.Error("exit code 0")
	}
	for _, want := range []string{port, "--http-port"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	if strings.Contains(out, "goroutine ") {
		t.Errorf("it panicked: %s", out)
	}
}

func TestHelp(t *testing.T) {
	code, out := command(t, nil, "serve", "--help")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"--http-host", "--http-port", "--api-keys-file", "--drain-timeout", "--router-mode", "--model-path", "--workers",
		"--mock-script", "--speedup-ratio", "--demo", "--config", "--admin-port", "DYN_HTTP_PORT",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not in the help", want)
		}
	}
	code, out = command(t, nil, "--help")
	if code != 0 || !strings.Contains(out, "serve") {
		t.Errorf("dynago --help: exit code %d, %q", code, out)
	}
}

// What is wrong in the configuration is named before anything starts.
func TestBadConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		args []string
		want []string
	}{
		{"unknown flag", nil, []string{"--router-mood", "kv"}, []string{"--router-mood"}},
		{"bad value", nil, []string{"--router-mode", "bogus"}, []string{"router-mode", "bogus", "round-robin"}},
		{"bad number", nil, []string{"--http-port", "eighty"}, []string{"http-port", "eighty"}},
		{"bad variable", []string{"DYN_ROUTER_MODE=bogus"}, nil, []string{"DYN_ROUTER_MODE", "bogus"}},
		{"missing keys", nil, []string{"--api-keys-file", "no/such/file"}, []string{"api-keys-file", "no/such/file"}},
		{"missing script", nil, []string{"--mock-script", "no/such/file"}, []string{"mock-script", "no/such/file"}},
		{"missing model", nil, []string{"--model-path", "no/such/folder"}, []string{"model-path", "no/such/folder"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out := command(t, tt.env, append([]string{"serve", "--http-port", "0"}, tt.args...)...)
			if code == 0 {
				t.Error("exit code 0")
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in %q", want, out)
				}
			}
		})
	}
}

func TestVersion(t *testing.T) {
	code, out := command(t, nil, "version")
	if code != 0 || !strings.Contains(out, "dynago") {
		t.Errorf("exit code %d, %q", code, out)
	}
}
