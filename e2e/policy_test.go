//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The policy in examples decides for a server, is told how requests have ended,
// and is not missed when it dies.
func TestPolicyExample(t *testing.T) {
	cmd := exec.Command("python3", filepath.Join("..", "examples", "policy", "policy.py"), "0")
	cmd.Env = environment("PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	line := func() string {
		t.Helper()
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatal("the policy has ended")
			}
			return line
		case <-time.After(20 * time.Second):
			t.Fatal("the policy says nothing")
			return ""
		}
	}

	url := address.FindString(line())
	// How fast Python is on a busy machine is not what is tested here.
	s := serve(t, "--speedup-ratio", "0", "--router-policy", url, "--router-policy-timeout", "5s")
	ask := func() {
		t.Helper()
		resp, err := s.post(context.Background(), "Which rivers cross Paris?", true)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || !strings.Contains(string(text), "[DONE]") {
			t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
		}
	}
	ended := regexp.MustCompile(`^\S+ on \d+: completed after \d+ ms$`)
	for range 10 {
		ask()
	}
	for range 10 {
		if got := line(); !ended.MatchString(got) {
			t.Errorf("the policy was told %q, want how a request has ended", got)
		}
	}
	if log := s.printed(); strings.Contains(log, "of no use") {
		t.Errorf("the policy was of no use:\n%s", log)
	}
	kill()
	for range 10 {
		ask()
	}
	s.says(t, "the policy server is of no use")
	s.says(t, "left alone")
}
