package kvcache_test

import (
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

func TestFrequencyFilter(t *testing.T) {
	const period = 600 * time.Second
	f := kvcache.NewFrequencyFilter(3)
	for i, step := range []struct {
		at   time.Duration
		h    kv.SeqHash
		want bool
	}{
		{0, 1, false},
		{0, 1, true},           // counts 2
		{period - 1, 1, true},  // counts 4
		{period, 2, false},     // 1 counts 3
		{2 * period, 2, false}, // forgotten: one sighting in ten minutes
		{3 * period, 1, true},  // counts 1, and 2 with this
		{5 * period, 1, false}, // forgotten
		{5 * period, 1, true},
		{5 * period, 3, false},
		{5 * period, 4, false},
		{5 * period, 5, false}, // a fourth one: those seen once go, and 1 counts 1
		{5 * period, 1, true},
		{5 * period, 4, false},
		{1000 * period, 1, false},
		{1000 * period, 1, true},
	} {
		if got := f.Pass(step.at, step.h); got != step.want {
			t.Errorf("step %d: block %d at %v: %v, want %v", i, step.h, step.at, got, step.want)
		}
		if f.Len() > 3 {
			t.Errorf("step %d: %d blocks are remembered", i, f.Len())
		}
	}
}
