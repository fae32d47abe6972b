package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynago/dynago/kvstore"
)

func TestReadNamespace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]kvstore.Namespace{
		"a":                                   {Name: "a"},
		"a,quota=2GiB,full=deny,token=secret": {Name: "a", Quota: 2 << 30, Deny: true, Token: "secret"},
		"a,quota=1000,full=evict":             {Name: "a", Quota: 1000},
		"a,token-file=" + file:                {Name: "a", Token: "from file"},
	} {
		if got, err := readNamespace(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"a,quota=x":               `quota: "x": want a size`,
		"a,quota=":                "want a size",
		"a,full=":                 "want evict or deny",
		"a,secret":                "want quota=SIZE",
		"a,token=":                "want quota=SIZE",
		"a,token-file=/dev/null":  "is empty",
		"a,token-file=/not/there": "token-file",
	} {
		if _, err := readNamespace(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestReadSize(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "12B": 12, "3KiB": 3 << 10, "512MiB": 512 << 20, "4TiB": 4 << 40} {
		if got, err := readSize(text); got != want || err != nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "1GB", "GiB", "1.5GiB", "9999999999TiB", "1iB"} {
		if got, err := readSize(text); err == nil {
			t.Errorf("%s: %d", text, got)
		}
	}
}

func TestTierSettings(t *testing.T) {
	good := tierSettings{Disk: "1MiB", S3: "1MiB", Lookup: 1, Transfer: 1}
	for want, change := range map[string]func(*tierSettings){
		`--disk: "much"`:             func(s *tierSettings) { s.Dir, s.Disk = t.TempDir(), "much" },
		"--dir: kvcache/disk: mkdir": func(s *tierSettings) { s.Dir = "/dev/null/x" },
		"--disk-pin-budget: 2: want": func(s *tierSettings) { s.DiskPins = 2 },
		`--s3: "much"`:               func(s *tierSettings) { s.Endpoint, s.Bucket, s.S3 = "http://127.0.0.1:9", "bucket", "much" },
		"--s3-lookup-timeout":        func(s *tierSettings) { s.Endpoint, s.Bucket, s.Lookup = "http://127.0.0.1:9", "bucket", 0 },
		"--s3-endpoint: kvcache/s3":  func(s *tierSettings) { s.Bucket = "bucket" },
		`bucket ""`:                  func(s *tierSettings) { s.Endpoint = "http://127.0.0.1:9" },
	} {
		s := good
		change(&s)
		l, err := s.open(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
	good.Dir, good.Endpoint, good.Bucket = t.TempDir(), "http://127.0.0.1:9", "bucket"
	l, err := good.open(t.Context())
	if err != nil || len(l.tiers) != 2 || l.tiers[0].Later || !l.tiers[1].Later {
		t.Errorf("%+v, %v", l.tiers, err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}
