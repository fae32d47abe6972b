package kvevent_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// stage is an engine, a source that listens to it, and who listens to that.
type stage struct {
	*testing.T
	engine *fakeEngine
	source *kvevent.Source
	receiver
	stop func()
}

// newStage starts an engine with replay, unless change takes that away.
func newStage(t *testing.T, change func(e *fakeEngine)) *stage {
	e := &fakeEngine{t: t, net: newNetwork(), events: "tcp://engine:5557", replays: "tcp://engine:5657"}
	if change != nil {
		change(e)
	}
	s, err := kvevent.NewSource(kvevent.SourceConfig{
		Endpoints: []kvevent.Endpoint{{Rank: e.rank, Events: e.events, Bind: e.connects, Replay: e.replays}},
		Topic:     "kv", Decoder: kvevent.Config{BlockSize: 4}, Sockets: e.net.options(), Log: e.log,
	})
	if err != nil {
		t.Fatal(err)
	}
	e.start()
	return &stage{T: t, engine: e, source: s}
}

// listen ranges over the source's events until the stage's stop is called.
func (s *stage) listen(from ...kv.Cursor) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b, err := range s.source.Events(ctx, from) {
			if err == nil {
				err = s.take(b)
			}
			if err != nil {
				s.Error(err)
			}
		}
	}()
	s.stop = func() {
		begun := time.Now()
		cancel()
		<-done
		if d := time.Since(begun); d > 20*time.Millisecond {
			s.Errorf("the end took %v", d)
		}
	}
	rest()
}

// rest waits until nothing moves any more, and subscriptions have settled.
func rest() {
	time.Sleep(50 * time.Millisecond)
	synctest.Wait()
}

// expect waits until nothing moves any more, and compares.
func (s *stage) expect(state string) {
	s.Helper()
	rest()
	if err := s.knows(s.engine, state); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) end() {
	s.stop()
	s.engine.stop()
}

func (s *stage) stats() kvevent.SourceStats { return s.source.Stats()[0] }

func TestSource(t *testing.T) {
	for _, topicFrame := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, func(e *fakeEngine) { e.topicFrame = topicFrame })
			s.engine.store(1) // before anybody listens
			s.engine.store(2)
			s.listen()
			defer s.end()
			s.expect("exact")

			s.engine.publish(false, s.engine.stored(3), s.engine.removed(1))
			s.expect("exact")
			s.engine.publish(true, s.engine.stored(4), s.engine.removed(2))
			s.engine.publish(true, s.engine.stored(5))
			s.engine.store(6)
			s.expect("exact")
			if got := s.stats(); got.Order.Gaps != 1 || !got.Connected || got.Order.Partial || got.Decoder.Blocks != 6 {
				t.Errorf("counted %+v", got)
			}
			if err := s.wantGaps(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSourceWithoutReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(e *fakeEngine) { e.replays = "" })
		s.listen()
		defer s.end()
		s.engine.store(1)
		s.expect("exact")
		s.engine.publish(true, s.engine.removed(1))
		s.engine.store(2)
		s.expect("partial")
		if err := s.wantGaps(kv.GapLost); err != nil {
			t.Error(err)
		}
		// Two losses with nothing told between them.
		s.engine.publish(true, s.engine.removed(2))
		s.engine.publish(false)
		s.engine.publish(true, s.engine.stored(7))
		s.engine.store(8)
		s.expect("partial")
		s.engine.publish(false, s.engine.stored(3), s.engine.cleared(), s.engine.stored(4))
		s.expect("exact")
	})
}

func TestSourceEngineRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.listen()
		defer s.end()
		for i := range 5 {
			s.engine.store(i)
		}
		s.expect("exact")
		s.engine.stop()
		synctest.Wait()
		if s.stats().Connected {
			t.Error("connected to an engine that has stopped")
		}
		s.engine.start()
		for i := range 5 { // as far as before, with other blocks
			s.engine.store(10 + i)
		}
		time.Sleep(10 * time.Second) // until it is dialled again
		s.expect("exact")
		// A block that both lives have stored has one copy.
		s.engine.store(1)
		s.engine.publish(false, s.engine.removed(1))
		s.expect("exact")
		if err := s.wantGaps(kv.GapRestart); err != nil {
			t.Error(err)
		}
	})
}

// An engine that cannot be reached is a matter for an operator, once.
func TestSourceUnreached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		s := newStage(t, func(e *fakeEngine) { e.log = slog.New(slog.NewTextHandler(&said, nil)) })
		s.listen()
		for range 2 {
			s.engine.stop()
			time.Sleep(time.Minute)
			s.engine.start()
			time.Sleep(10 * time.Second) // until it is dialled again
			s.expect("exact")
		}
		s.end()
		if n := strings.Count(said.String(), "cannot be reached"); n != 2 {
			t.Errorf("said %d times in two outages:\n%s", n, &said)
		}
	})
}

// What health finds out is acted upon at once, even if the socket saw nothing.
func TestSourceRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.source.Restarted() // nobody listens
		s.listen()
		defer s.end()
		s.engine.store(1)
		s.expect("exact")
		s.source.Restarted()
		time.Sleep(time.Second) // until it is dialled again
		s.expect("exact")
		if err := s.wantGaps(kv.GapRestart); err != nil {
			t.Error(err)
		}
	})
}

// A cursor of a loop that another one, from the beginning, came after is of
// another epoch, though the numbers are the same.
func TestSourceOldCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.listen()
		defer s.end()
		s.engine.store(1)
		s.expect("exact")
		s.stop()
		old := s.cursors()
		s.anew()
		s.listen()
		s.engine.store(2)
		s.expect("exact")
		s.stop()
		if now := s.cursors(); now[0].Sequence != old[0].Sequence {
			t.Fatalf("cursors %v and %v", old, now)
		}
		s.listen(old...)
		s.expect("exact")
		if err := s.wantGaps(kv.GapRestart); err != nil {
			t.Error(err)
		}
	})
}

func TestSourceGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.listen()
		defer s.end()
		s.engine.store(1)
		s.engine.store(2)
		s.expect("exact")
		s.stop()
		s.engine.publish(false, s.engine.removed(1), s.engine.stored(3)) // while nobody listens
		s.listen(s.cursors()...)
		s.expect("exact")
		if err := s.wantGaps(); err != nil {
			t.Error(err)
		}
		s.stop()

		// From the beginning, and from where nobody was.
		s.anew()
		s.listen()
		s.expect("exact")
		if err := s.wantGaps(); err != nil {
			t.Error(err)
		}
		s.engine.publish(false, s.engine.removed(3)) // of which there is one, though it was told twice
		s.expect("exact")
		s.stop()
		c := s.cursors()
		c[0].Sequence--
		s.listen(c...)
		s.expect("exact")
		if err := s.wantGaps(kv.GapRestart); err != nil {
			t.Error(err)
		}
	})
}

// What was told to an earlier loop is void in the next one if no connection comes,
// even if none is refused either.
func TestSourceGoesOnWithNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.listen()
		s.engine.store(1)
		s.expect("exact")
		s.stop()
		s.engine.stop()
		time.Sleep(10 * time.Second)
		silent, err := s.engine.net.listen(t.Context(), "", "engine:5557") // accepts nobody
		if err != nil {
			t.Fatal(err)
		}
		s.listen(s.cursors()...)
		time.Sleep(time.Second)
		if err := s.wantGaps(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if err := s.wantGaps(kv.GapLost); err != nil {
			t.Error(err)
		}
		silent.Close()
		s.engine.start()
		time.Sleep(10 * time.Second) // until it is dialled again
		s.expect("exact")
		s.end()
	})
}

// An engine whose replay endpoint does not answer: the rank is partial, until
// it does.
func TestSourceSilentReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.engine.silent = true
		s.engine.store(1)
		begun := time.Now()
		s.listen()
		defer s.end()
		s.engine.store(2)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		s.Lock()
		if s.batches > 0 {
			t.Errorf("told after %v, when the replay might still come", time.Since(begun))
		}
		s.Unlock()
		time.Sleep(2 * time.Second)
		s.expect("partial")
		s.Lock()
		if got := s.ranks[0].holds; len(got) != 1 {
			t.Errorf("knows %v", got)
		}
		s.Unlock()
		s.engine.mu.Lock()
		s.engine.silent = false
		s.engine.mu.Unlock()
		time.Sleep(31 * time.Second)
		s.expect("exact")
	})
}

// An engine that falls silent within a replay is asked for the rest.
func TestSourceStuckReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.engine.stuck = true
		s.engine.store(1)
		s.engine.store(2)
		s.listen()
		defer s.end()
		s.engine.mu.Lock()
		s.engine.stuck = false
		s.engine.mu.Unlock()
		time.Sleep(3 * time.Second)
		s.expect("exact")
		if s.engine.net.dialled() != 3 { // to listen, and for two replays
			t.Errorf("%d dials", s.engine.net.dialled())
		}
	})
}

func TestSourceReplayRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		_ = s.engine.router.Close()
		s.engine.store(1)
		s.listen()
		defer s.end()
		s.engine.store(2)
		time.Sleep(time.Second)
		s.expect("partial")
		if got := s.stats().Order.Replays[kvevent.ReplayFailed]; got != 1 {
			t.Errorf("%d replays failed", got)
		}
	})
}

// An engine whose endpoint has no wildcard connects out.
func TestSourceBinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(e *fakeEngine) { e.connects = true })
		s.engine.store(1)
		s.listen()
		defer s.end()
		time.Sleep(10 * time.Second)
		s.engine.store(2)
		s.expect("exact")

		// Another life connects before the first one is seen to be gone.
		old := s.engine.pub
		_ = s.engine.router.Close()
		<-s.engine.done
		s.engine.start()
		s.engine.store(3)
		time.Sleep(10 * time.Second)
		_ = old.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, 2), pack(list{1.0, list{list{"AllBlocksCleared"}}, 0}))
		s.expect("exact")
		_ = old.Close()
		s.engine.store(4)
		s.expect("exact")
		if got := s.stats(); got.Foreign != 1 || !got.Connected {
			t.Errorf("counted %+v", got)
		}
	})
}

func TestSourceForeignMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.listen()
		defer s.end()
		s.engine.store(1)
		for _, parts := range [][][]byte{
			{[]byte("kv")},
			{[]byte("kv"), []byte("1234567"), nil},
			{[]byte("kv"), make([]byte, 8), nil, nil},
			{[]byte("other"), make([]byte, 8), nil},
		} {
			_ = s.engine.pub.Send(parts...)
		}
		s.engine.store(2)
		s.expect("exact")
		if got := s.stats().Foreign; got != 3 {
			t.Errorf("%d foreign messages", got)
		}
		// A number that cannot be, and a payload that says nothing.
		_ = s.engine.pub.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, 1<<64-1), nil)
		s.expect("exact")
		s.engine.mu.Lock()
		_ = s.engine.pub.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, s.engine.next), []byte("?"))
		s.engine.next++
		s.engine.mu.Unlock()
		s.expect("partial")
	})
}

// A consumer that takes its time loses nothing that the engine still replays.
func TestSourceSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		defer s.engine.stop()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for i := range 10 { // which it is told by a replay
			s.engine.store(2000 + i)
		}
		events := make(chan kv.Batch)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for b, err := range s.source.Events(ctx, nil) {
				if err != nil {
					t.Error(err)
				}
				events <- b
			}
		}()
		synctest.Wait()
		for i := range 1000 {
			s.engine.store(i)
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		if got := s.source.Stats(); len(got) != 1 {
			t.Errorf("stats %+v", got)
		}
		if dials := s.engine.net.dialled(); dials != 2 { // to listen, and for the replay
			t.Errorf("%d dials while the consumer took its time", dials)
		}
		for s.ranks[0] == nil || s.ranks[0].state != "exact" || len(s.ranks[0].holds) < 1010 {
			if err := s.take(<-events); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.knows(s.engine, "exact"); err != nil {
			t.Error(err)
		}
		s.engine.store(1000)
		synctest.Wait() // one that nobody takes
		cancel()
		go func() {
			for range events {
			}
		}()
		<-done
		close(events)
	})
}

func TestSourceOneLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.listen()
		defer s.end()
		n := 0
		for _, err := range s.source.Events(context.Background(), nil) {
			if n++; err == nil {
				t.Error("a second loop beside the first")
			}
		}
		if n != 1 {
			t.Errorf("%d items", n)
		}
	})
}

// Leaving the loop ends everything.
func TestSourceLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		defer s.engine.stop()
		for i := range 10 {
			s.engine.store(i)
		}
		for _, err := range s.source.Events(context.Background(), nil) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		dials := s.engine.net.dialled()
		time.Sleep(time.Minute)
		if s.engine.net.dialled() != dials {
			t.Error("dialled after the loop was left")
		}
	})
}

// One rank after the other replays, and each has events of its own.
func TestSourceRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		endpoints, err := kvevent.EngineEndpoints("tcp://*:5557", "tcp://*:5657", "engine", 4, 3)
		if err != nil {
			t.Fatal(err)
		}
		var engines []*fakeEngine
		for _, e := range endpoints {
			engine := &fakeEngine{t: t, net: network, rank: e.Rank, events: e.Events, replays: e.Replay}
			engine.start()
			defer engine.stop()
			engine.store(int(e.Rank))
			engines = append(engines, engine)
		}
		source, err := kvevent.NewSource(kvevent.SourceConfig{
			Endpoints: endpoints, Decoder: kvevent.Config{BlockSize: 4}, Sockets: network.options(), Replays: kvevent.NewReplays(1),
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &stage{T: t, source: source}
		s.listen()
		defer s.stop()
		for _, e := range engines {
			e.store(100)
		}
		for _, s.engine = range engines {
			s.expect("exact")
		}
		if got := source.Stats(); len(got) != 3 || got[2].Rank != 6 {
			t.Errorf("stats %+v", got)
		}
	})
}

func TestBadSources(t *testing.T) {
	good := kvevent.Endpoint{Events: "tcp://engine:5557"}
	for _, c := range []struct {
		want      string
		endpoints []kvevent.Endpoint
	}{
		{`kvevent: source: no endpoints`, nil},
		{`kvevent: source: two endpoints for rank 0`, []kvevent.Endpoint{good, good}},
		{`kvevent: source: rank 0: endpoint "engine:5557" must begin with tcp:// or ipc://`, []kvevent.Endpoint{{Events: "engine:5557"}}},
		{`kvevent: source: rank 0: endpoint "udp://x:1" must begin with tcp:// or ipc://`, []kvevent.Endpoint{{Events: "tcp://engine:5557", Replay: "udp://x:1"}}},
	} {
		if _, err := kvevent.NewSource(kvevent.SourceConfig{Endpoints: c.endpoints}); err == nil || err.Error() != c.want {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

func TestEngineEndpoints(t *testing.T) {
	type endpoints = []kvevent.Endpoint
	for _, c := range []struct {
		events, replay, host string
		first, size          uint32
		want                 endpoints
		err                  string
	}{
		{"tcp://*:5557", "", "10.0.0.7", 0, 0, endpoints{{Events: "tcp://10.0.0.7:5557"}}, ""},
		{"tcp://*:5557", "tcp://*:5657", "fd00::7", 1, 2, endpoints{
			{1, "tcp://[fd00::7]:5558", false, "tcp://[fd00::7]:5658"},
			{2, "tcp://[fd00::7]:5559", false, "tcp://[fd00::7]:5659"},
		}, ""},
		{"tcp://[::]:5557", "tcp://0.0.0.0:5657", "gpu", 0, 1, endpoints{{0, "tcp://gpu:5557", false, "tcp://gpu:5657"}}, ""},
		{"tcp://:::5557", "", "[fd00::7]", 0, 1, endpoints{{0, "tcp://[fd00::7]:5557", false, ""}}, ""},
		{"tcp://0.0.0.0:5557", "", "gpu", 0, 1, endpoints{{0, "tcp://0.0.0.0:5557", true, ""}}, ""},
		{"tcp://router:5557", "tcp://*:5657", "gpu", 1, 1, endpoints{{1, "tcp://router:5558", true, "tcp://gpu:5658"}}, ""},
		{"ipc:///run/kv", "ipc:///run/replay", "gpu", 0, 1, endpoints{{0, "ipc:///run/kv", false, "ipc:///run/replay"}}, ""},

		{"tcp://*:5557", "tcp://*:5560", "gpu", 0, 4, nil, "kvevent: events port 5557 and replay port 5560 are 3 apart, and an engine of 4 ranks needs at least as many ports for each"},
		{"tcp://*:65535", "", "gpu", 1, 1, nil, `kvevent: events endpoint "tcp://*:65535": rank 1 would have port 65536, and 65535 is the last`},
		{"tcp://*:5557", "", "gpu", 0, 1<<32 - 1, nil, `kvevent: events endpoint "tcp://*:5557": rank 59979 would have port 65536, and 65535 is the last`},
		{"ipc:///run/kv", "", "gpu", 0, 2, nil, `kvevent: events endpoint "ipc:///run/kv": a path is of rank 0 alone, and rank 1 needs a TCP port`},
		{"tcp://*:*", "", "gpu", 0, 1, nil, `kvevent: events endpoint "tcp://*:*": the port must be a number from 1 to 65535, which "*" is not`},
		{"tcp://*", "", "gpu", 0, 1, nil, `kvevent: events endpoint "tcp://*": there is no port; tcp://*:5557 would be right`},
		{"inproc://kv", "", "gpu", 0, 1, nil, `kvevent: events endpoint "inproc://kv": it must begin with tcp:// or ipc://`},
		{"tcp://*:1", "ipc://", "gpu", 0, 1, nil, `kvevent: replay endpoint "ipc://": there is no path behind ipc://`},
	} {
		got, err := kvevent.EngineEndpoints(c.events, c.replay, c.host, c.first, c.size)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s, %s: error %v, want %s", c.events, c.replay, err, c.err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s, %s: got %v, %v, want %v", c.events, c.replay, got, err, c.want)
		}
	}
}
