package mock_test

import (
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
)

// A request that waits does not push out what is pinned while another one runs that
// will make room; it does when it would wait for nobody.
func TestWaitsForNoPin(t *testing.T) {
	a := mock.DefaultArgs()
	a.BlockSize, a.NumGPUBlocks, a.PinBudgetG1 = 4, 10, 0.5
	a.TimingModel, a.PrefillMS, a.DecodeMS = "constant", 10, 5
	c := mock.NewCore(a)
	var now time.Duration
	submit := func(first uint32, prompt, answer int, pin time.Duration) mock.ID {
		id, err := c.Submit(now, mock.Request{
			Prompt: ids(first, prompt), Generator: &counter{first + 500}, MaxTokens: answer,
			Directives: &kv.Directives{Pins: []kv.Pin{{UpTo: uint32(prompt), TTL: pin}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	// ends returns the request that ends first, and how many blocks it has pinned.
	ends := func() (id mock.ID, pinned int) {
		for range 100 {
			pass := c.Step(now)
			if pass.Idle {
				break
			}
			now = pass.End
			for _, o := range pass.Outputs {
				if o.Finish != engine.Running {
					return o.ID, o.Pinned
				}
			}
		}
		t.Fatal("nothing ends")
		return 0, 0
	}
	pinned := submit(0, 16, 1, time.Hour)
	if id, n := ends(); id != pinned || n != 4 {
		t.Fatalf("request %d has ended with %d blocks pinned, want %d with 4", id, n, pinned)
	}
	running, waiting := submit(1000, 15, 4, 0), submit(2000, 11, 1, 0) // 4 blocks and 3, of 6
	if id, _ := ends(); id != running {
		t.Errorf("request %d has ended first, want %d, for which the other one waits", id, running)
	}
	if id, _ := ends(); id != waiting {
		t.Errorf("request %d has ended, want %d", id, waiting)
	}
	again := submit(0, 17, 1, time.Hour)
	cached := 0
	for range 10 {
		pass := c.Step(now)
		for _, o := range pass.Outputs {
			cached = max(cached, o.Cached)
		}
		if pass.Idle {
			break
		}
		now = pass.End
	}
	if cached != 16 {
		t.Errorf("of the pinned prompt, request %d, %d tokens were there, want 16", again, cached)
	}
	alone := submit(3000, 30, 1, 0)
	if id, _ := ends(); id != alone {
		t.Errorf("request %d has ended, want %d: it waits for nobody", id, alone)
	}
	if n := c.CacheStats().Tiers[kv.TierDevice].Evictions[4]; n == 0 {
		t.Error("no pin was broken, and there was no other room")
	}
}
