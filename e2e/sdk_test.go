//go:build e2e

package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// suite is a script for an SDK, and the flags of its server.
type suite struct {
	name  string
	keyed bool
	flags []string // instead of those of engines that do as a script says
}

func (s *suite) of(t *testing.T) []string {
	if s.flags != nil {
		return s.flags
	}
	return []string{"--speedup-ratio", "0", "--mock-script", script(t)}
}

func TestPython(t *testing.T) {
	run(t, []suite{
		{name: "openai_chat"},
		{name: "openai_errors", keyed: true},
		{name: "openai_streams"},
		{name: "openai_responses"},
		{name: "anthropic_messages"},
		{name: "anthropic_errors", keyed: true},
		{name: "anthropic_streams"},
		{name: "extension"},
	}, func(t *testing.T, suite string) *exec.Cmd {
		return exec.Command(setting(t, "E2E_PYTHON"), filepath.Join("python", suite+".py"))
	})
}

func TestNode(t *testing.T) {
	run(t, []suite{
		{name: "openai_chat"},
		{name: "openai_errors", keyed: true},
		{name: "openai_streams"},
		{name: "openai_responses"},
		{name: "anthropic_messages"},
		{name: "anthropic_errors", keyed: true},
		{name: "anthropic_streams"},
		{name: "ai_sdk"},
		{name: "extension"},
	}, func(t *testing.T, suite string) *exec.Cmd {
		return exec.Command("node", filepath.Join(setting(t, "E2E_NODE"), suite+".mjs"))
	})
}

// run runs suites, each against a server of its own.
func run(t *testing.T, suites []suite, command func(t *testing.T, suite string) *exec.Cmd) {
	for _, suite := range suites {
		t.Run(suite.name, func(t *testing.T) {
			flags := suite.of(t)
			var env []string
			if suite.keyed {
				keys := filepath.Join(t.TempDir(), "keys")
				if err := os.WriteFile(keys, []byte(key+" e2e\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				flags = append(flags, "--api-keys-file", keys)
				env = append(env, "DYNAGO_KEY="+key)
			}
			s := serve(t, flags...)
			cmd := command(t, suite.name)
			cmd.Env = environment(append(env, "DYNAGO_URL="+s.url, "DYNAGO_MODEL="+s.model, "PYTHONDONTWRITEBYTECODE=1")...)
			var problems bytes.Buffer
			cmd.Stderr = &problems
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("%v\n%s", err, problems.String())
			}
			report(t, out)
		})
	}
}

// report makes a subtest of each line.
func report(t *testing.T, lines []byte) {
	t.Helper()
	dec, n := json.NewDecoder(bytes.NewReader(lines)), 0
	for ; dec.More(); n++ {
		var c struct {
			Name, Detail string
			OK           bool
		}
		if err := dec.Decode(&c); err != nil {
			t.Fatalf("%v in %s", err, lines)
		}
		t.Run(c.Name, func(t *testing.T) {
			if !c.OK {
				t.Error(strings.TrimSpace(c.Detail))
			}
		})
	}
	if n == 0 {
		t.Error("the suite reported no case")
	}
}
