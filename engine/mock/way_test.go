package mock_test

import (
	"testing"
	"time"

	"github.com/dynago/dynago/engine/mock"
)

// Who waits takes the place of lower priorities if the arguments say so, and only
// then, and only if there is no room beside them.
func TestPreemptOnPriority(t *testing.T) {
	for _, tt := range []struct {
		name        string
		change      func(*mock.Args)
		preemptions int64
		soon        bool
	}{
		{"off", func(a *mock.Args) { a.PreemptOnPriority = false }, 0, false},
		{"on", func(*mock.Args) {}, 1, true},
		{"on, and room", func(a *mock.Args) { a.NumGPUBlocks = 40 }, 0, true},
		{"on, one at a time", func(a *mock.Args) { a.NumGPUBlocks, a.MaxNumSeqs = 40, 1 }, 1, true},
		{"on, with a host", func(a *mock.Args) { a.HostBlocks = 64 }, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := tiered(12, 0, 0)
			a.PreemptOnPriority = true
			tt.change(&a)
			w := newCores(t, a)
			w.submit(0, "slow", ids(0, 24), 24)
			w.run(150 * time.Millisecond)
			w.submit(0, "urgent", ids(1000, 28), 1, func(r *mock.Request) { r.Priority = 5 })
			w.run(150 * time.Millisecond)
			_, soon := w.took["urgent"]
			w.run(long)
			if n := w.cores[0].Load(); n.Preemptions != tt.preemptions || soon != tt.soon || n.Running+n.Waiting > 0 {
				t.Errorf("%d preemptions, answered soon: %v; %d are left", n.Preemptions, soon, n.Running+n.Waiting)
			}
		})
	}
}

// New requests leave room for those that run.
func TestWatermark(t *testing.T) {
	for _, tt := range []struct {
		watermark   float64
		preemptions bool
	}{{0, true}, {0.4, false}, {1, false}} {
		a := tiered(10, 0, 0)
		a.Watermark = tt.watermark
		w := newCores(t, a)
		w.submit(0, "grows", ids(0, 16), 12)
		w.submit(0, "beside", ids(1000, 20), 8)
		w.run(long)
		if n := w.cores[0].Load(); n.Running+n.Waiting > 0 || (n.Preemptions > 0) != tt.preemptions {
			t.Errorf("watermark %v: %d preemptions, want some: %v; %d are left", tt.watermark, n.Preemptions, tt.preemptions, n.Running+n.Waiting)
		}
	}
}
