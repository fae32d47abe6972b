//go:build unix

package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine/remote"
)

// However many workers there have been, only so many that are not used stay connected,
// and those the longest that were used last.
func TestPullPeersAreFew(t *testing.T) {
	p := &pullPeers{log: slog.New(slog.DiscardHandler)}
	use := func(n int) (peer any, done func()) {
		peer, done, err := p.dial(t.Context(), fmt.Sprintf("10.0.0.1:%d", 1+n))
		if err != nil {
			t.Fatal(err)
		}
		return peer, done
	}
	first, done := use(0)
	for n := range 3 * mostIdlePeers {
		_, done := use(1 + n)
		done()
		done() // a second time ends nothing
		_, done = use(1)
		done()
	}
	if n := len(p.known); n != 1+mostIdlePeers {
		t.Errorf("%d are connected, want one that is used and %d that are not", n, mostIdlePeers)
	}
	again, more := use(0)
	if more(); again != first {
		t.Error("one that is used was connected twice")
	}
	done()
	for _, kept := range []int{0, 1, 3*mostIdlePeers - 1} {
		if p.known[fmt.Sprintf("10.0.0.1:%d", 1+kept)] == nil {
			t.Errorf("number %d was used of late, and is gone", kept)
		}
	}
	if n := len(p.known); n != mostIdlePeers {
		t.Errorf("%d are connected at last, want %d", n, mostIdlePeers)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if _, _, err := p.dial(t.Context(), "10.0.0.1:1"); err == nil {
		t.Error("one was dialled by a worker that is closed")
	}
}

// That the key can be read on its way is said once, where it is so.
func TestPullKeyInPlainText(t *testing.T) {
	dir := t.TempDir()
	certify(t, dir)
	id, err := newIdentity("--tcp-tls", filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		key      string
		identity *identity
		peers    []string
		warnings int
	}{
		"two over the network": {"k", nil, []string{"10.0.0.1:1", "host:2"}, 1},
		"this machine":         {"k", nil, []string{"127.0.0.1:1", "localhost:2", "[::1]:3"}, 0},
		"no key":               {"", nil, []string{"10.0.0.1:1"}, 0},
		"TLS":                  {"k", id, []string{"10.0.0.1:1"}, 0},
	} {
		var log syncBuffer
		p := &pullPeers{config: remote.Config{Key: tt.key}, identity: tt.identity, log: slog.New(slog.NewTextHandler(&log, nil))}
		for _, address := range tt.peers {
			if _, _, err := p.dial(t.Context(), address); err != nil {
				t.Error(err)
			}
		}
		if n := strings.Count(log.String(), "goes over the network in plain text"); n != tt.warnings {
			t.Errorf("%s: %d warnings, want %d:\n%s", name, n, tt.warnings, &log)
		}
		p.close() //nolint:errcheck // nothing runs
	}
}

func TestReachable(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{
		"127.0.0.1:50061": "127.0.0.1:50061", "10.0.0.1:1": "10.0.0.1:1", "[::1]:2": "[::1]:2",
		"0.0.0.0:3": name + ":3", "[::]:4": name + ":4",
	} {
		if got := reachable(at); got != want {
			t.Errorf("%s: %s, want %s", at, got, want)
		}
	}
}

// A worker comes for the blocks of another one as the frontend comes for answers: with a
// key, and with certificates where there are any. What it is refused it computes, and
// nobody notices but who looks at log and metrics.
func TestWorkersPull(t *testing.T) {
	dir := t.TempDir()
	keys := fileOf(t, "keys", "secret\n")
	for _, who := range []string{"house", "strangers"} {
		if err := os.Mkdir(filepath.Join(dir, who), 0o700); err != nil {
			t.Fatal(err)
		}
		certify(t, filepath.Join(dir, who))
	}
	cert := func(who string) (worker []string, spec string) {
		c, k := filepath.Join(dir, who, "cert.pem"), filepath.Join(dir, who, "key.pem")
		return []string{"--tcp-tls-cert-path", c, "--tcp-tls-key-path", k, "--tcp-tls-ca-cert-path", c}, ",tls.ca=" + c + ",tls.cert=" + c + ",tls.key=" + k
	}
	house, ofHouse := cert("house")
	strangers, ofStrangers := cert("strangers")
	port := vacant(t, 1)[0]
	alone := serve(t, "--demo", "tiny", "--workers", "1", "--log-level", "warn").converse("", func() {})
	for _, tt := range []struct {
		name            string
		prefill, decode []string // flags, and behind the address what a frontend needs
		why             string   // nothing comes; "": it does
	}{
		{"a key", []string{"--api-keys-file", keys, ""}, []string{"--pull-key", "secret", ""}, ""},
		{"another key", []string{"--api-keys-file", keys, ""}, []string{"--pull-key", "stolen", ""}, "denied"},
		{"no key", []string{"--api-keys-file", keys, ""}, []string{""}, "denied"},
		{"certificates", append(house, ofHouse), append(house, ofHouse), ""},
		{
			"a key, certificates, and another address",
			append(house, "--api-keys-file", keys, "--listen", "127.0.0.1:"+port, "--advertise", "localhost:"+port, ofHouse),
			append(house, "--pull-key", "secret", "--tcp-tls-server-name", "127.0.0.1", ofHouse), "",
		},
		{"a name that is not in it", append(house, "--advertise", "localhost:"+port, ofHouse), append(house, ofHouse), "cannot_connect"},
		{"certificates of others", append(house, ofHouse), append(strangers, ofStrangers), "certificate"},
		{"a key that is not sent in the clear", []string{"--api-keys-file", keys, ""}, append(house, "--pull-key", "secret", ofHouse), "handshake"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flags := []string{"--log-level", "warn", "--router-mode", "round-robin"}
			var decode *program
			for role, args := range map[string][]string{"prefill": tt.prefill, "decode": tt.decode} {
				said, spec := args[:len(args)-1], args[len(args)-1]
				if !slices.Contains(said, "--listen") {
					said = append([]string{"--listen", "127.0.0.1:0"}, said...)
				}
				w := start(t, "/metrics", append([]string{
					"worker", "--engine", "tiny", "--system-port", "0", "--log-level", "warn", "--extra-engine-args", fmt.Sprintf(`{"worker_type":%q}`, role),
				}, said...)...)
				at := regexp.MustCompile(`--engine (\S+)\s+metrics +(\S+)/metrics`).FindStringSubmatch(w.banner)
				if at == nil {
					t.Fatalf("no line to serve it in, or no page\n%s", w.banner)
				}
				if w.url = at[2]; role == "decode" {
					decode = w
				}
				if slices.Contains(said, "--api-keys-file") {
					spec += ",api_key=secret"
				}
				flags = append(flags, "--engine", at[1]+spec)
			}
			p := serve(t, flags...)
			p.ready("dynago/tiny")
			if got := p.converse("", func() {}); !slices.Equal(got.turns, alone.turns) {
				t.Errorf("%q, want %q", got.turns, alone.turns)
			}
			count := func(outcome string) int {
				return int(decode.sum(`dynago_kv_pulls_total{dp_rank="0",outcome="` + outcome + `"`))
			}
			done, failed, blocks := count("done"), count("failed"), decode.sum("dynago_kv_pulled_blocks_total{")
			told := strings.Contains(decode.log.String(), "KV blocks did not come")
			if tt.why == "" && (done != len(alone.turns) || failed > 0 || blocks == 0 || told) {
				t.Errorf("%d hand-offs came and %d did not, with %v blocks", done, failed, blocks)
			}
			if tt.why != "" && (done > 0 || failed != len(alone.turns) || blocks > 0 || !told || !strings.Contains(decode.log.String(), tt.why)) {
				t.Errorf("%d hand-offs came and %d did not, with %v blocks; want the reason %q in the log", done, failed, blocks, tt.why)
			}
		})
	}
}

func TestBucketFolder(t *testing.T) {
	for at, want := range map[string][2]string{
		"kv":          {"kv", ""},
		"kv/":         {"kv", ""},
		"kv/team":     {"kv", "team/"},
		"kv/team/":    {"kv", "team/"},
		"kv/team/one": {"kv", "team/one/"},
	} {
		if bucket, folder := bucketFolder(at); [2]string{bucket, folder} != want {
			t.Errorf("%s: bucket %q, folder %q; want %q", at, bucket, folder, want)
		}
	}
}
