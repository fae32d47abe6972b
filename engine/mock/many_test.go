package mock_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
)

// TestManyAtOnce lets requests, controls, readers of events and crashes loose on two
// engines with two ranks each that share a store: everything ends, and what is
// answered is answered in full.
func TestManyAtOnce(t *testing.T) {
	args := mock.DefaultArgs()
	args.BlockSize, args.NumGPUBlocks, args.HostBlocks, args.DiskBlocks, args.SharedBlocks = 4, 24, 16, 32, 64
	args.DPSize, args.SpeedupRatio, args.DiskShared, args.LoadBias, args.AllowHardPins, args.PinBudgetG1 = 2, 0, true, 1e6, true, 0.5
	shared := mock.NewShared(args)
	var engines []*mock.Engine
	for range 2 {
		e := open(t, mock.Config{Model: "m", Args: args, Source: mock.SourceRandom, Shared: shared})
		engines = append(engines, e)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	reading, stopReading := context.WithCancel(ctx)
	var readers, all sync.WaitGroup
	for _, e := range engines {
		readers.Go(func() {
			for _, err := range e.Events(reading, nil) {
				if err != nil && reading.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	absurd := []time.Duration{0, -1, time.Nanosecond, time.Hour, math.MaxInt64, math.MinInt64}
	for i := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range 150 {
				e := engines[r.IntN(2)]
				key := kv.SessionKey{ID: fmt.Sprint(r.IntN(5))}
				tokens := ids(uint32(r.IntN(3))*1000, 1+r.IntN(40))
				rank := uint32(r.IntN(2))
				ttl := absurd[r.IntN(len(absurd))]
				switch r.IntN(12) {
				case 0:
					e.OpenSession(ctx, key, engine.SessionOptions{Timeout: ttl, Rank: &rank}) //nolint:errcheck
				case 1:
					e.CloseSession(ctx, key) //nolint:errcheck
				case 2:
					e.Pin(ctx, engine.PinRequest{TokenIDs: tokens, TTL: ttl, Hard: r.IntN(2) == 0, Session: key}) //nolint:errcheck
				case 3:
					e.Retain(ctx, engine.RetentionUpdate{Hashes: make([]kv.SeqHash, 3), Priority: 90, TTL: ttl}) //nolint:errcheck
				case 4:
					p, err := e.Prefetch(ctx, engine.PrefetchRequest{TokenIDs: tokens, In: ttl, Rank: &rank})
					if err == nil && r.IntN(2) == 0 {
						e.CancelPrefetch(ctx, p.ID) //nolint:errcheck
					}
				case 5:
					if r.IntN(10) == 0 {
						e.Restart()
					}
				default:
					q := &engine.Request{TokenIDs: tokens, Stop: engine.Stop{MaxTokens: 1 + r.IntN(30)}, DPRank: &rank}
					q.KV.Session.ID, q.KV.NextIn = key.ID, ttl
					q.KV.Pins = []kv.Pin{{UpTo: uint32(r.IntN(50)), TTL: ttl, Hard: r.IntN(2) == 0}}
					q.KV.Session.Timeout = ttl
					end := uint32(math.MaxUint32)
					q.KV.Ranges = []kv.Range{{Start: uint32(r.IntN(50)), End: &end, Priority: 100, TTL: ttl}}
					leave := -1
					if r.IntN(3) == 0 {
						leave = r.IntN(10)
					}
					n := 0
					for d, err := range e.Generate(ctx, q) {
						if ctx.Err() != nil {
							t.Error("a request is stuck")
							return
						}
						if n += len(d.TokenIDs); err == nil && d.Finish != engine.Running && n != q.Stop.MaxTokens {
							t.Errorf("%d tokens, want %d", n, q.Stop.MaxTokens)
						}
						if n > leave && leave >= 0 {
							break
						}
					}
				}
			}
		})
	}
	all.Wait()
	stopReading()
	readers.Wait()
}
