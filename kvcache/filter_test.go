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

// A filter that nobody asked for a night forgets it all at once.
func TestFrequencyFilterAfterANight(t *testing.T) {
	f, naive := kvcache.NewFrequencyFilter(0), kvcache.NewFrequencyFilter(0)
	for _, f := range []*kvcache.FrequencyFilter{f, naive} {
		for h := range kv.SeqHash(64) {
			for range h % 8 {
				f.Pass(0, h+1)
			}
		}
	}
	const period = 600 * time.Second
	for at := period; at <= 40*period; at += period {
		naive.Pass(at, 1000)
	}
	f.Pass(40*period, 1000)
	for h := range kv.SeqHash(64) {
		if got, want := f.Pass(40*period, h+1), naive.Pass(40*period, h+1); got != want || want != (h%8 == 7) {
			t.Errorf("block %d seen %d times passes: %v, want %v", h, h%8, got, want)
		}
	}
}
