//go:build e2e

package kserve_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const page = "../../docs/kserve.md"

// block is something on the page to run, and pieces of what comes back, in their order.
type block struct {
	line       int
	kind, text string
	want       []string
}

// blocks reads those of the page: each of sh or python, and the block behind it.
func blocks(t *testing.T) (list []block) {
	t.Helper()
	source, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for _, at := range regexp.MustCompile("(?s)```(\\w*)\n(.*?)```").FindAllStringSubmatchIndex(text, -1) {
		b := block{line: strings.Count(text[:at[0]], "\n") + 1, kind: text[at[2]:at[3]], text: text[at[4]:at[5]]}
		if b.kind != "" {
			list = append(list, b)
			continue
		}
		if len(list) == 0 || list[len(list)-1].want != nil {
			t.Fatalf("line %d: an answer to no question", b.line)
		}
		list[len(list)-1].want = strings.Split(strings.TrimSpace(b.text), "\n")
	}
	return list
}

// run runs the block's text, with more programs. One that hangs is one that fails.
func (b *block) run(t *testing.T, text, tools string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var cmd *exec.Cmd
	switch b.kind {
	case "sh":
		cmd = exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	case "python":
		cmd = exec.CommandContext(ctx, setting(t, "E2E_KSERVE_PYTHON"), "-c", text)
	default:
		return nil, fmt.Errorf("nobody runs %s", b.kind)
	}
	cmd.Env, cmd.WaitDelay = environment("PATH="+tools+":"+os.Getenv("PATH")), time.Second
	return cmd.CombinedOutput()
}

// Each line of the page does what the page says.
func TestPage(t *testing.T) {
	var s *server
	tools := t.TempDir()
	if err := os.Symlink(setting(t, "E2E_GRPCURL"), filepath.Join(tools, "grpcurl")); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, b := range blocks(t) {
		if line, ok := strings.CutPrefix(b.text, "dynago serve "); ok && b.kind == "sh" {
			s = serve(t, strings.Fields(strings.ReplaceAll(line, "--kserve-grpc-server", ""))...)
			continue
		}
		if s == nil {
			t.Fatalf("line %d: nothing has been started", b.line)
		}
		text := strings.NewReplacer("http://127.0.0.1:8000", s.url, "127.0.0.1:8000", strings.TrimPrefix(s.url, "http://"),
			"127.0.0.1:8001", s.grpc, "http://127.0.0.1:8788", s.side).Replace(b.text)
		out, err := b.run(t, text, tools)
		if err != nil || len(b.want) == 0 {
			t.Errorf("line %d: %v, and %d pieces to look for\n%s", b.line, err, len(b.want), out)
			continue
		}
		ran++
		rest := string(out)
		for _, want := range b.want {
			found := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(want), "…", "[^\n]*")).FindStringIndex(rest)
			if found == nil {
				t.Errorf("line %d: no %s in\n%s", b.line, want, out)
				break
			}
			rest = rest[found[1]:]
		}
	}
	if ran < 9 {
		t.Errorf("%d blocks of the page were run", ran)
	}
}
