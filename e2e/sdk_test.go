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

// suites are the scripts of each SDK, and the flags of their servers.
var suites = []struct {
	name  string
	keyed bool
}{
	{name: "chat"},
	{name: "errors", keyed: true},
	{name: "streams"},
}

func TestOpenAIPython(t *testing.T) {
	run(t, func(t *testing.T, suite string) *exec.Cmd {
		return exec.Command(setting(t, "E2E_PYTHON"), filepath.Join("openai_python", suite+".py"))
	})
}

func TestOpenAINode(t *testing.T) {
	run(t, func(t *testing.T, suite string) *exec.Cmd {
		return exec.Command("node", filepath.Join(setting(t, "E2E_NODE"), suite+".mjs"))
	})
}

// run runs the suites of one SDK, each against a server of its own.
func run(t *testing.T, command func(t *testing.T, suite string) *exec.Cmd) {
	for _, suite := range suites {
		t.Run(suite.name, func(t *testing.T) {
			flags := []string{"--speedup-ratio", "0", "--mock-script", script(t)}
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
