package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
)

// The version changes with every change, and with nothing else; and the fleet is
// calm while nobody is marked.
func TestVersion(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet.Fleet, w *fleet.Worker, e *fake, heard *recorder) {
		last := f.Version()
		expect := func(what string, changed, calm bool) {
			t.Helper()
			synctest.Wait()
			if v := f.Version(); (v != last) != changed || f.Calm() != calm {
				t.Errorf("%s: version %d after %d, calm %v", what, v, last, f.Calm())
			} else {
				last = v
			}
		}
		expect("nothing", false, true)
		send(e.cards, ready(7))
		expect("a card", true, true)
		send(e.events, batch(7, 1, 2))
		send(e.loads, engine.Load{})
		expect("events and load", false, true)
		w.Inhibit(time.Now(), engine.InvalidArgument)
		expect("the client's fault", false, true)
		w.Inhibit(time.Now(), engine.Disconnected)
		expect("the worker's fault", true, false)
		time.Sleep(3 * time.Second)
		w.Inhibit(time.Now(), engine.WorkerOverloaded)
		expect("full", true, false)
		time.Sleep(fleet.DefaultInhibit - time.Millisecond)
		expect("almost over", false, false)
		time.Sleep(time.Millisecond)
		expect("over", false, true)
		f.Drain(1)
		expect("draining", true, true)
		f.Remove(1)
		expect("gone", true, true)
	})
}
