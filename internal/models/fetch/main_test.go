package main

import (
	"strings"
	"testing"
)

func TestUnknownModel(t *testing.T) {
	err := run(t.Context(), t.TempDir(), []string{"no-such-model"})
	if err == nil || !strings.Contains(err.Error(), "no model or file no-such-model") {
		t.Errorf("got %v", err)
	}
}
