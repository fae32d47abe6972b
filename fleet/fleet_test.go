package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// bubble runs a test of one worker with the id 1 in virtual time.
func bubble(t *testing.T, test func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder)) {
	synctest.Test(t, func(t *testing.T) {
		f, heard, e := fleet.New(fleet.Config{}), &recorder{}, newFake()
		if err := f.Subscribe(heard); err != nil {
			t.Fatal(err)
		}
		w, err := f.Add(fleet.Entry{Name: "one", Engine: e, ID: 1})
		if err != nil {
			t.Fatal(err)
		}
		test(t, f, w, e, heard)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// send hands v to the engine's sequence and waits until all has come of it.
func send(to chan any, v any) {
	to <- v
	synctest.Wait()
}

func expect(t *testing.T, heard *recorder, want ...string) {
	t.Helper()
	if got := heard.take(); !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
}

func TestStates(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		if w.Ready() || w.Status().State != engine.Loading {
			t.Error("ready before it said so")
		}
		for _, tc := range []struct {
			state         engine.State
			contextLength uint32
			accepts       []engine.Input
			ready         bool
		}{
			{engine.Loading, 1024, nil, false},
			{engine.Ready, 0, nil, false},
			{engine.Ready, 0, []engine.Input{engine.InputTensor}, true},
			{engine.Ready, 0, []engine.Input{engine.InputTensor, engine.InputText}, false},
			{engine.Ready, 0, []engine.Input{engine.InputChat}, true},
			{engine.Ready, 0, []engine.Input{engine.InputTokens, engine.InputChat}, false},
			{engine.Ready, 1024, nil, true},
			{engine.Draining, 1024, nil, false},
			{engine.Failed, 1024, nil, false},
			{engine.Ready, 1024, nil, true},
		} {
			changed := f.Changed()
			s := ready(7)
			s.State, s.Card.ContextLength, s.Card.Accepts = tc.state, tc.contextLength, tc.accepts
			send(e.cards, s)
			if w.Ready() != tc.ready || w.Status().State != tc.state {
				t.Errorf("%+v: ready %v, status %v", tc, w.Ready(), w.Status().State)
			}
			select {
			case <-changed:
			default:
				t.Errorf("%+v: the change was not announced", tc)
			}
		}
		if w.Lost().Err() != nil {
			t.Error("a worker that failed for a while lost its streams")
		}
		f.Drain(1)
		if w.Ready() || w.Status().State != engine.Draining || w.Lost().Err() != nil {
			t.Error("not draining as asked")
		}
	})
}

func TestNoCard(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		send(e.cards, engine.Status{Epoch: 1, State: engine.Ready})
		if w.Ready() {
			t.Error("ready without a card")
		}
	})
}

// The operator reads which key is missing, once for each revision of the card.
func TestUnknownContextLengthIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		e := newFake()
		f := fleet.New(fleet.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if _, err := f.Add(fleet.Entry{Name: "one", Engine: e}); err != nil {
			t.Fatal(err)
		}
		s := ready(1)
		s.Card.ContextLength = 0
		send(e.cards, s)
		send(e.cards, s)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "key=context_length"); n != 1 {
			t.Errorf("named %d times in:\n%s", n, log.String())
		}
	})
}

func TestEventsReachTheSink(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		send(e.cards, ready(7))
		send(e.events, batch(7, 1, 2))
		send(e.events, batch(7, 2, 3)) // overlaps
		send(e.events, batch(7, 1, 3)) // old
		send(e.events, kv.Batch{Epoch: 7, First: 3, Last: 3})
		expect(t, heard, "1/0 stored 1 stored 2", "1/0 stored 3")

		send(e.events, batch(7, 5, 5)) // 4 is missing
		expect(t, heard)
		time.Sleep(time.Second) // virtual: the pause before the stream is opened again
		synctest.Wait()
		expect(t, heard, "1/0 gap=lost")
		send(e.events, batch(7, 9, 9))
		expect(t, heard, "1/0 stored 9")

		send(e.events, nil) // the stream breaks
		time.Sleep(time.Second)
		synctest.Wait()
		send(e.events, batch(7, 10, 10))
		expect(t, heard, "1/0 stored 10")
		want := [][]kv.Cursor{nil, nil, {{Epoch: 7, Sequence: 9}}}
		if !slices.EqualFunc(e.opened, want, slices.Equal) {
			t.Errorf("opened at %v, want %v", e.opened, want)
		}

		send(e.events, engine.Errorf(engine.Denied, "no"))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		send(e.events, batch(7, 11, 11))
		expect(t, heard, "1/0 gap=lost", "1/0 stored 11")

		f.Remove(1)
		expect(t, heard, "1 gone")
	})
}

// What was told is void when no stream of events can be had for a while: at once
// where none is tried for longer, and else when too many have told nothing.
func TestEventsCannotBeHad(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		send(e.cards, ready(7))
		send(e.events, batch(7, 1, 1))
		expect(t, heard, "1/0 stored 1")
		send(e.events, engine.Errorf(engine.Denied, "no"))
		pass(2*time.Second - time.Millisecond)
		expect(t, heard)
		pass(time.Millisecond)
		expect(t, heard, "1/0 gap=lost")
		pass(28 * time.Second)
		send(e.events, batch(7, 2, 2))
		expect(t, heard, "1/0 stored 2")

		for _, wait := range []time.Duration{100, 200, 400, 800} { // 1.5 s
			send(e.events, nil)
			pass(wait * time.Millisecond)
			expect(t, heard)
		}
		send(e.events, nil)
		pass(499 * time.Millisecond)
		expect(t, heard)
		pass(time.Millisecond)
		expect(t, heard, "1/0 gap=lost")
		pass(1100 * time.Millisecond)
		send(e.events, batch(7, 3, 3))
		expect(t, heard, "1/0 stored 3")

		pass(time.Minute) // nothing happens on a stream that is open
		send(e.events, nil)
		pass(100 * time.Millisecond)
		expect(t, heard)
		send(e.events, batch(7, 4, 4))
		expect(t, heard, "1/0 stored 4")
	})
}

// A worker whose events are not believed any more is told anew, at once and as
// often as somebody asks.
func TestResync(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		w.Resync() // before anything is read
		send(e.cards, ready(7))
		send(e.events, batch(7, 1, 2))
		expect(t, heard, "1/0 stored 1 stored 2")
		for range 2 {
			w.Resync()
			synctest.Wait()
			expect(t, heard, "1/0 gap=lost")
			send(e.events, batch(7, 1, 2))
			expect(t, heard, "1/0 stored 1 stored 2")
		}
		send(e.events, batch(7, 3, 3))
		expect(t, heard, "1/0 stored 3")
		if want := [][]kv.Cursor{nil, nil, nil}; !slices.EqualFunc(e.opened, want, slices.Equal) {
			t.Errorf("opened at %v, want %v", e.opened, want)
		}
		f.Remove(1)
		w.Resync()
		expect(t, heard, "1 gone")
	})
}

// Another life of the cache voids everything, whichever stream tells it first.
func TestNewLife(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		send(e.cards, ready(7))
		send(e.events, batch(7, 1, 1))
		send(e.events, batch(8, 1, 1))
		expect(t, heard, "1/0 stored 1", "1/0 gap=restart stored 1")

		lost := w.Lost()
		send(e.cards, ready(8))
		expect(t, heard, "1 gone")
		if !errors.Is(context.Cause(lost), engine.ErrWorkerLost) {
			t.Errorf("streams of the old life end with %v", context.Cause(lost))
		}
		if w.Lost().Err() != nil || !w.Ready() {
			t.Error("the new life is over before it began")
		}
		send(e.events, batch(8, 1, 1))
		expect(t, heard, "1/0 stored 1")
		if len(e.opened) != 2 || e.opened[1] != nil {
			t.Errorf("opened at %v", e.opened)
		}
	})
}

func TestFailedIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		send(e.cards, ready(7))
		send(e.events, batch(7, 1, 1))
		s := ready(7)
		s.State = engine.Failed
		send(e.cards, s)
		expect(t, heard, "1/0 stored 1", "1 gone")
		send(e.cards, ready(7))
		send(e.events, batch(7, 1, 1))
		expect(t, heard, "1/0 stored 1")
	})
}

// An engine that gives up takes its streams with it, and is asked again.
func TestGivenUp(t *testing.T) {
	for _, end := range []any{nil, engine.Errorf(engine.Denied, "wrong key")} {
		bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
			send(e.cards, ready(7))
			lost := w.Lost()
			send(e.cards, end)
			if !errors.Is(context.Cause(lost), engine.ErrWorkerLost) || w.Ready() {
				t.Errorf("cause %v, ready %v", context.Cause(lost), w.Ready())
			}
			if s := w.Status(); s.State != engine.Failed || s.Reason == "" {
				t.Errorf("status %+v", s)
			}
			time.Sleep(31 * time.Second)
			send(e.cards, ready(7))
			if !w.Ready() {
				t.Error("not ready again")
			}
		})
	}
}

func TestInhibit(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		send(e.cards, ready(7))
		w.Inhibit(time.Now(), engine.InvalidArgument)
		if !w.Ready() {
			t.Error("left alone for a fault that was not its own")
		}
		w.Inhibit(time.Now(), engine.CannotConnect)
		if w.Ready() || !w.Admitted() {
			t.Error("not left alone")
		}
		time.Sleep(fleet.DefaultInhibit - 1)
		if w.Ready() {
			t.Error("back too early")
		}
		time.Sleep(1 * time.Nanosecond)
		if !w.Ready() {
			t.Error("not back")
		}

		w.Inhibit(time.Now(), engine.WorkerOverloaded)
		if !w.Ready() || !w.Overloaded() {
			t.Error("overloaded is not inhibited")
		}
		if _, at := w.Load(); !at.IsZero() {
			t.Error("load before any was told")
		}
		send(e.loads, engine.Load{Ranks: []engine.RankLoad{{Running: 3}}})
		if l, at := w.Load(); w.Overloaded() || !at.Equal(time.Now()) || l.Ranks[0].Running != 3 {
			t.Errorf("overloaded %v, load %v at %v", w.Overloaded(), l, at)
		}
	})
}

func TestInhibitOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet.New(fleet.Config{Inhibit: -1})
		defer f.Close()
		e := newFake()
		w, err := f.Add(fleet.Entry{Name: "one", Engine: e})
		if err != nil {
			t.Fatal(err)
		}
		send(e.cards, ready(1))
		w.Inhibit(time.Now(), engine.CannotConnect)
		if !w.Ready() {
			t.Error("left alone although that is switched off")
		}
		// Who is full says so, and is no fault.
		w.Inhibit(time.Now(), engine.WorkerOverloaded)
		if !w.Overloaded() {
			t.Error("not overloaded")
		}
		time.Sleep(fleet.DefaultInhibit)
		if w.Overloaded() {
			t.Error("overloaded for ever, though it tells no load")
		}
	})
}

func TestMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet.New(fleet.Config{})
		engines := map[string]*fake{}
		for _, name := range []string{"c", "a", "b"} {
			engines[name] = newFake()
			if _, err := f.Add(fleet.Entry{Name: name, Engine: engines[name], ID: uint64(name[0])}); err != nil {
				t.Fatal(err)
			}
		}
		for _, bad := range []fleet.Entry{
			{Name: "a", Engine: newFake()}, {Name: "d", ID: 'a', Engine: newFake()}, {Name: "e"},
		} {
			if _, err := f.Add(bad); err == nil {
				t.Errorf("%+v was let in", bad)
			}
		}
		if err := f.Subscribe(&recorder{}); err == nil {
			t.Error("a sink may subscribe after events were told")
		}
		before := f.Snapshot()
		lost := f.Worker('b').Lost()
		f.Remove('b')
		f.Remove('x')
		if !errors.Is(context.Cause(lost), engine.ErrWorkerLost) || engines["b"].closed != 1 || f.Worker('b') != nil {
			t.Error("b has not left properly")
		}
		if len(before) != 3 || before[1].Name() != "b" {
			t.Error("an old snapshot has changed")
		}
		names := ""
		for _, w := range f.Snapshot() {
			names += w.Name()
		}
		if names != "ac" {
			t.Errorf("left are %s", names)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if !errors.Is(context.Cause(before[0].Lost()), engine.ErrShutdown) || engines["a"].closed != 1 {
			t.Error("closing left a worker behind")
		}
		if _, err := f.Add(fleet.Entry{Name: "late", Engine: newFake()}); err == nil {
			t.Error("a closed fleet takes workers")
		}
	})
}

// Close returns when everything has ended, also what others are ending.
func TestCloseWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet.New(fleet.Config{})
		slow := &slowToClose{fake: newFake(), closing: make(chan struct{})}
		if _, err := f.Add(fleet.Entry{Name: "slow", Engine: slow, ID: 1}); err != nil {
			t.Fatal(err)
		}
		var ended atomic.Int32
		for _, end := range []func(){func() { f.Remove(1) }, func() { f.Close() }, func() { f.Close() }} {
			go func() {
				end()
				ended.Add(1)
			}()
			synctest.Wait()
		}
		if n := ended.Load(); n != 0 {
			t.Errorf("%d calls returned while the engine was closing", n)
		}
		close(slow.closing)
		synctest.Wait()
		if n := ended.Load(); n != 3 {
			t.Errorf("%d calls returned, want 3", n)
		}
	})
}

// slowToClose is an engine whose Close waits until closing is closed.
type slowToClose struct {
	*fake
	closing chan struct{}
}

func (s *slowToClose) Close() error {
	<-s.closing
	return s.fake.Close()
}

func Example() {
	f := fleet.New(fleet.Config{})
	defer f.Close()
	e := newFake()
	w, err := f.Add(fleet.Entry{Name: "mock-0", Engine: e})
	if err != nil {
		fmt.Println(err)
		return
	}
	changed := f.Changed()
	e.cards <- ready(1)
	<-changed
	fmt.Println(w.Name(), w.Status().State, w.Ready())
	// Output: mock-0 ready true
}
