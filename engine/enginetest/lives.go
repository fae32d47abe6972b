package enginetest

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
)

func construction(t *testing.T, s *Subject) {
	e := s.New(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for st, err := range e.Card(ctx) {
		if err != nil || st.Epoch == 0 || st.State != engine.Ready && st.Reason == "" {
			t.Errorf("first status %+v, %v", st, err)
		}
		return
	}
	t.Error("no status within 5 s")
}

func readyHasCard(t *testing.T, s *Subject) {
	st := ready(t, s.New(t))
	c := st.Card
	switch {
	case c == nil:
		t.Fatal("ready without a card")
	case c.Model == "" || len(c.Accepts) == 0 || c.ContextLength == 0 && c.Accept(engine.InputTokens) || c.Ranks() < 1:
		t.Errorf("card %+v", c)
	case c.Features.Has(engine.FeatureEvents) && (c.BlockSize == 0 || c.HashScheme == ""):
		t.Errorf("events without block size or hash scheme: %+v", c)
	}
}

func restartEpoch(t *testing.T, s *Subject) {
	e := s.New(t)
	before := ready(t, e).Epoch
	generate(t, e, s.request(1, 20, 5))
	if now := ready(t, e).Epoch; now != before {
		t.Errorf("epoch %d became %d without a restart", before, now)
	}
	s.epochs(t, e)
}

// epochs restarts an engine that is ready, and wants one epoch for each life.
func (s *Subject) epochs(t *testing.T, e engine.Engine) {
	t.Helper()
	before := ready(t, e).Epoch
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	seen := []uint64{}
	for st := range e.Card(ctx) {
		if len(seen) == 0 {
			s.Restart(e)
		}
		if len(seen) == 0 || seen[len(seen)-1] != st.Epoch {
			seen = append(seen, st.Epoch)
		}
	}
	if len(seen) != 2 || seen[0] != before {
		t.Errorf("epochs %v over one restart, want %d and one other", seen, before)
	}
}

func drain(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	r := s.request(1, 20, 10)
	want := generate(t, e, r).ids
	var got []uint32
	for d, err := range e.Generate(context.Background(), r) {
		if err != nil {
			t.Fatalf("a running stream did not survive the drain: %v", err)
		}
		if got == nil {
			s.Drain(e)
		}
		got = append(got, d.TokenIDs...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("drained stream gave %v, want %v", got, want)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	draining := false
	for st := range e.Card(ctx) {
		if draining = st.State == engine.Draining; draining {
			break
		}
	}
	if a := collect(context.Background(), t, e, r); !draining || engine.KindOf(a.err) != engine.Unavailable {
		t.Errorf("draining seen: %v; a newcomer got %v, want unavailable", draining, a.err)
	}
}

func oneLoop(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	e.Generate(context.Background(), s.request(1, 10, 5)) // never ranged over
	awaitLoad(t, e, time.Second, "nothing was begun", idle)
	seq := e.Generate(context.Background(), s.request(1, 10, 5))
	for _, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for d, err := range seq {
		if n++; engine.KindOf(err) != engine.Internal || !zero(d) || err == nil {
			t.Errorf("second loop: %+v, %v, want an error of kind internal", d, err)
		}
	}
	if n != 1 {
		t.Errorf("second loop: %d items", n)
	}
}

func leaving(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	var left time.Time
	for _, err := range e.Generate(context.Background(), s.request(1, 10, 400)) {
		if err != nil {
			t.Fatal(err)
		}
		left = time.Now()
		break
	}
	s.soon(t, "leaving the loop", left)
	awaitLoad(t, e, time.Second, "the engine's work ends", idle)
}

func cancelled(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	check := func(what string, err error, at time.Time) {
		t.Helper()
		s.soon(t, what, at)
		if engine.KindOf(err) != engine.Cancelled || !errors.Is(err, engine.ErrClientGone) {
			t.Errorf("%s: %v, want the context's kind and cause", what, err)
		}
	}
	begin := func() (context.Context, func() time.Time) {
		ctx, cancel := context.WithCancelCause(context.Background())
		return ctx, func() time.Time { at := time.Now(); cancel(engine.ErrClientGone); return at }
	}

	ctx, cancel := begin()
	at := cancel()
	check("cancelled before it began", collect(ctx, t, e, s.request(1, 10, 5)).err, at)

	// Between items, and, while that one runs, in the queue.
	ctx, cancel = begin()
	first := make(chan struct{})
	running := make(chan error, 1)
	go func() {
		var once sync.Once
		for _, err := range e.Generate(ctx, s.request(2, 10, 400)) {
			once.Do(func() { close(first) })
			if err != nil {
				running <- err
			}
		}
	}()
	<-first
	queued, cancelQueued := begin()
	waiting := make(chan error, 1)
	go func() { waiting <- collect(queued, t, e, s.request(3, 10, 5)).err }()
	awaitLoad(t, e, time.Second, "one waits", func(_, waiting int64) bool { return waiting == 1 })
	at = cancelQueued()
	check("cancelled in the queue", <-waiting, at)
	at = cancel()
	check("cancelled between items", <-running, at)
	awaitLoad(t, e, time.Second, "the engine's work ends", idle)
}

func deadline(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	ctx, cancel := context.WithTimeoutCause(context.Background(), 40*time.Millisecond, engine.ErrDeadline)
	defer cancel()
	at := time.Now().Add(40 * time.Millisecond)
	a := collect(ctx, t, e, s.request(1, 10, 400))
	s.soon(t, "the deadline", at)
	if engine.KindOf(a.err) != engine.DeadlineExceeded {
		t.Errorf("ended with %v, want deadline_exceeded", a.err)
	}
	awaitLoad(t, e, time.Second, "the engine's work ends", idle)
}

func killed(t *testing.T, s *Subject) {
	e := s.Slow(t)
	ready(t, e)
	const most = 80 // so many that the last kill comes before the end
	r := s.request(1, 21, most)
	want := generate(t, e, r).ids
	for _, after := range []int{1, 7, 18} {
		var got []uint32
		var end error
		for d, err := range e.Generate(context.Background(), r) {
			before := len(got)
			got, end = append(got, d.TokenIDs...), err
			if before < after && len(got) >= after {
				s.Restart(e)
			}
		}
		if end == nil || engine.KindOf(end).Retry() != engine.RetryMigrate {
			t.Fatalf("killed after %d tokens: %v, want a kind that migrates", after, end)
		}
		ready(t, e)
		rest := *r
		rest.TokenIDs = append(slices.Clone(r.TokenIDs), got...)
		rest.Stop.MaxTokens = most - len(got)
		if got = append(got, generate(t, e, &rest).ids...); !slices.Equal(got, want) {
			t.Errorf("killed after %d tokens and carried on: %v\nwant %v", after, got, want)
		}
	}
}

func slowConsumer(t *testing.T, s *Subject) {
	e := s.New(t)
	ready(t, e)
	pause := 200 * time.Millisecond
	if s.Virtual {
		pause = 10 * time.Second
	}
	r := s.request(1, 10, 400)
	want := generate(t, e, r).ids
	var got []uint32
	for d, err := range e.Generate(context.Background(), r) {
		if err != nil {
			t.Fatal(err)
		}
		if got == nil {
			until := time.After(pause)
			if other := generate(t, e, s.request(2, 10, 400)); len(other.ids) != 400 {
				t.Errorf("another stream gave %d of 400", len(other.ids))
			}
			<-until
		}
		got = append(got, d.TokenIDs...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("a consumer that paused got %d ids, want the same %d", len(got), len(want))
	}
}

func nothingLeft(t *testing.T, s *Subject) {
	before := runtime.NumGoroutine()
	for _, use := range []bool{false, true} {
		e := s.New(t)
		if use {
			ready(t, e)
			for _, n := range []int{1, 100} {
				generate(t, e, s.request(1, 10, n))
			}
			for range e.Generate(context.Background(), s.request(1, 10, 400)) {
				break
			}
		}
		c, ok := e.(io.Closer)
		if !ok {
			return
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if a := collect(context.Background(), t, e, s.request(1, 10, 5)); a.err == nil {
			t.Error("a closed engine answers")
		}
	}
	leftOver(t, before)
}

// leftOver waits until no more goroutines run than before.
func leftOver(t *testing.T, before int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, before %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
		<-time.After(time.Millisecond)
	}
}
