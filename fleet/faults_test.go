package fleet_test

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// slowToStop is an engine whose stream of events goes on until stop is closed,
// whatever becomes of its context.
type slowToStop struct {
	*fake
	stop chan struct{}
}

func (s *slowToStop) Events(context.Context, []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		for {
			select {
			case <-s.stop:
				return
			case v := <-s.events:
				if !yield(v.(kv.Batch), nil) {
					return
				}
			}
		}
	}
}

// A worker that comes back under its id while it is leaving begins when nothing
// is left of the old one: what it tells is not forgotten with what that told.
func TestWorkerComesBackWhileItLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, heard := fleet.New(fleet.Config{}), &recorder{}
		if err := f.Subscribe(heard); err != nil {
			t.Fatal(err)
		}
		add := func(e engine.Engine) {
			t.Helper()
			if _, err := f.Add(fleet.Entry{Name: "one", Engine: e, ID: 1}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		old := &slowToStop{fake: newFake(), stop: make(chan struct{})}
		add(old)
		send(old.cards, ready(7))
		send(old.events, batch(7, 1, 1))
		go f.Remove(1)
		synctest.Wait()

		between := newFake()
		add(between) // joins and leaves meanwhile
		go f.Remove(1)
		synctest.Wait()
		fresh := newFake()
		add(fresh)
		go func() {
			fresh.cards <- ready(8)
			fresh.events <- batch(8, 5, 5)
		}()
		synctest.Wait()
		old.events <- batch(7, 2, 2)
		synctest.Wait()
		expect(t, heard, "1/0 stored 1", "1/0 stored 2")
		close(old.stop)
		synctest.Wait()
		if lines := heard.take(); len(lines) != 3 || lines[0] != "1 gone" || lines[1] != "1 gone" || lines[2] != "1/0 stored 5" {
			t.Errorf("heard %q, want the new worker after the old ones", lines)
		}
		if w := f.Worker(1); !w.Ready() {
			t.Error("the new worker is not ready")
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Ranks that the card does not have are left out, however many there are, and
// the others go on.
func TestForeignRanks(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		s := ready(7)
		s.Card.DPStart, s.Card.DPSize = 4, 2
		send(e.cards, s)
		for _, rank := range []uint32{4, 0, 3, 6, 1 << 31, 1<<32 - 1, 5} {
			b := batch(7, 1, 1)
			b.Rank = rank
			send(e.events, b)
		}
		expect(t, heard, "1/4 stored 1", "1/5 stored 1")
		if c := w.EventCounts(); c != (fleet.EventCounts{Applied: 2, Foreign: 5, Opened: 1}) {
			t.Errorf("%+v", c)
		}
	})
}

// What was told under one card is void under another that means something else
// by it, and under no other.
func TestAnotherCard(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*engine.Card)
		void   bool
	}{
		"block size":       {func(c *engine.Card) { c.BlockSize = 8 }, true},
		"hash scheme":      {func(c *engine.Card) { c.HashScheme = engine.SchemeXXH3Eagle }, true},
		"fewer ranks":      {func(c *engine.Card) { c.DPSize = 1 }, true},
		"other ranks":      {func(c *engine.Card) { c.DPStart = 1 }, true},
		"no events":        {func(c *engine.Card) { c.Features = nil }, true},
		"more room":        {func(c *engine.Card) { c.TotalBlocks = 1000 }, false},
		"more parsers":     {func(c *engine.Card) { c.ToolParser = "none" }, false},
		"the same as ever": {func(*engine.Card) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
				s := ready(7)
				s.Card.DPSize = 2
				send(e.cards, s)
				send(e.events, batch(7, 1, 2))
				lost := w.Lost()
				s = ready(7)
				s.Revision, s.Card.DPSize = 2, 2
				tc.change(s.Card)
				send(e.cards, s)
				want := []string{"1/0 stored 1 stored 2"}
				if tc.void {
					want = append(want, "1 gone")
				}
				expect(t, heard, want...)
				if w.Card() != s.Card || !w.Ready() || lost.Err() != nil {
					t.Error("the worker does not go on under its new card")
				}
				opened := [][]kv.Cursor{nil}
				if tc.void && s.Card.Features.Has(engine.FeatureEvents) {
					opened = append(opened, nil)
				}
				if !slices.EqualFunc(e.opened, opened, slices.Equal) {
					t.Errorf("events were read from %v, want %v", e.opened, opened)
				}
			})
		})
	}
}

// A card that begins to tell of events is listened to.
func TestEventsFromNowOn(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		s := ready(7)
		s.Card.Features = nil
		send(e.cards, s)
		s = ready(7)
		s.Revision = 2
		send(e.cards, s)
		send(e.events, batch(7, 1, 1))
		expect(t, heard, "1 gone", "1/0 stored 1")
	})
}

// A snapshot that is cut off by live events is not taken for the whole.
func TestCutSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		send(e.cards, ready(7))
		part := batch(7, 1, 2)
		part.First, part.Last, part.Snapshot = 0, 0, kv.SnapshotPart
		send(e.events, part)
		send(e.events, batch(7, 9, 9))
		expect(t, heard, "1/0 stored 1 stored 2")
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, heard, "1/0 gap=lost")
		send(e.events, part)
		send(e.events, kv.Batch{Epoch: 7, Last: 8, Snapshot: kv.SnapshotEnd})
		send(e.events, batch(7, 9, 9))
		expect(t, heard, "1/0 stored 1 stored 2", "1/0", "1/0 stored 9")
		if c := w.EventCounts(); c.Torn != 1 || c.Opened != 2 {
			t.Errorf("%+v", c)
		}
	})
}

// However long an engine goes on in its fault, it is logged once a minute, and
// asked anew every few seconds at most.
func TestFaultsForEver(t *testing.T) {
	const long = 10 * time.Minute
	for name, tc := range map[string]struct {
		tell func(i int) kv.Batch
		text string
	}{
		"gaps": {func(i int) kv.Batch { return kv.Batch{Epoch: 7, Gap: kv.GapOverflow} }, ""},
		"gaps and news": {func(i int) kv.Batch {
			b := batch(7, 1, 1)
			b.Gap = kv.GapOverflow
			return b
		}, "KV events have become void"},
		"epochs": {func(i int) kv.Batch { return batch(uint64(7+i%2), 1, 1) }, "KV events have become void"},
		"holes":  {func(i int) kv.Batch { return batch(7, uint64(2*i+1), uint64(2*i+1)) }, "KV events are missing"},
		"wrong counts": {func(i int) kv.Batch {
			b := batch(7, 1, 4)
			b.Last = uint64(i + 2)
			return b
		}, "KV events are missing"},
		"ranks": {func(i int) kv.Batch {
			b := batch(7, 1, 1)
			b.Rank = uint32(i + 1)
			return b
		}, "name a rank that the worker does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				f, heard, e := fleet.New(fleet.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}), &recorder{}, newFake()
				if err := f.Subscribe(heard); err != nil {
					t.Fatal(err)
				}
				w, err := f.Add(fleet.Entry{Name: "one", Engine: e, ID: 1})
				if err != nil {
					t.Fatal(err)
				}
				send(e.cards, ready(7))
				told, stop := uint64(0), time.After(long)
			flood:
				for {
					select {
					case e.events <- tc.tell(int(told)):
						told++
						time.Sleep(10 * time.Millisecond)
					case <-stop:
						break flood
					}
				}
				synctest.Wait() // the last batch and the end may have come at once
				c := w.EventCounts()
				if n := c.Applied + c.Voided + c.Ignored + c.Foreign + c.Torn; c.Opened == 1 && n != told {
					t.Errorf("%d of %d batches are counted: %+v", n, told, c)
				}
				if most := uint64(long/(5*time.Second)) + 10; c.Opened > most {
					t.Errorf("opened %d times, want at most %d", c.Opened, most)
				}
				lines := strings.Count(log.String(), "level=WARN")
				if tc.text == "" && lines != 0 || tc.text != "" && (lines == 0 || lines > 22 || !strings.Contains(log.String(), tc.text)) {
					t.Errorf("%d warnings:\n%s", lines, log.String())
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
				if last := heard.take(); last[len(last)-1] != "1 gone" {
					t.Error("not forgotten in the end")
				}
			})
		})
	}
}

// A worker that restarts every second takes the streams of each life with it,
// and is named in the log once a minute.
func TestRestartsEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f, heard, e := fleet.New(fleet.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}), &recorder{}, newFake()
		if err := f.Subscribe(heard); err != nil {
			t.Fatal(err)
		}
		w, err := f.Add(fleet.Entry{Name: "one", Engine: e, ID: 1})
		if err != nil {
			t.Fatal(err)
		}
		for life := range uint64(300) {
			lost := w.Lost()
			send(e.cards, ready(life+1))
			if life > 0 && lost.Err() == nil {
				t.Fatal("streams outlive their worker")
			}
			send(e.events, batch(life+1, 1, 1))
			if life == 0 {
				expect(t, heard, "1/0 stored 1")
			} else {
				expect(t, heard, "1 gone", "1/0 stored 1")
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if n := strings.Count(log.String(), "worker has restarted"); n < 4 || n > 6 {
			t.Errorf("logged %d times in five minutes:\n%s", n, log.String())
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A card with more ranks than anyone could count is none.
func TestAbsurdRanks(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		for _, tc := range []struct {
			start, size uint32
			fine        bool
		}{{0, 4096, true}, {0, 4097, false}, {0, 1<<32 - 1, false}, {1<<32 - 2, 1, true}, {1<<32 - 2, 3, false}, {7, 0, true}} {
			s := ready(7)
			s.Card.DPStart, s.Card.DPSize = tc.start, tc.size
			send(e.cards, s)
			if w.Ready() != tc.fine || (w.Card() != nil) != tc.fine {
				t.Errorf("%+v: ready %v, card %v", tc, w.Ready(), w.Card())
			}
			if s := w.Status(); !tc.fine && (s.State != engine.Failed || !strings.Contains(s.Reason, "at most 4096")) {
				t.Errorf("%+v: %v, %s", tc, s.State, s.Reason)
			}
		}
	})
}
