package fleet_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// ear writes down what a sink hears.
type ear struct{ heard []string }

func (e *ear) Apply(t kv.Target, b kv.Batch) {
	e.heard = append(e.heard, fmt.Sprintf("%d/%d: %d from %d %s", t.Worker, t.Rank, len(b.Events), b.First, b.Gap))
}

func (e *ear) RemoveWorker(id uint64) { e.heard = append(e.heard, fmt.Sprintf("%d: gone", id)) }

// take returns what was heard since the last call.
func (e *ear) take() []string {
	heard := e.heard
	e.heard = nil
	return heard
}

func stored(epoch, first uint64, n int) kv.Batch {
	return kv.Batch{Epoch: epoch, First: first, Last: first + uint64(n) - 1, Events: make([]kv.Event, n)}
}

// What is told of a worker has been heard when the call returns, and goes the
// same way as with an engine that is followed.
func TestReporter(t *testing.T) {
	f := fleet.New(fleet.Config{})
	defer f.Close()
	sink := new(ear)
	if err := f.Subscribe(sink); err != nil {
		t.Fatal(err)
	}
	r, err := f.Report(fleet.Entry{Name: "w", ID: 7})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if got := sink.take(); !slices.Equal(got, want) {
			t.Errorf("%s: heard %q, want %q", what, got, want)
		}
	}
	if err := r.Events(stored(1, 1, 2)); err == nil {
		t.Error("events before any card are no error")
	}
	card := &engine.Card{Model: "m", ContextLength: 100, DPSize: 1, Features: engine.Features{engine.FeatureEvents}}
	r.Status(engine.Status{Epoch: 1, Revision: 1, State: engine.Ready, Card: card})
	if w := f.Worker(7); w != r.Worker() || !w.Ready() || w.Lost().Err() != nil {
		t.Fatalf("the worker is not ready: %+v", w.Status())
	}
	expect("a first card")

	if err := r.Events(stored(1, 1, 2)); err != nil {
		t.Error(err)
	}
	if err := r.Events(stored(1, 2, 2)); err != nil {
		t.Error(err)
	}
	expect("events that overlap", "7/0: 2 from 1 ", "7/0: 1 from 3 ")
	if r.Wanted() {
		t.Error("events are wanted anew, though none are missing")
	}
	if err := r.Events(stored(1, 9, 1)); err == nil {
		t.Error("missing events are no error")
	}
	expect("a hole")
	if !r.Wanted() {
		t.Error("events are missing, and nobody wants them")
	}
	expect("what was told is void", "7/0: 0 from 0 lost")
	if err := r.Events(kv.Batch{Epoch: 1, Last: 9, Snapshot: kv.SnapshotEnd, Events: make([]kv.Event, 3)}); err != nil {
		t.Error(err)
	}
	expect("a snapshot", "7/0: 3 from 0 ")
	r.Worker().Resync()
	if !r.Wanted() || r.Wanted() {
		t.Error("a sink that wants the events anew is to be heard once")
	}
	sink.take()

	life := r.Worker().Lost()
	r.Status(engine.Status{Epoch: 2, Revision: 2, State: engine.Ready, Card: card})
	expect("another life", "7: gone")
	if life.Err() == nil || r.Worker().Lost().Err() != nil {
		t.Error("the old life goes on, or the new one is over")
	}

	at := time.Unix(5, 0)
	r.Load(engine.Load{Ranks: []engine.RankLoad{{Running: 3}}}, at)
	if l, when := r.Worker().Load(); when != at || l.Ranks[0].Running != 3 {
		t.Errorf("load is %+v of %v", l, when)
	}

	life = r.Worker().Lost()
	f.Remove(7)
	expect("the worker leaves", "7: gone")
	if life.Err() == nil {
		t.Error("a worker that has left is not lost")
	}
	r.Status(engine.Status{Epoch: 3, Revision: 3, State: engine.Ready, Card: card})
	if err := r.Events(stored(3, 1, 1)); err != nil {
		t.Error(err)
	}
	expect("what is told of a worker that has left")
	if _, err := f.Report(fleet.Entry{Name: "w", ID: 7}); err != nil {
		t.Error("a worker does not come back:", err)
	}
	if _, err := f.Report(fleet.Entry{Name: "other", ID: 7}); err == nil {
		t.Error("two workers have one id")
	}
}

// A life that never came to a card has lost nothing when another one begins, and a
// failure is more than news.
func TestWhatIsLogged(t *testing.T) {
	var log strings.Builder
	f := fleet.New(fleet.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	defer f.Close()
	r, err := f.Report(fleet.Entry{Name: "w", ID: 7})
	if err != nil {
		t.Fatal(err)
	}
	card := &engine.Card{Model: "m", ContextLength: 100, DPSize: 1}
	r.Status(engine.Status{Epoch: 1, State: engine.Loading, Reason: "not known yet"})
	r.Status(engine.Status{Epoch: 2, Revision: 1, State: engine.Ready, Card: card})
	if strings.Contains(log.String(), "level=WARN") {
		t.Errorf("of a start:\n%s", &log)
	}
	r.Status(engine.Status{Epoch: 3, Revision: 1, State: engine.Ready, Card: card})
	if !strings.Contains(log.String(), "worker has restarted") {
		t.Errorf("of a restart:\n%s", &log)
	}
	r.Status(engine.Status{Epoch: 3, Revision: 1, State: engine.Failed, Card: card, Reason: "no such file"})
	if !strings.Contains(log.String(), `level=WARN msg="worker is failed"`) {
		t.Errorf("of a failure:\n%s", &log)
	}
}
