package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynago/dynago/bench/workload"
)

func TestHistoryIsWrittenAndTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ag.bin")
	var out bytes.Buffer
	if err := run([]string{"-name", "AG", "-short", "-sequence-keys", "-out", path}, &out); err != nil {
		t.Fatal(err)
	}
	var told struct{ Operations, Queried, Stored, Removed int }
	if err := json.Unmarshal(out.Bytes(), &told); err != nil {
		t.Fatal(err)
	}
	h, err := workload.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	n := workload.CountsOf(h.Ops)
	if told.Operations != len(h.Ops) || told.Queried != n.Queried || told.Stored != n.Stored || told.Removed != 0 || n.Queried != 1_960_000 {
		t.Errorf("told %+v, and wrote %+v", told, n)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"-name AG":          "no -out",
		"-name B7 -out x":   `corpus "B7"`,
		"-name AG -short=x": "invalid boolean",
	} {
		if err := run(strings.Fields(args), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
}
