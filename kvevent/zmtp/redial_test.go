package zmtp

import (
	"testing"
	"time"
)

func TestRedialAfter(t *testing.T) {
	for _, tt := range []struct {
		failures int
		jitter   float64
		want     time.Duration
	}{
		{0, 0, 50 * time.Millisecond},
		{0, 1, 100 * time.Millisecond},
		{1, 1, 200 * time.Millisecond},
		{3, 0.5, 600 * time.Millisecond},
		{5, 1, 3200 * time.Millisecond},
		{6, 1, 5 * time.Second},
		{6, 0, 2500 * time.Millisecond},
		{1 << 40, 1, 5 * time.Second},
	} {
		if got := redialAfter(tt.failures, tt.jitter); got != tt.want {
			t.Errorf("after %d failures, jitter %v: %v, want %v", tt.failures, tt.jitter, got, tt.want)
		}
	}
}
