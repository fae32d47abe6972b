package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynago/dynago/kv"
)

func TestTrackingKey(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, n int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Repeat([]byte{'A'}, n), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, short, long := file("good", 32), file("short", 31), file("long", 33)
	for _, tc := range []struct {
		name           string
		hash, file, id string
		errs           []string // parts of the error; nil = none
		keyed          bool
	}{
		{"public", "public-xxh3-v1", "", "", nil, false},
		{"keyed", keyed, good, "2026-01", nil, true},
		{"public with a file", "public-xxh3-v1", good, "", []string{"--router-tracking-key-file", keyed}, false},
		{"public with an id", "public-xxh3-v1", "", "a", []string{"--router-tracking-key-id", keyed}, false},
		{"no file", keyed, "", "a", []string{"--router-tracking-key-file", "32 bytes"}, false},
		{"no id", keyed, good, "", []string{"--router-tracking-key-id"}, false},
		{"blank id", keyed, good, " a", []string{"--router-tracking-key-id", `" a"`}, false},
		{"short", keyed, short, "a", []string{"--router-tracking-key-file", "31 bytes", "32"}, false},
		{"long", keyed, long, "a", []string{"--router-tracking-key-file", "33 bytes", "32"}, false},
		{"missing", keyed, filepath.Join(dir, "none"), "a", []string{"--router-tracking-key-file", "none"}, false},
		{"a folder", keyed, dir, "a", []string{"--router-tracking-key-file"}, false},
	} {
		s := routerSettings{TrackingHash: tc.hash, TrackingKeyFile: tc.file, TrackingKeyID: tc.id}
		key, err := s.trackingKey()
		if (err == nil) != (tc.errs == nil) || (key != nil) != tc.keyed {
			t.Errorf("%s: key %v, error %v", tc.name, key != nil, err)
			continue
		}
		for _, part := range tc.errs {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, without %q", tc.name, err, part)
			}
		}
		if key == nil {
			continue
		}
		want, err := kv.NewTrackingKey(bytes.Repeat([]byte{'A'}, 32), tc.id)
		if err != nil {
			t.Fatal(err)
		}
		if got := key.Scheme("m", "default", 4, kv.Namespace{}, false); got != want.Scheme("m", "default", 4, kv.Namespace{}, false) {
			t.Errorf("%s: another key", tc.name)
		}
	}
}
