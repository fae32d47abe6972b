package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
)

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begin := time.Now()
		fault := errors.New("no")
		probes := 0
		var at []time.Duration
		for v, err := range engine.Poll(ctx, time.Second, 0.1, func(ctx context.Context) (int, error) {
			if probes++; probes == 3 {
				<-ctx.Done() // hangs
				return 0, ctx.Err()
			}
			if probes == 2 {
				return 0, fault
			}
			return probes, nil
		}) {
			at = append(at, time.Since(begin))
			switch len(at) {
			case 1:
				if v != 1 || err != nil || at[0] != 0 {
					t.Errorf("first: %d, %v after %v", v, err, at[0])
				}
			case 2:
				if err != fault || at[1] < 900*time.Millisecond || at[1] > 1100*time.Millisecond {
					t.Errorf("second: %v after %v", err, at[1])
				}
			case 3:
				if !errors.Is(err, context.DeadlineExceeded) || at[2]-at[1] > 3200*time.Millisecond {
					t.Errorf("one that hangs: %v after %v", err, at[2]-at[1])
				}
			case 4:
				if v != 4 || err != nil {
					t.Errorf("after it: %d, %v", v, err)
				}
				cancel()
			}
		}
		if len(at) != 4 {
			t.Errorf("%d readings, want 4", len(at))
		}
	})
}
