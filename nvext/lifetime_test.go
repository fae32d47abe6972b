package nvext_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/nvext"
)

func TestLifetime(t *testing.T) {
	for ttl, want := range map[any]time.Duration{
		nil: 5 * time.Minute, "5m": 5 * time.Minute, "1h": time.Hour, "90s": 90 * time.Second, "600": 10 * time.Minute, 600.0: 10 * time.Minute,
		"0": 0, "0s": 0, "0m": 0, "0h": 0, 0.0: 0,
		"9999999999h": math.MaxInt64, 1e30: math.MaxInt64, strings.Repeat("9", 400): math.MaxInt64,
	} {
		if got, ok := (&nvext.CacheControl{TTL: ttl}).Lifetime(); got != want || !ok {
			t.Errorf("%v: %v, readable %v, want %v", ttl, got, ok, want)
		}
	}
	for _, ttl := range []any{"-1s", "1d", "", "s", "1.5m", "5 m", "m5", -1.0, 0.5, math.NaN(), true} {
		if got, ok := (&nvext.CacheControl{TTL: ttl}).Lifetime(); got != nvext.DefaultLifetime || ok {
			t.Errorf("%v: %v, readable %v, want the default for what cannot be read", ttl, got, ok)
		}
	}
}
