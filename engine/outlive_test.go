package engine_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
)

// counting yields a number each second, five in all, and tells how it ended.
func counting(ended *error, last *int) func(context.Context) iter.Seq2[int, error] {
	return func(ctx context.Context) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for n := 1; n <= 5; n++ {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					*ended = context.Cause(ctx)
					yield(0, *ended)
					return
				}
				*last = n
				if !yield(n, nil) {
					*ended = errors.New("left")
					return
				}
			}
		}
	}
}

func TestOutlive(t *testing.T) {
	failure := engine.Errorf(engine.Unavailable, "the other leg has failed")
	for name, tc := range map[string]struct {
		enough int           // 0: nothing is
		leave  time.Duration // 0: when it is over
		cause  error         // nil: by leaving the loop
		most   time.Duration
		last   int   // number that the source came to
		ended  error // nil: by itself
	}{
		"to its end":                  {last: 5},
		"left by the loop":            {leave: 2500 * time.Millisecond, most: time.Minute, last: 5},
		"client gone":                 {leave: 2500 * time.Millisecond, cause: engine.ErrClientGone, most: time.Minute, last: 5},
		"out of time":                 {leave: 500 * time.Millisecond, cause: engine.ErrDeadline, most: time.Minute, last: 5},
		"not for ever":                {leave: 500 * time.Millisecond, cause: engine.ErrClientGone, most: 2 * time.Second, last: 2, ended: engine.ErrClientGone},
		"enough, later":               {enough: 1, leave: 500 * time.Millisecond, cause: engine.ErrClientGone, most: time.Minute, last: 1, ended: errors.New("left")},
		"enough, before":              {enough: 1, leave: 1500 * time.Millisecond, cause: engine.ErrClientGone, most: time.Minute, last: 1, ended: engine.ErrClientGone},
		"something is wrong":          {leave: 500 * time.Millisecond, cause: failure, most: time.Minute, last: 0, ended: failure},
		"something is wrong, at last": {leave: 4500 * time.Millisecond, cause: failure, most: time.Minute, last: 4, ended: failure},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var group sync.WaitGroup
				o := engine.Outliving[int]{Life: t.Context(), Group: &group, Most: tc.most}
				if tc.enough > 0 {
					o.Enough = func(n int) bool { return n >= tc.enough }
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				began := time.Now()
				if tc.leave > 0 && tc.cause != nil {
					time.AfterFunc(tc.leave, func() { cancel(tc.cause) })
				}
				var ended error
				var last int
				var got []int
				for n, err := range engine.Outlive(ctx, o, counting(&ended, &last)) {
					if err != nil {
						if !errors.Is(err, tc.cause) || time.Since(began) != tc.leave {
							t.Errorf("%v after %v, want %v after %v", err, time.Since(began), tc.cause, tc.leave)
						}
						break
					}
					if got = append(got, n); tc.leave > 0 && tc.cause == nil && time.Duration(n+1)*time.Second > tc.leave {
						break
					}
				}
				group.Wait()
				if last != tc.last || (ended == nil) != (tc.ended == nil) || ended != nil && ended.Error() != tc.ended.Error() {
					t.Errorf("came to %d and ended with %v, want %d and %v", last, ended, tc.last, tc.ended)
				}
				if want := []int{1, 2, 3, 4, 5}[:len(got)]; !slices.Equal(got, want) || tc.leave == 0 && len(got) != 5 {
					t.Errorf("got %v", got)
				}
			})
		})
	}
}

// Whoever closes an engine waits for no leg of it.
func TestOutliveEndsWithItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancelCause(t.Context())
		var group sync.WaitGroup
		var ended error
		var last int
		closed := errors.New("closed")
		legs := engine.Outlive(t.Context(), engine.Outliving[int]{Life: life, Group: &group, Most: time.Minute}, counting(&ended, &last))
		for range legs {
			break // and it goes on
		}
		end(closed)
		group.Wait()
		if ended != closed || last != 1 {
			t.Errorf("ended with %v after %d", ended, last)
		}
		for _, err := range engine.Outlive(t.Context(), engine.Outliving[int]{Life: life, Group: &group}, func(context.Context) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) { yield(0, closed) }
		}) {
			if err != closed {
				t.Errorf("begun behind the end: %v", err)
			}
		}
	})
}
