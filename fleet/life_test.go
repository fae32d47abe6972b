package fleet_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

func in(state engine.State, epoch uint64) engine.Status {
	s := ready(epoch)
	s.State = state
	return s
}

// A worker that has fallen silent gets nothing new, and keeps what it has.
func TestSuspect(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		send(e.cards, ready(7))
		lost := w.Lost()
		send(e.cards, in(engine.Suspect, 7))
		send(e.events, batch(7, 1, 1))
		expect(t, heard, "1/0 stored 1")
		if w.Ready() || w.Admitted() || lost.Err() != nil || w.State() != "suspect" {
			t.Errorf("ready %v, admitted %v, lost %v, %s", w.Ready(), w.Admitted(), lost.Err(), w.State())
		}
		send(e.cards, ready(7))
		if !w.Ready() || len(e.opened) != 1 {
			t.Errorf("ready %v, opened %d times", w.Ready(), len(e.opened))
		}
	})
}

// What a worker caches that cannot be reached is still there when it comes back in
// time, and its events go on where they were.
func TestDeadAndBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		send(e.cards, ready(7))
		send(e.events, batch(7, 1, 2))
		lost := w.Lost()
		send(e.cards, engine.Status{Epoch: 7, State: engine.Dead, Reason: "no route"})
		if w.Ready() || !errors.Is(context.Cause(lost), engine.ErrWorkerLost) || w.State() != "dead" || w.Card() == nil {
			t.Errorf("ready %v, streams end with %v, %s", w.Ready(), context.Cause(lost), w.State())
		}
		time.Sleep(59 * time.Second)
		send(e.cards, ready(7))
		send(e.events, batch(7, 3, 3))
		expect(t, heard, "1/0 stored 1 stored 2", "1/0 stored 3")
		want := []kv.Cursor{{Epoch: 7, Sequence: 2}}
		if len(e.opened) != 2 || !slices.Equal(e.opened[1], want) {
			t.Errorf("opened at %v", e.opened)
		}
		if !w.Ready() || w.Restarts() != 0 {
			t.Errorf("ready %v, %d restarts", w.Ready(), w.Restarts())
		}
		time.Sleep(2 * time.Minute)
		expect(t, heard)
	})
}

// It is not remembered for ever, nor into another life.
func TestDeadForLong(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		send(e.cards, ready(7))
		send(e.events, batch(7, 1, 1))
		send(e.cards, in(engine.Dead, 7))
		time.Sleep(61 * time.Second)
		expect(t, heard, "1/0 stored 1", "1 gone")
		send(e.cards, ready(7))
		send(e.events, batch(7, 1, 1))
		expect(t, heard, "1/0 stored 1")
		send(e.cards, in(engine.Dead, 7))
		send(e.cards, ready(8))
		expect(t, heard, "1 gone")
		send(e.events, batch(8, 1, 1))
		expect(t, heard, "1/0 stored 1")
		if w.Restarts() != 1 || e.opened[2] != nil {
			t.Errorf("%d restarts, opened at %v", w.Restarts(), e.opened)
		}
	})
}

// A drain that was asked for can be ended.
func TestResume(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		send(e.cards, ready(7))
		f.Drain(1)
		f.Resume(1)
		if !w.Ready() || w.State() != "ready" {
			t.Errorf("%s after the drain", w.State())
		}
	})
}
