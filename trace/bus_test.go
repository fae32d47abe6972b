package trace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/trace"
)

var (
	discard = slog.New(slog.DiscardHandler)
	ctx     = context.Background()
)

// sink keeps what it gets, once it may go on.
type sink struct {
	name string
	gate chan struct{} // closed: it goes on; nil: at once
	err  error

	mu     sync.Mutex
	got    []string
	closed bool
}

func (s *sink) Name() string { return s.name }

func (s *sink) Write(_ context.Context, records []*trace.Record) error {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		s.got = append(s.got, r.RequestID())
	}
	return s.err
}

func (s *sink) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// settle waits until the records that were published have been brought to sinks that
// take them.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func (s *sink) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// A sink that is too slow loses its oldest records, which are counted; nobody else
// notices.
func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		slow, fast := &sink{name: "slow", gate: make(chan struct{})}, &sink{name: "fast"}
		bus := trace.NewBus(2, slog.New(slog.NewTextHandler(&log, nil)), slow, fast)
		begun := time.Now()
		for i := range 6 {
			bus.Publish(row(strconv.Itoa(i)))
			synctest.Wait() // 0 is taken, and held
		}
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("publishing has waited %v", waited)
		}
		same(t, "fast", fast.ids(), "0", "1", "2", "3", "4", "5")
		close(slow.gate)
		synctest.Wait()
		same(t, "slow", slow.ids(), "0", "4", "5")
		if got, want := fmt.Sprint(bus.Status()), "[{slow 6 3 0} {fast 6 0 0}]"; got != want {
			t.Errorf("status %s, want %s", got, want)
		}
		if !strings.Contains(log.String(), "sink=slow records=3") {
			t.Errorf("log %q", log.String())
		}
		if err := bus.Close(t.Context()); err != nil {
			t.Error(err)
		}
		bus.Publish(row("late"))
		if !slow.closed || !fast.closed || len(fast.ids()) != 6 {
			t.Errorf("closed: %v %v, and fast has %q", slow.closed, fast.closed, fast.ids())
		}
	})
}

// Closing brings to sinks what waits for them, in the order in which it came.
func TestCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{name: "s", gate: make(chan struct{})}
		bus := trace.NewBus(1000, discard, s)
		var want []string
		for i := range 500 {
			bus.Publish(row(strconv.Itoa(i)))
			want = append(want, strconv.Itoa(i))
		}
		go func() {
			time.Sleep(time.Second)
			close(s.gate)
		}()
		if err := bus.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		same(t, "records", s.ids(), want...)
		if !s.closed {
			t.Error("the sink is not closed")
		}
	})
}

// What is published just before the end is written, whichever of both the sink's
// goroutine hears of first.
func TestLastWords(t *testing.T) {
	for range 100 {
		s := &sink{name: "s"}
		bus := trace.NewBus(8, discard, s)
		bus.Publish(row("a"))
		if err := bus.Close(t.Context()); err != nil || len(s.ids()) != 1 {
			t.Fatalf("%q, %v", s.ids(), err)
		}
	}
}

// A sink that hangs does not keep the program from ending.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, fine := &sink{name: "hung", gate: make(chan struct{})}, &sink{name: "fine"}
		bus := trace.NewBus(8, discard, hung, fine)
		bus.Publish(row("a"))
		bounded, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		err := bus.Close(bounded)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "hung") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
		if !fine.closed {
			t.Error("the other sink is not closed")
		}
		close(hung.gate)
	})
}

// What a sink says that it has lost counts as dropped.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &sink{name: "s", err: fmt.Errorf("flush: %w", errors.Join(&trace.Lost{Records: 2, Err: errors.New("full")}, &trace.Lost{Records: 1, Err: errors.New("full")}))}
		bus := trace.NewBus(8, slog.New(slog.NewTextHandler(&log, nil)), s)
		for range 5 {
			bus.Publish(row("a"))
			settle()
		}
		if got, want := fmt.Sprint(bus.Status()), "[{s 5 15 5}]"; got != want {
			t.Errorf("status %s, want %s", got, want)
		}
		if got := strings.Count(log.String(), "\n"); got != 3 {
			t.Errorf("%d lines for 5 failures, want the 1st, 2nd and 4th:\n%s", got, log.String())
		}
		if err := bus.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// batches says how many records it gets at a time, and when it is its turn to do what it
// does from time to time.
type batches struct {
	sink
	mu   sync.Mutex
	told []string
}

func (b *batches) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, what)
}

// since returns what was told behind the first n.
func (b *batches) since(n int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.told[n:])
}

func (*batches) Interval() time.Duration { return time.Minute }

func (b *batches) Tick(context.Context) error {
	b.note("tick")
	return nil
}

func (b *batches) Write(_ context.Context, records []*trace.Record) error {
	b.note(strconv.Itoa(len(records)))
	return nil
}

// A sink is not woken for each record: it gets a batch, or, a moment after the first one
// of them, what there is; all that there is before a tick.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		b := &batches{}
		bus := trace.NewBus(1024, discard, b)
		publish := func(n int) {
			for range n {
				bus.Publish(row("a"))
			}
			synctest.Wait()
		}
		publish(60)
		time.Sleep(99 * time.Millisecond)
		publish(3)
		same(t, "before the moment", b.since(0))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		same(t, "after it", b.since(0), "63")
		publish(64)
		same(t, "with a batch", b.since(0), "63", "64")
		time.Sleep(time.Second)
		long := row("long")
		long.Later(2<<20, func(*trace.Record) {})
		bus.Publish(long)
		synctest.Wait()
		same(t, "with much in one", b.since(2), "1")
		time.Sleep(time.Minute - time.Since(begun) - time.Millisecond)
		publish(1)
		same(t, "before a tick", b.since(3))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		same(t, "at it", b.since(3), "1", "tick")
		publish(1)
		if err := bus.Close(t.Context()); err != nil {
			t.Error(err)
		}
		same(t, "at the end", b.since(5), "1")
	})
}

func TestNoSinks(t *testing.T) {
	var bus trace.Bus
	bus.Publish(row("a"))
	if err := errors.Join(bus.Close(t.Context()), bus.Close(t.Context())); err != nil || len(bus.Status()) != 0 {
		t.Error(err, bus.Status())
	}
}

func BenchmarkPublish(b *testing.B) {
	bus := trace.NewBus(1024, discard, &sink{name: "blocked", gate: make(chan struct{})})
	r := row("a")
	b.ReportAllocs()
	for b.Loop() {
		bus.Publish(r)
	}
}

// Records are completed once, when the first sink comes to them; those that nobody
// gets never are.
func TestLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &sink{name: "a", gate: make(chan struct{})}, &sink{name: "b", gate: make(chan struct{})}
		bus := trace.NewBus(1, discard, a, b)
		bus.Publish(row("first"))
		synctest.Wait()
		completed := map[string]int{}
		for _, id := range []string{"lost", "kept"} {
			r := row("")
			r.Later(0, func(r *trace.Record) {
				r.Request.RequestID = id
				completed[id]++
			})
			bus.Publish(r)
		}
		synctest.Wait()
		if len(completed) > 0 {
			t.Errorf("completed too early: %v", completed)
		}
		close(a.gate)
		close(b.gate)
		synctest.Wait()
		same(t, "a", a.ids(), "first", "kept")
		same(t, "b", b.ids(), "first", "kept")
		if fmt.Sprint(completed) != "map[kept:1]" {
			t.Errorf("completed %v", completed)
		}
		if err := bus.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// owner counts how often it is told that nobody needs its record.
type owner struct{ freed atomic.Int32 }

func (o *owner) Free() { o.freed.Add(1) }

// Who owns a record is told once, when each sink has written it, or has dropped it.
func TestFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fast, slow := &sink{name: "fast"}, &sink{name: "slow", gate: make(chan struct{})}
		bus := trace.NewBus(1, discard, fast, slow)
		owners := make([]owner, 4)
		publish := func(i int) {
			r := row(strconv.Itoa(i))
			r.OwnedBy(&owners[i])
			bus.Publish(r)
			synctest.Wait()
		}
		freed := func(want ...string) {
			t.Helper()
			var got []string
			for i := range owners {
				got = append(got, strconv.Itoa(int(owners[i].freed.Load())))
			}
			same(t, "freed", got, want...)
		}
		publish(0) // slow holds it
		publish(1) // and lets it wait
		freed("0", "0", "0", "0")
		publish(2)
		freed("0", "1", "0", "0")
		close(slow.gate)
		synctest.Wait()
		freed("1", "1", "1", "0")
		if err := bus.Close(t.Context()); err != nil {
			t.Error(err)
		}
		publish(3)
		freed("1", "1", "1", "0")
		same(t, "slow", slow.ids(), "0", "2")
	})
}

// What was said takes its own room: a sink that hangs holds no more of it than that.
func TestRoomForWhatWasSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{name: "s", gate: make(chan struct{})}
		bus := trace.NewBus(1000, discard, s)
		bus.Publish(row("first"))
		settle()
		for i := range 10 {
			r := row(strconv.Itoa(i))
			r.Later(60<<20, func(*trace.Record) {})
			bus.Publish(r)
		}
		bus.Publish(row("small"))
		huge := row("huge")
		huge.Later(1<<40, func(*trace.Record) {})
		close(s.gate)
		settle()
		same(t, "records", s.ids(), "first", "6", "7", "8", "9", "small")
		bus.Publish(huge)
		settle()
		same(t, "records", s.ids()[6:], "huge")
		if err := bus.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
