package fleet_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
)

// staffed runs a test of a roster whose workers are busy as long as busy says.
func staffed(t *testing.T, test func(t *testing.T, r *fleet.Roster, busy *atomic.Bool)) {
	synctest.Test(t, func(t *testing.T) {
		f, busy := fleet.New(fleet.Config{}), &atomic.Bool{}
		r := &fleet.Roster{
			Fleet: f, Patience: 30 * time.Second, Order: []string{fleet.Admin, "flags", "file"},
			Busy: func(uint64) bool { return busy.Load() },
			Open: func(w fleet.Wanted) (engine.Engine, error) {
				if w.Spec == "bad" {
					return nil, errors.New("no such kind")
				}
				return newFake(), nil
			},
		}
		test(t, r, busy)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // whoever is leaving finds nobody
	})
}

// list is workers by name and spec, "a=1 b=2!" where b is drained.
func list(text string) (all []fleet.Wanted) {
	for part := range strings.FieldsSeq(text) {
		name, spec, _ := strings.Cut(part, "=")
		spec, drain := strings.CutSuffix(spec, "!")
		all = append(all, fleet.Wanted{Name: name, Spec: spec, Drain: drain})
	}
	return all
}

// names are the workers of a fleet, with a mark those that were ready once.
func names(f *fleet.Fleet) string {
	var all []string
	for _, w := range f.Snapshot() {
		name := w.Name()
		if w.State() == "ready" || w.Status().State == engine.Draining {
			name += "!"
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func set(t *testing.T, r *fleet.Roster, source, text, want string) fleet.Change {
	t.Helper()
	c, err := r.Set(source, list(text))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if got := names(r.Fleet); got != want {
		t.Errorf("%s wants %q: the fleet is %q, want %q", source, text, got, want)
	}
	return c
}

// Who is wanted joins, who is not leaves, and who is wanted in another way does both.
func TestRoster(t *testing.T) {
	staffed(t, func(t *testing.T, r *fleet.Roster, busy *atomic.Bool) {
		set(t, r, "flags", "a=1 b=1", "a b")
		first := r.Fleet.Worker(fleet.ID("b"))
		c := set(t, r, "file", "b=2 c=1 d=1", "a b c d")
		if !slices.Equal(c.Added, []string{"c", "d"}) || c.Kept != 2 {
			t.Errorf("%+v", c)
		}
		if r.Fleet.Worker(fleet.ID("b")) != first {
			t.Error("the file came before the flags")
		}
		c = set(t, r, "file", "c=2", "a b c")
		if !slices.Equal(c.Changed, []string{"c"}) || !slices.Equal(c.Removed, []string{"d"}) {
			t.Errorf("%+v", c)
		}
		set(t, r, "flags", "", "c")
		if _, err := r.Set("file", list("c=2 e=bad f=1")); err == nil || !strings.Contains(err.Error(), "e: no such kind") {
			t.Errorf("%v", err)
		}
		if got := names(r.Fleet); got != "c f" {
			t.Errorf("the fleet is %q", got)
		}
		want := []fleet.SourceState{{Name: "flags", Changes: 2}, {Name: "file", Workers: 3, Changes: 3, Errors: 1, Fault: "e: no such kind"}}
		if got := r.Sources(); !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
	})
}

// What runs on a worker that leaves may end, but not for ever; and who is wanted
// again meanwhile stays.
func TestRosterLeaves(t *testing.T) {
	staffed(t, func(t *testing.T, r *fleet.Roster, busy *atomic.Bool) {
		set(t, r, "file", "a=1 b=1", "a b")
		for _, w := range r.Fleet.Snapshot() {
			send(w.Engine().(*fake).cards, ready(7))
		}
		busy.Store(true)
		set(t, r, "file", "", "a! b!")
		time.Sleep(29 * time.Second)
		set(t, r, "file", "b=1", "a! b!")
		if w := r.Fleet.Worker(fleet.ID("b")); !w.Ready() || w.State() != "ready" {
			t.Errorf("who is wanted again is %s", w.State())
		}
		a := r.Fleet.Worker(fleet.ID("a")).Engine().(*fake)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := names(r.Fleet); got != "b!" || a.closed != 1 {
			t.Errorf("the fleet is %q, closed %d times", got, a.closed)
		}
		// Wanted in another way, it waits until the other one has left.
		set(t, r, "file", "b=2", "b!")
		busy.Store(false)
		time.Sleep(time.Second)
		if got := names(r.Fleet); got != "b" {
			t.Errorf("the fleet is %q, want a new b", got)
		}
	})
}

// Operators add, and take away what others want, until those want it otherwise.
func TestRosterOfOperators(t *testing.T) {
	staffed(t, func(t *testing.T, r *fleet.Roster, busy *atomic.Bool) {
		w, err := r.Add(fleet.Wanted{Name: "a", Spec: "1"})
		if err != nil || w.ID() != fleet.ID("a") {
			t.Fatal(w, err)
		}
		if _, err := r.Add(fleet.Wanted{Name: "a", Spec: "1"}); err == nil || !strings.Contains(err.Error(), "is there already") {
			t.Errorf("%v", err)
		}
		if _, err := r.Add(fleet.Wanted{Name: "x", Spec: "bad"}); err == nil {
			t.Error("a bad one was added")
		}
		set(t, r, "file", "a=1 b=1", "a b")
		for _, name := range []string{"a", "b"} {
			if !r.Remove(fleet.ID(name)) || r.Remove(99) {
				t.Error("wrong answer")
			}
		}
		synctest.Wait()
		set(t, r, "file", "a=1 b=1 c=1", "c")
		set(t, r, "file", "a=2 b=1 c=1", "a c")
		if _, err := r.Add(fleet.Wanted{Name: "b", Spec: "1"}); err != nil {
			t.Error(err)
		}
		set(t, r, "file", "", "b")
		// One that joined in another way is taken away likewise.
		if _, err := r.Fleet.Add(fleet.Entry{Name: "mock", Engine: newFake()}); err != nil {
			t.Fatal(err)
		}
		if !r.Remove(fleet.ID("mock")) {
			t.Error("not found")
		}
		synctest.Wait()
		set(t, r, "file", "", "b")
	})
}

func TestRosterDrains(t *testing.T) {
	staffed(t, func(t *testing.T, r *fleet.Roster, busy *atomic.Bool) {
		set(t, r, "file", "a=1!", "a")
		w := r.Fleet.Worker(fleet.ID("a"))
		send(w.Engine().(*fake).cards, ready(7))
		if w.State() != "draining" {
			t.Errorf("a is %s", w.State())
		}
		set(t, r, "file", "a=1", "a!")
		if !w.Ready() {
			t.Errorf("a is %s", w.State())
		}
		set(t, r, "file", "a=1!", "a!")
		if w.Ready() {
			t.Error("a is ready")
		}
	})
}

// told is a source that tells what it is told.
type told chan any

func (s told) Watch(ctx context.Context) iter.Seq2[[]fleet.Wanted, error] {
	return tell[[]fleet.Wanted](ctx, s)
}

// A source that fails never empties a fleet.
func TestRosterFollows(t *testing.T) {
	staffed(t, func(t *testing.T, r *fleet.Roster, busy *atomic.Bool) {
		ctx, cancel := context.WithCancel(t.Context())
		s := make(told)
		go r.Follow(ctx, "file", s)
		send(s, list("a=1"))
		send(s, errors.New("line 3: no"))
		if got := names(r.Fleet); got != "a" {
			t.Errorf("the fleet is %q", got)
		}
		if got := r.Sources()[0]; got.Fault != "line 3: no" || got.Errors != 1 || got.Workers != 1 {
			t.Errorf("%+v", got)
		}
		cancel()
		synctest.Wait()
	})
}

// However sources change, what is left in the end is their union, once each.
func TestRosterProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lists := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a=1", "a=2", "a=1 b=1", "b=1! c=1", "c=2 a=1"}), 1, 12).Draw(rt, "lists")
		sources := rapid.SliceOfN(rapid.SampledFrom([]string{"flags", "file"}), len(lists), len(lists)).Draw(rt, "sources")
		staffed(t, func(t *testing.T, r *fleet.Roster, busy *atomic.Bool) {
			last := map[string]string{}
			for i, text := range lists {
				busy.Store(i%3 == 0)
				if _, err := r.Set(sources[i], list(text)); err != nil {
					rt.Fatal(err)
				}
				last[sources[i]] = text
			}
			busy.Store(false)
			time.Sleep(time.Minute)
			want := map[string]bool{}
			for _, text := range last {
				for _, w := range list(text) {
					want[w.Name] = true
				}
			}
			for _, w := range r.Fleet.Snapshot() {
				if !want[w.Name()] {
					rt.Fatalf("%s is not wanted: %v", w.Name(), last)
				}
				delete(want, w.Name())
			}
			if len(want) > 0 {
				rt.Fatalf("%v is missing of %v", want, last)
			}
		})
	})
}
