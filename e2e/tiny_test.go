//go:build e2e

package e2e_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A model that computes: tools that SDKs define are called because it wants them
// called, they run, and it answers with what they returned.
func TestTiny(t *testing.T) {
	ways := map[string][]string{
		"engines":  {"--demo", "tiny"},
		"two legs": {"--demo", "tiny", "--workers", "1", "--num-prefill-workers", "1"},
		"tiers":    {"--demo", "tiny", "--num-gpu-blocks-override", "80", "--max-model-len", "1024", "--g2-blocks", "500"},
	}
	for name, flags := range ways {
		t.Run(name, func(t *testing.T) {
			run(t, []suite{{name: "tiny", flags: flags}}, func(t *testing.T, suite string) *exec.Cmd {
				return exec.Command(setting(t, "E2E_PYTHON"), filepath.Join("python", suite+".py"))
			})
			run(t, []suite{{name: "tiny", flags: flags}}, func(t *testing.T, suite string) *exec.Cmd {
				return exec.Command("node", filepath.Join(setting(t, "E2E_NODE"), suite+".mjs"))
			})
		})
	}
}
