package main

import (
	"runtime"
	"testing"
)

// A heap is collected once work has paused, if there is something in it to collect.
func TestLull(t *testing.T) {
	const mb = 1 << 20
	var l lull
	for i, step := range []struct {
		worked, live, held uint64
		want               bool
	}{
		{500 * mb, 100 * mb, 190 * mb, false},
		{0, 100 * mb, 190 * mb, false}, // one look is no lull
		{0, 100 * mb, 190 * mb, true},
		{0, 90 * mb, 90 * mb, false}, // that was collected
		{mb, 90 * mb, 91 * mb, false},
		{mb, 90 * mb, 113 * mb, true},      // a trickle adds up
		{2 * mb, 90 * mb, 180 * mb, false}, // this is work
		{0, 90 * mb, 180 * mb, false},
		{0, 90 * mb, 180 * mb, true},
		{200 << 10, 4 * mb, 8 * mb, true}, // little, although it is much of a small heap
		{300 << 10, 4 * mb, 8 * mb, false},
	} {
		u := usage{allocated: l.allocated + step.worked, live: step.live, held: step.held}
		if got := l.due(u); got != step.want {
			t.Errorf("%d: due %v, want %v", i, got, step.want)
		}
	}
}

// What the runtime tells follows the heap.
func TestHeapUsage(t *testing.T) {
	runtime.GC()
	before := heapUsage()
	held := make([]byte, 32<<20)
	made := heapUsage()
	runtime.GC()
	after := heapUsage()
	if made.allocated-before.allocated < 32<<20 || made.held < 32<<20 || after.live < 32<<20 {
		t.Errorf("32 MB were made, and of %+v, %+v and %+v something has not grown by them", before, made, after)
	}
	runtime.KeepAlive(held)
}
