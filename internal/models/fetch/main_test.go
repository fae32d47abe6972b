package main

import (
	"strings"
	"testing"
)

func TestUnknownFiles(t *testing.T) {
	for arg, problem := range map[string]string{
		"no-such-model": "no model or file no-such-model",
		"*/no-such":     "no model or file */no-such",
		"[":             "[: syntax error in pattern",
	} {
		if err := run(t.Context(), t.TempDir(), []string{arg}); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %q", arg, err, problem)
		}
	}
}
