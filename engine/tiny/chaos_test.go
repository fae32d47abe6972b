package tiny_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny"
	"github.com/dynago/dynago/kv"
)

// While the engine is restarted, reset and asked for all that can be asked of a cache,
// requests that are carried on where they were broken off come to the answer of a plain
// loop.
func TestChaos(t *testing.T) {
	e := open(t, small(), func(a *mock.Args) {
		a.BlockSize, a.NumGPUBlocks, a.HostBlocks, a.DiskBlocks, a.MaxNumBatchedTokens, a.PinBudgetG1 = 4, 60, 150, 300, 24, 0.3
	})
	epoch := e.Epoch()
	ctx, stop := context.WithCancel(t.Context())
	var meddling, asking sync.WaitGroup
	meddling.Go(func() { meddle(ctx, t, e) })
	for i := range 24 {
		asking.Go(func() {
			p := prompt(i%6, 12+9*(i%6))
			want := plain(t, small(), p, 40)
			var got []uint32
			for attempts := 0; len(got) < len(want); attempts++ {
				r := ask(append(slices.Clone(p), got...), len(want)-len(got))
				r.KV.Session = kv.Session{ID: string(rune('a' + i%3))}
				for d, err := range e.Generate(ctx, r) {
					if err != nil && engine.KindOf(err).Retry() != engine.RetryMigrate || attempts > 200 {
						t.Errorf("request %d, attempt %d: %v", i, attempts, err)
						return
					}
					got = append(got, d.TokenIDs...)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("request %d: %v, want %v", i, got, want)
			}
		})
	}
	asking.Wait()
	stop()
	meddling.Wait()
	if e.Epoch() == epoch {
		t.Error("the engine was never restarted")
	}
}

// meddle does with an engine whatever its users may do, in an order that a seed gives.
func meddle(ctx context.Context, t *testing.T, e *tiny.Engine) {
	random := rand.New(rand.NewPCG(1, 2))
	restarts := 0
	for ctx.Err() == nil {
		p := prompt(random.IntN(6), 12+9*random.IntN(6))
		key := kv.SessionKey{Model: "tiny", ID: string(rune('a' + random.IntN(3)))}
		var err error
		switch n := random.IntN(40); {
		case n == 0 && restarts < 20:
			restarts++
			e.Restart()
		case n == 1:
			if _, err := e.Control(ctx, engine.ControlReset, nil); err != nil && engine.KindOf(err) != engine.Unavailable {
				t.Errorf("reset: %v", err)
			}
		case n < 8:
			_, err = e.Pin(ctx, engine.PinRequest{TokenIDs: p, TTL: time.Duration(random.IntN(2)) * time.Minute, Session: key})
		case n < 14:
			_, err = e.Prefetch(ctx, engine.PrefetchRequest{TokenIDs: p, Target: kv.Tier(random.IntN(2))})
		case n < 18:
			_, err = e.CloseSession(ctx, key)
		case n < 24:
			for range e.Generate(ctx, ask(p, 3)) { // and is left
				break
			}
		default:
			for range e.Load(ctx) { // a moment goes by
				break
			}
		}
		if err != nil {
			t.Errorf("%v", err)
		}
	}
}
