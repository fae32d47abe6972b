package vllm_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	fake "github.com/dynago/dynago/internal/fake/vllm"
)

// Many requests at once, of which some are left and some cancelled, do not mix, and
// leave nothing behind at the server.
func TestManyAtOnce(t *testing.T) {
	s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, nil)
	s.ready(t)
	const asks, lanes, most = 600, 60, 24
	prompts := make([][]uint32, 8)
	want := make([][]uint32, len(prompts))
	for i := range prompts {
		prompts[i] = slices.Repeat([]uint32{uint32(100 + i)}, 20+i)
		ids, _, err := s.run(t, &engine.Request{ID: attemptID(), TokenIDs: prompts[i], Stop: engine.Stop{MaxTokens: most}})
		if err != nil {
			t.Fatal(err)
		}
		want[i] = ids
	}
	var lane sync.WaitGroup
	for n := range lanes {
		lane.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			for range asks / lanes {
				i, leave := random.IntN(len(prompts)), random.IntN(3*most)
				ctx, cancel := context.WithCancel(t.Context())
				var got []uint32
				var end error
				for d, err := range s.Generate(ctx, &engine.Request{ID: attemptID(), TokenIDs: prompts[i], Stop: engine.Stop{MaxTokens: most}}) {
					got, end = append(got, d.TokenIDs...), err
					if len(got) >= leave && leave%2 == 0 {
						break
					} else if len(got) >= leave {
						cancel()
					}
				}
				cancel()
				if len(got) > most || !slices.Equal(got, want[i][:len(got)]) {
					t.Errorf("%v is no beginning of %v", got, want[i])
				}
				if end != nil && engine.KindOf(end) != engine.Cancelled || end == nil && leave > most && len(got) != len(want[i]) {
					t.Errorf("%d of %d ids, left at %d: %v", len(got), len(want[i]), leave, end)
				}
			}
		})
	}
	lane.Wait()
	s.awaitIdle(t)
}
