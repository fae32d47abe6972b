package pipeline_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

const (
	firstItem  = 10 * time.Second
	inactivity = 5 * time.Second
)

// gaps yields one token after each of these pauses, the last one with the end.
func gaps(pauses []time.Duration) func(context.Context, *engine.Request, func(engine.Delta, error) bool) {
	return func(ctx context.Context, _ *engine.Request, yield func(engine.Delta, error) bool) {
		for i, pause := range pauses {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				yield(engine.Delta{}, engine.CauseOf(ctx, ctx.Err()))
				return
			}
			d := engine.Delta{TokenIDs: []uint32{'a'}}
			if i == len(pauses)-1 {
				d.Finish, d.Usage = engine.FinishLength, &engine.Usage{Output: len(pauses)}
			}
			if !yield(d, nil) {
				return
			}
		}
	}
}

func TestWatchdog(t *testing.T) {
	steady := func(n int, last time.Duration) []time.Duration {
		list := make([]time.Duration, n+1)
		for i := range list {
			list[i] = 4 * time.Second
		}
		list[n] = last
		return list
	}
	for name, tc := range map[string]struct {
		pauses []time.Duration // of the engine
		client time.Duration   // how long the client takes over an item
		want   error
		after  time.Duration // since the start
	}{
		"in time":                         {pauses: []time.Duration{firstItem - 1, inactivity - 1, inactivity - 1}, after: firstItem + 2*inactivity - 3},
		"no first item":                   {pauses: []time.Duration{firstItem + 1}, want: engine.ErrFirstItem, after: firstItem},
		"silence after an early item":     {pauses: []time.Duration{0, inactivity + 1, 0}, want: engine.ErrInactive, after: inactivity},
		"silence after a late item":       {pauses: []time.Duration{firstItem - 1, inactivity + 1, 0}, want: engine.ErrInactive, after: firstItem + inactivity - 1},
		"silence after a long stream":     {pauses: steady(100, inactivity+1), want: engine.ErrInactive, after: 400*time.Second + inactivity},
		"a slow client is no one's fault": {pauses: []time.Duration{0, 0, 0}, client: time.Hour, after: 3 * time.Hour},
		"and excuses nothing":             {pauses: []time.Duration{0, inactivity + 1, 0}, client: time.Hour, want: engine.ErrInactive, after: time.Hour + inactivity},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{generate: gaps(tc.pauses)}
				h := newHouse(t, pipeline.Config{Limits: pipeline.Limits{FirstItem: firstItem, Inactivity: inactivity}}, f)
				start := time.Now()
				var last error
				for e, err := range h.Run(t.Context(), request("Hello")) {
					if last = err; e.Kind == chat.TextDelta {
						time.Sleep(tc.client)
					}
				}
				if !errors.Is(last, tc.want) || tc.want != nil && engine.KindOf(last) != engine.ResponseTimeout {
					t.Errorf("error %v, want %v", last, tc.want)
				}
				if took := time.Since(start); took != tc.after {
					t.Errorf("took %v, want %v", took, tc.after)
				}
				h.released(t)
			})
		})
	}
}

// Items come when the timer fires, just before and just after it, and the timer
// is armed anew again and again. A silence that is too long is noticed each time,
// and no other one.
func TestWatchdogAtTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h := newHouse(t, pipeline.Config{Limits: pipeline.Limits{FirstItem: firstItem, Inactivity: inactivity}}, f)
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 0))
			pauses := make([]time.Duration, 12)
			want := time.Duration(-1) // when the silence is too long
			sum := time.Duration(0)
			for i := range pauses {
				// Half and whole limits make deadlines and items fall together.
				pauses[i] = inactivity / 2 * time.Duration(r.IntN(2))
				if r.IntN(2) == 0 {
					pauses[i] = inactivity - 1
				}
				if r.IntN(20) == 0 {
					pauses[i] = inactivity + 1
				}
				if i > 0 && pauses[i] > inactivity && want < 0 {
					want = sum + inactivity
				}
				sum += pauses[i]
			}
			f.generate = gaps(pauses)
			start := time.Now()
			var last error
			for _, err := range h.Run(t.Context(), request("Hello")) {
				last = err
			}
			if want < 0 && (last != nil || time.Since(start) != sum) || want >= 0 && (last == nil || time.Since(start) != want) {
				t.Errorf("pauses %v: %v after %v, want a cut after %v", pauses, last, time.Since(start), want)
			}
			for _, w := range h.fleet.Snapshot() {
				time.Sleep(time.Minute) // the worker is left alone for a while
				if !w.Ready() {
					t.Fatal("the worker is not back")
				}
			}
		}
		h.released(t)
	})
}
