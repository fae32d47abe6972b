package mock_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
)

func TestTierArgs(t *testing.T) {
	for _, tt := range []struct {
		args string
		want [4]int
	}{
		{`{"num_gpu_blocks": 10}`, [4]int{10}},
		{`{"num_gpu_blocks": 10, "num_g2_blocks": 20, "num_g3_blocks": 30}`, [4]int{10, 20, 30}},
		{`{"num_gpu_blocks": 10, "g2_blocks": 5, "g4_blocks": 40}`, [4]int{10, 5, 0, 40}},
		{`{"num_gpu_blocks": 10, "block_size": 16, "kv_bytes_per_token": 1000, "g2_blocks": 1, "g3_bytes": 16000000, "g4_bytes": 47999}`, [4]int{10, 1, 1000, 2}},
		{`{"num_gpu_blocks": 10, "block_size": 16, "g3_bytes": 1000000000}`, [4]int{10, 0, 476}}, // of 2 MiB
	} {
		a, err := mock.ParseArgs([]byte(tt.args))
		if err != nil || a.Tiers() != tt.want {
			t.Errorf("%s: %v, %v, want %v", tt.args, a.Tiers(), err, tt.want)
		}
	}
	a, err := mock.ParseArgs([]byte(`{"bandwidth_g2_to_g1_gbps": 3, "bw_g1_g2": 4}`))
	if err != nil || a.BandwidthG2G1 != 3 || a.BandwidthG1G2 != 4 || a.BandwidthG3G2 != 7 {
		t.Errorf("bandwidths %v %v %v, %v", a.BandwidthG2G1, a.BandwidthG1G2, a.BandwidthG3G2, err)
	}
	for args, says := range map[string]string{
		`{"g2_blocks": -1}`: "g2_blocks is -1",
		`{"g2_blocks": 1, "enable_prefix_caching": false}`: "enable_prefix_caching",
		`{"g4_blocks": 5}`:               "needs a tier above it",
		`{"g3_shared": true}`:            "there is no disk",
		`{"g3_bytes": 5}`:                "at least one block of",
		`{"pin_budget_g2": 1.5}`:         "pin_budget_g2 is 1.5, want 0 to 1",
		`{"evictor": "newest"}`:          `evictor is "newest"`,
		`{"write_policy": "write_back"}`: "write_through or none",
		`{"think_ephemeral": "on"}`:      "auto or off",
		`{"bw_g4": -1}`:                  "bw_g4 is -1",
		`{"offload_min_priority": 101}`:  "0 to 100",
		`{"g2_block": 1}`:                `unknown key "g2_block"`,
		`{"num_g2_blocks": "many"}`:      "g2_blocks: want a whole number",
		`{"lat_g1_g2_ms": 1e300}`:        "lat_g1_g2_ms",
	} {
		if _, err := mock.ParseArgs([]byte(args)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a word of %q", args, err, says)
		}
	}
}

// Cards say what the cache can do.
func TestCacheFeatures(t *testing.T) {
	a := mock.DefaultArgs()
	has := func(f engine.Feature) bool { return a.Card("m").Features.Has(f) }
	if !has(engine.FeaturePins) || !has(engine.FeatureRetention) || !has(engine.FeatureSessions) || has(engine.FeaturePrefetch) {
		t.Errorf("a device alone has %v", a.Card("m").Features)
	}
	if a.HostBlocks = 1; !has(engine.FeaturePrefetch) {
		t.Errorf("tiers have %v", a.Card("m").Features)
	}
	if a.HostBlocks, a.EnablePrefixCaching = 0, false; has(engine.FeaturePins) || has(engine.FeatureSessions) {
		t.Errorf("without a cache there are %v", a.Card("m").Features)
	}
	if s := mock.NewShared(a); s != nil || s.Generation() != 0 {
		t.Error("engines without a store share something")
	}
}
