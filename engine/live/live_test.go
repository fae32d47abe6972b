package live_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/live"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// scripted is a source whose batches the test gives.
type scripted struct {
	out      chan kv.Batch
	restarts int
	knew     bool // of the restarts
	reads    atomic.Int32
}

func (s *scripted) Restarted() bool { s.restarts++; return !s.knew }

func (s *scripted) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		s.reads.Add(1)
		for {
			select {
			case b := <-s.out:
				if !yield(b, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func status(epoch uint64, blockSize, ranks uint32) engine.Status {
	return engine.Status{Epoch: epoch, State: engine.Ready, Card: &engine.Card{
		BlockSize: blockSize, DPSize: ranks, Features: engine.Features{engine.FeatureEvents},
	}}
}

// stage is a feed and all sources it has opened.
type stage struct {
	*live.Feed
	shapes  []live.Shape
	sources []*scripted
	fail    error
}

func newStage() *stage {
	s := &stage{}
	s.Feed = live.NewFeed(func(shape live.Shape) (live.Source, error) {
		s.shapes = append(s.shapes, shape)
		if s.fail != nil {
			return nil, s.fail
		}
		s.sources = append(s.sources, &scripted{out: make(chan kv.Batch, 4)})
		return s.sources[len(s.sources)-1], nil
	})
	return s
}

func (s *stage) become(t *testing.T, st engine.Status) {
	t.Helper()
	if err := s.Become(st); err != nil {
		t.Fatal(err)
	}
}

func TestRestartInPlace(t *testing.T) {
	s := newStage()
	for _, epoch := range []uint64{1, 1, 2} {
		s.become(t, status(epoch, 16, 2))
	}
	s.become(t, engine.Status{Epoch: 3, State: engine.Failed, Reason: "gone"})
	if len(s.sources) != 1 || s.sources[0].restarts != 2 {
		t.Errorf("%d sources, want one that heard of two new lives", len(s.sources))
	}
	if want := (live.Shape{Size: 2, BlockSize: 16}); s.shapes[0] != want {
		t.Errorf("shape %+v, want %+v", s.shapes[0], want)
	}
}

// complete is a source that has told everything.
func complete(events ...kv.Event) []kv.Batch {
	return []kv.Batch{{Events: events, Snapshot: kv.SnapshotPart}, {Snapshot: kv.SnapshotEnd}}
}

func store(parent kv.EngineHash, keys ...kv.EngineHash) kv.Event {
	e := kv.Event{Kind: kv.Stored, Parent: parent, HasParent: parent != 0}
	for _, k := range keys {
		e.Blocks = append(e.Blocks, kv.Block{Engine: k, Local: kv.LocalHash(k)})
	}
	return e
}

func TestAnotherShapeEndsTheSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.become(t, status(1, 16, 1))
		s.sources[0].out <- kv.Batch{Events: []kv.Event{store(0, 1)}}
		seen := 0
		for b, err := range s.Events(t.Context(), nil) {
			if err != nil || b.Epoch != 1 || len(b.Events) != 1 {
				t.Fatalf("%+v, %v", b, err)
			}
			seen++
			s.sources[0].out <- kv.Batch{Events: []kv.Event{store(0, 2)}} // of the old shape, and too late
			s.become(t, status(1, 32, 1))
		}
		if seen != 1 || len(s.sources) != 2 || s.shapes[1].BlockSize != 32 {
			t.Errorf("%d batches and shapes %+v", seen, s.shapes)
		}
		s.sources[1].out <- kv.Batch{Events: []kv.Event{store(0, 3)}}
		for b := range s.Events(t.Context(), nil) {
			if b.Events[0].Blocks[0].Engine != 3 || b.First != 1 {
				t.Errorf("%+v of the new source", b)
			}
			break
		}
		s.Close()
	})
}

// The engine is read once, however many read.
func TestReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.become(t, status(5, 16, 1))
		source := s.sources[0]
		if source.reads.Load() != 0 {
			t.Error("it is read from before anybody wants to know")
		}
		var views [2][]string
		for i := range views {
			go func() {
				for b := range s.Events(t.Context(), nil) {
					views[i] = append(views[i], fmt.Sprintf("%d:%d-%d %d %s%d", b.Epoch, b.First, b.Last, len(b.Events), b.Gap, b.Snapshot))
				}
			}()
			synctest.Wait()
		}
		for _, b := range append(complete(store(0, 1, 2)), kv.Batch{Events: []kv.Event{store(2, 3)}}) {
			source.out <- b
			synctest.Wait()
		}
		// The beginning takes a number: nobody who was elsewhere can take its place.
		want := []string{"5:0-0 1 1", "5:0-1 0 2", "5:2-2 1 0"}
		for i, got := range views {
			if !slices.Equal(got, want) {
				t.Errorf("reader %d was told %q, want %q", i, got, want)
			}
		}
		if n := source.reads.Load(); n != 1 {
			t.Errorf("the source was read %d times", n)
		}
		for i, from := range []kv.Cursor{{Epoch: 5, Sequence: 1}, {Epoch: 5}, {Epoch: 5, Sequence: 9}, {Epoch: 4, Sequence: 1}} {
			want := []kv.GapReason{"", kv.GapTooOld, kv.GapFuture, kv.GapRestart}[i]
			for b := range s.Events(t.Context(), []kv.Cursor{from}) {
				if b.Gap != want || want == "" && b.First != 2 {
					t.Errorf("from %+v: %+v, want gap %q", from, b, want)
				}
				break
			}
		}
		s.Close()
	})
}

// What was told of a process that has ended is void at once, and what still comes
// of it is not believed. A source that knew better is.
func TestAnotherLife(t *testing.T) {
	for _, knew := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			s.become(t, status(1, 16, 1))
			source := s.sources[0]
			source.knew = knew
			var got []string
			go func() {
				for b := range s.Events(t.Context(), nil) {
					got = append(got, fmt.Sprintf("%d:%d-%d %d %s%d", b.Epoch, b.First, b.Last, len(b.Events), b.Gap, b.Snapshot))
				}
			}()
			tell := func(batches ...kv.Batch) {
				for _, b := range batches {
					source.out <- b
					synctest.Wait()
				}
			}
			tell(complete(store(0, 1))...)
			s.become(t, status(2, 16, 1))
			synctest.Wait()
			want := []string{"1:0-0 1 1", "1:0-1 0 2", "2:0-0 0 restart0"}
			if knew {
				want = append(want, "2:0-0 1 1", "2:0-1 0 2")
				tell(kv.Batch{Events: []kv.Event{store(1, 2)}})
				want = append(want, "2:2-2 1 0")
			} else {
				tell(kv.Batch{Events: []kv.Event{store(1, 2)}}, kv.Batch{Gap: kv.GapRestart}, kv.Batch{Snapshot: kv.SnapshotEnd}, kv.Batch{Events: []kv.Event{store(0, 7)}})
				want = append(want, "2:0-0 0 2", "2:1-1 1 0")
			}
			if !slices.Equal(got, want) {
				t.Errorf("knew %v: told %q\nwant %q", knew, got, want)
			}
			s.Close()
		})
	}
}

// Who has nothing new hears so, once in a while.
func TestMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.become(t, status(1, 16, 1))
		s.sources[0].out <- kv.Batch{Events: []kv.Event{store(0, 1)}}
		begin := time.Now()
		n := 0
		for b := range s.Events(t.Context(), nil) {
			if n++; n == 1 {
				continue
			}
			if d := time.Since(begin); d != time.Duration(n-1)*5*time.Second || b.Last != 1 || b.First != 0 || len(b.Events) > 0 {
				t.Errorf("after %v: %+v", d, b)
			}
			if n == 4 {
				break
			}
		}
		s.Close()
	})
}

// Who waits for events is not left waiting for those of caches that are gone.
func TestWaitingEnds(t *testing.T) {
	for name, end := range map[string]func(s *stage, t *testing.T){
		"another shape": func(s *stage, t *testing.T) { s.become(t, status(1, 16, 2)) },
		"close":         func(s *stage, _ *testing.T) { s.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			s.become(t, status(1, 16, 1))
			over := make(chan int)
			go func() {
				n := 0
				for range s.Events(context.Background(), nil) {
					n++
				}
				over <- n
			}()
			synctest.Wait()
			end(s, t)
			select {
			case n := <-over:
				if n != 0 {
					t.Errorf("%s: %d batches", name, n)
				}
			case <-time.After(time.Hour):
				t.Errorf("%s: the sequence goes on", name)
			}
		})
	}
}

func TestNoSource(t *testing.T) {
	only := func(what string, s *stage, kind engine.ErrorKind, want error) {
		t.Helper()
		n := 0
		for _, err := range s.Events(t.Context(), nil) {
			if n++; engine.KindOf(err) != kind || want != nil && !errors.Is(err, want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d items, want one error", what, n)
		}
	}
	s := newStage()
	only("before any status", s, engine.Unavailable, nil)
	s.become(t, engine.Status{Epoch: 1, Card: &engine.Card{BlockSize: 16}})
	only("a card without events", s, engine.Unavailable, nil)
	s.fail = errors.New("no such host")
	if err := s.Become(status(1, 16, 1)); !errors.Is(err, s.fail) {
		t.Errorf("become: %v", err)
	}
	only("a source that cannot be opened", s, engine.Internal, s.fail)
	if err := s.Become(status(1, 16, 1)); err != nil || len(s.shapes) != 1 {
		t.Errorf("the same shape was tried %d times, %v", len(s.shapes), err)
	}
	s.fail = nil
	s.become(t, status(1, 32, 1))
	s.Close()
	only("closed", s, engine.Unavailable, nil)
}

// stored is a message that tells of two blocks of four tokens.
const stored = "93cb40290000000000009199ab426c6f636b53746f72656492cf800000000000000102c0980b0c0d0e0f10111204c0a3475055c092c0c000"

func TestBlockSize(t *testing.T) {
	payload, err := hex.DecodeString(stored)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	pub := zmtp.NewPub(zmtp.Options{})
	defer pub.Close()
	at, err := pub.Bind(ctx, "tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	learned := make(chan string, 1)
	go func() {
		n, err := live.BlockSize(ctx, kvevent.Endpoint{Events: at}, "", zmtp.Options{})
		learned <- fmt.Sprint(n, err)
	}()
	for {
		// A publisher does not say when somebody listens: it says things again.
		for _, p := range [][]byte{[]byte("none of ours"), payload} {
			if err := pub.Send(nil, make([]byte, 8), p); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case got := <-learned:
			if got != "4 <nil>" {
				t.Errorf("learned %s, want 4", got)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func TestBlockSizeOfNobody(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := live.BlockSize(ctx, kvevent.Endpoint{Events: "tcp://127.0.0.1:1"}, "", zmtp.Options{}); err == nil {
		t.Errorf("learned %d from nobody", n)
	}
}

func ExampleFeed() {
	feed := live.NewFeed(func(s live.Shape) (live.Source, error) {
		endpoints, err := kvevent.EngineEndpoints("tcp://*:5557", "", "gpu7", s.First, s.Size)
		if err != nil {
			return nil, err
		}
		for _, e := range endpoints {
			fmt.Println(e.Rank, e.Events)
		}
		return kvevent.NewSource(kvevent.SourceConfig{Endpoints: endpoints, Decoder: kvevent.Config{BlockSize: int(s.BlockSize)}})
	})
	defer feed.Close()
	err := feed.Become(engine.Status{Epoch: 1, State: engine.Ready, Card: &engine.Card{
		BlockSize: 16, DPSize: 2, Features: engine.Features{engine.FeatureEvents},
	}})
	fmt.Println(err)
	// Output:
	// 0 tcp://gpu7:5557
	// 1 tcp://gpu7:5558
	// <nil>
}
