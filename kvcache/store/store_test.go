package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/kvcache/store"
)

func ExampleBreaker() {
	var b store.Breaker
	now := time.Unix(0, 0)
	tries := 0
	for range 60 { // a server that is away, asked once a second
		if b.Allow(now) {
			tries++
			b.Failed(now)
		}
		now = now.Add(time.Second)
	}
	fmt.Println(tries)
	// Output: 16
}

func TestBackoff(t *testing.T) {
	var b store.Backoff
	now := time.Unix(0, 0)
	ms := time.Millisecond
	for i, want := range []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms, 25600 * ms, 30000 * ms, 30000 * ms} {
		if !b.Ready(now) {
			t.Fatalf("failure %d: not ready at the end of the pause", i)
		}
		b.Failed(now)
		b.Failed(now) // one that began before
		if got := b.Pause(now); got != want || b.Ready(now.Add(want-1)) {
			t.Errorf("failure %d: a pause of %v, want %v", i, got, want)
		}
		now = now.Add(want)
	}
	b.Failed(now)
	b.Succeeded()
	if !b.Ready(now) {
		t.Error("not ready after a success")
	}
	if b.Failed(now); b.Pause(now) != store.MinPause {
		t.Errorf("a pause of %v after a success and a failure", b.Pause(now))
	}
}

func TestBreaker(t *testing.T) {
	var b store.Breaker
	now := time.Unix(0, 0)
	fail := func(times int) {
		t.Helper()
		for range times {
			if !b.Allow(now) {
				t.Fatal("refused while closed")
			}
			b.Failed(now)
		}
	}
	fail(4)
	b.Succeeded()
	fail(5)
	if !b.Open() || b.Allow(now.Add(store.BreakerPause-1)) {
		t.Fatal("closed after five failures in a row")
	}
	for range 3 {
		now = now.Add(store.BreakerPause)
		if !b.Allow(now) || b.Allow(now) || b.Allow(now.Add(store.BreakerPause-1)) {
			t.Fatal("want one try to each pause")
		}
		b.Failed(now)
	}
	b.Succeeded()
	if b.Open() {
		t.Fatal("open after a success")
	}
	fail(5)
}

// One change of a key at a time, others at once, and whoever gives up waits no more.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := store.NewKeys()
		inside, most := map[string]int{}, 0
		var mu sync.Mutex
		count := func(key string, by int) {
			mu.Lock()
			defer mu.Unlock()
			inside[key] += by
			most = max(most, inside[key])
		}
		start := time.Now()
		var all sync.WaitGroup
		for i := range 40 {
			key := fmt.Sprint(i % 4)
			all.Go(func() {
				unlock, err := k.Lock(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				count(key, 1)
				time.Sleep(time.Second)
				count(key, -1)
				unlock()
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := k.Lock(ctx, "0"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Millisecond {
			t.Errorf("who gives up: %v after %v", err, time.Since(start))
		}
		all.Wait()
		unlock, err := k.Lock(ctx, "0")
		if err != nil {
			t.Errorf("a lock that nobody has: %v", err)
		}
		unlock()
		if most != 1 {
			t.Errorf("%d changes of a key at once", most)
		}
	})
}

func TestReleaseTwice(t *testing.T) {
	released := 0
	v := store.NewValue(store.Entry{Key: "k"}, nil, func() { released++ })
	v.Release()
	defer func() {
		if recover() == nil || released != 1 {
			t.Errorf("released %d times, want once and a panic", released)
		}
	}()
	v.Release()
}
