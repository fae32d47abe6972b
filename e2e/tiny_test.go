//go:build e2e

package e2e_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A model that computes: tools that SDKs define are called because it wants them
// called, they run, and it answers with what they returned. It thinks, and who leaves or
// asks for what cannot be is told so as by any other engine.
func TestTiny(t *testing.T) {
	ways := map[string][]string{
		"engines":  {"--demo", "tiny"},
		"two legs": {"--demo", "tiny", "--workers", "1", "--num-prefill-workers", "1"},
		"tiers":    {"--demo", "tiny", "--num-gpu-blocks-override", "80", "--max-model-len", "1024", "--g2-blocks", "500"},
	}
	for name, flags := range ways {
		t.Run(name, func(t *testing.T) {
			suites := []suite{{name: "tiny", flags: flags}}
			if name == "engines" {
				suites = append(suites, suite{name: "openai_errors", keyed: true, flags: flags}, suite{name: "anthropic_errors", keyed: true, flags: flags})
			}
			run(t, suites, func(t *testing.T, suite string) *exec.Cmd {
				return exec.Command(setting(t, "E2E_PYTHON"), filepath.Join("python", suite+".py"))
			})
			run(t, suites, func(t *testing.T, suite string) *exec.Cmd {
				return exec.Command("node", filepath.Join(setting(t, "E2E_NODE"), suite+".mjs"))
			})
		})
	}
}
