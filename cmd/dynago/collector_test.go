package main

import (
	"runtime"
	"testing"
	"time"
)

// A small heap grows while the server is busy, a large one and an idle one do as ever,
// and small changes are none.
func TestCollections(t *testing.T) {
	c := collector{growth: usualGrowth}
	now := time.Unix(1764500000, 0)
	for i, step := range []struct {
		after time.Duration
		live  uint64
		want  int
	}{
		{time.Hour, 8 << 20, 100},
		{time.Second, 8 << 20, 100}, // it is not busy
		{100 * time.Millisecond, 8 << 20, 700},
		{700 * time.Millisecond, 8 << 20, 700}, // it is busy, and collected less
		{700 * time.Millisecond, 17 << 19, 700},
		{700 * time.Millisecond, 16 << 20, 300},
		{700 * time.Millisecond, 40 << 20, 100},
		{100 * time.Millisecond, 400 << 20, 100},
		{100 * time.Millisecond, 16 << 20, 300},
		{time.Minute, 16 << 20, 100},
		{100 * time.Millisecond, 0, 6300},
	} {
		now = now.Add(step.after)
		if got := c.collected(now, step.live); got != step.want {
			t.Errorf("%d: growth %d, want %d", i, got, step.want)
		}
	}
}

// What lives is what the runtime has found alive.
func TestLiveHeap(t *testing.T) {
	held := make([]byte, 32<<20)
	runtime.GC()
	if live := liveHeap(); live < 32<<20 {
		t.Errorf("%d bytes are alive, and 32 MB are held", live)
	}
	runtime.KeepAlive(held)
}
