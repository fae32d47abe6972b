//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// What lies on the disk is there after a restart, and what lies in a store of a tenant
// is there for others of that tenant: nobody computes it again, and all say the same.
func TestTinyFindsBlocksAgain(t *testing.T) {
	small := []string{"--demo", "tiny", "--workers", "1", "--log-level", "warn", "--num-gpu-blocks-override", "40", "--max-model-len", "640"}
	_, store := startStore(t, "--namespace", "team,token=let:me/in", "--namespace", "others,token=theirs")
	at := func(user string) []string { return []string{"--kv-store", "redis://" + user + "@" + store} }
	dir := []string{"--g3-blocks", "500", "--kv-disk-dir", t.TempDir()}
	for _, tt := range []struct {
		name          string
		first, second []string
		pool          string
		found         bool
	}{
		{"a disk", dir, dir, "disk", true},
		{"a store", at("team:let%3Ame%2Fin"), at("team:let%3Ame%2Fin"), "external", true},
		{"a store that is not theirs", at("others:theirs"), at("others:let%3Ame%2Fin"), "external", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t, append(slices.Clone(small), tt.first...)...)
			want := p.converse("", func() {})
			hits := fmt.Sprintf(`dynago_kv_hit_tokens_total{dp_rank="0",pool=%q`, tt.pool)
			if n := p.sum(hits); n > 0 {
				t.Errorf("%v tokens came from there before there was anything", n)
			}
			until(t, "blocks are written", func() bool {
				return p.sum(fmt.Sprintf(`dynago_kv_blocks{dp_rank="0",pool=%q,state="stored"`, tt.pool)) >= 10
			})
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			p = serve(t, append(slices.Clone(small), tt.second...)...)
			if told := strings.Contains(p.log.String(), "the store of KV blocks cannot be used"); told == tt.found {
				t.Errorf("the log tells of a store that cannot be used: %v", told)
			}
			got := p.converse("", func() {})
			if !slices.Equal(got.turns, want.turns) {
				t.Errorf("%q, want %q", got.turns, want.turns)
			}
			if n := p.sum(hits); n > 0 != tt.found {
				t.Errorf("%v tokens came from there", n)
			}
		})
	}
}
