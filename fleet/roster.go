package fleet

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
)

// Wanted is a worker that ought to be in the fleet.
type Wanted struct {
	// Name is unique: the address.
	Name string
	// Spec says how it is reached and what it is, for [Roster.Open]; another text is
	// another worker at the same address. It may hold secrets.
	Spec string
	// ID is below 2^53. 0 takes [ID] of the name.
	ID uint64
	// Drain keeps new requests from it.
	Drain bool
}

// Source tells which workers are wanted.
type Source interface {
	// Watch yields the whole set at once and whenever it is another one, until ctx
	// ends. With an error comes what is still good of it, or nil for nothing new.
	Watch(ctx context.Context) iter.Seq2[[]Wanted, error]
}

// Roster keeps a fleet as its sources want it: who is wanted joins, who is not any
// more is drained and leaves, and who is wanted in another way leaves and joins
// again. A source that fails keeps what it said last, so that a list that cannot be
// read never empties a fleet. The fields are set before the first call.
type Roster struct {
	Fleet *Fleet
	// Open makes the engine of a worker that joins. It must not wait.
	Open func(Wanted) (engine.Engine, error)
	// Busy says whether requests run on a worker; nil: none do.
	Busy func(id uint64) bool
	// Patience is how long they may take to end when the worker leaves.
	Patience time.Duration
	// Order names the sources. Where two want the same worker the first one counts.
	Order []string

	mu      sync.Mutex
	wanted  map[string][]Wanted // by source
	members map[string]*member  // by name
	// dismissed are workers that an operator took away although sources want them
	// like that.
	dismissed map[string][]string
	states    map[string]*SourceState
}

// member is a worker that joined because it was wanted.
type member struct {
	as     Wanted
	worker *Worker
	stay   context.CancelFunc // ends the leaving; nil while it is not leaving
	gone   bool               // it is too late for that
}

// Admin is the name of the source that operators are.
const Admin = "admin"

// SourceState is what came of a source.
type SourceState struct {
	Name    string
	Workers int    // wanted now
	Changes uint64 // how often it told another set
	Errors  uint64 // how often it failed
	Fault   string // why it does not tell anything new; "" if it does
}

// Change counts what a set of workers changed.
type Change struct {
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
	Changed []string `json:"changed"` // they leave, and join again as they are wanted now
	Kept    int      `json:"kept"`
}

// Set makes list all that a source wants, and says what that changes. It does not
// wait for it. An error names the workers that cannot join; the others do.
func (r *Roster) Set(source string, list []Wanted) (Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state(source)
	s.Changes, s.Workers, s.Fault = s.Changes+1, len(list), ""
	r.wanted[source] = slices.Clone(list)
	c, err := r.reconcile()
	if err != nil {
		s.Errors, s.Fault = s.Errors+1, err.Error()
	}
	return c, err
}

// Follow does what a source says until ctx ends.
func (r *Roster) Follow(ctx context.Context, name string, source Source) {
	log := r.Fleet.log.With("source", name)
	for list, err := range source.Watch(ctx) {
		if list != nil {
			change, failed := r.Set(name, list)
			logChange(log, change)
			if err == nil {
				err = failed
			}
		}
		if err != nil {
			r.fail(name, err)
			log.Error("workers stay as they were told last", "error", err)
		}
	}
}

func logChange(log *slog.Logger, c Change) {
	if len(c.Added)+len(c.Removed)+len(c.Changed) > 0 {
		log.Info("workers were told anew", "added", c.Added, "removed", c.Removed, "changed", c.Changed, "kept", c.Kept)
	}
}

// fail notes that a source could not be read.
func (r *Roster) fail(source string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state(source)
	s.Errors, s.Fault = s.Errors+1, err.Error()
}

// Add lets one more worker join, as an operator wants it.
func (r *Roster) Add(w Wanted) (*Worker, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state(Admin)
	if m := r.members[w.Name]; m != nil && m.stay == nil {
		return nil, fmt.Errorf("fleet: add %q: it is there already", w.Name)
	}
	delete(r.dismissed, w.Name)
	r.wanted[Admin] = append(slices.DeleteFunc(r.wanted[Admin], named(w.Name)), w)
	if _, err := r.reconcile(); err != nil && r.members[w.Name] == nil {
		r.wanted[Admin] = slices.DeleteFunc(r.wanted[Admin], named(w.Name))
		return nil, err
	}
	// Of one that is still leaving the id is known already.
	return r.members[w.Name].worker, nil
}

// Remove drains a worker and lets it leave, as an operator wants it; it stays away
// until it is wanted in another way. False is an unknown id.
func (r *Roster) Remove(id uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.Fleet.Worker(id)
	if w == nil {
		return false
	}
	r.state(Admin)
	r.wanted[Admin] = slices.DeleteFunc(r.wanted[Admin], named(w.name))
	if m := r.members[w.name]; m != nil && m.worker == w {
		for _, list := range r.wanted {
			if i := slices.IndexFunc(list, named(w.name)); i >= 0 {
				r.dismissed[w.name] = append(r.dismissed[w.name], list[i].Spec)
			}
		}
		r.reconcile() //nolint:errcheck // whoever cannot join could not before
		return true
	}
	// It joined in another way.
	r.leave(&member{as: Wanted{Name: w.name}, worker: w})
	return true
}

// Sources tells what came of each source, in their order.
func (r *Roster) Sources() (list []SourceState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.Order {
		if s := r.states[name]; s != nil {
			list = append(list, *s)
		}
	}
	return list
}

func named(name string) func(Wanted) bool { return func(w Wanted) bool { return w.Name == name } }

// state returns that of a source; the first call makes the roster ready.
func (r *Roster) state(source string) *SourceState {
	if r.states == nil {
		r.states, r.wanted = map[string]*SourceState{}, map[string][]Wanted{}
		r.members, r.dismissed = map[string]*member{}, map[string][]string{}
	}
	if r.states[source] == nil {
		r.states[source] = &SourceState{Name: source}
		if !slices.Contains(r.Order, source) {
			r.Order = append(r.Order, source)
		}
	}
	return r.states[source]
}

// union returns all that is wanted, each worker once.
func (r *Roster) union() (list []Wanted) {
	seen := map[string]bool{}
	for _, source := range r.Order {
		for _, w := range r.wanted[source] {
			if seen[w.Name] {
				continue
			}
			seen[w.Name] = true
			if slices.Contains(r.dismissed[w.Name], w.Spec) {
				continue
			}
			delete(r.dismissed, w.Name)
			list = append(list, w)
		}
	}
	for name := range r.dismissed {
		if !seen[name] {
			delete(r.dismissed, name)
		}
	}
	return list
}

// reconcile makes the fleet what is wanted. The lock must be held.
func (r *Roster) reconcile() (c Change, err error) {
	c = Change{Added: []string{}, Removed: []string{}, Changed: []string{}}
	want := map[string]Wanted{}
	list := r.union()
	for _, w := range list {
		want[w.Name] = w
	}
	for name, m := range r.members {
		w, ok := want[name]
		switch {
		case ok && w.Spec == m.as.Spec && w.ID == m.as.ID && !m.gone:
			c.Kept++
			r.keep(m, w)
		case m.stay != nil: // it leaves, and then is looked at again
		case ok:
			c.Changed = append(c.Changed, name)
			r.leave(m)
		default:
			c.Removed = append(c.Removed, name)
			r.leave(m)
		}
	}
	var faults []string
	for _, w := range list {
		if r.members[w.Name] != nil {
			continue
		}
		if err := r.join(w); err != nil {
			faults = append(faults, fmt.Sprintf("%s: %s", w.Name, err))
			continue
		}
		c.Added = append(c.Added, w.Name)
	}
	if len(faults) > 0 {
		err = fmt.Errorf("%s", strings.Join(faults, "; "))
	}
	slices.Sort(c.Removed)
	slices.Sort(c.Changed)
	return c, err
}

func (r *Roster) join(w Wanted) error {
	e, err := r.Open(w)
	if err != nil {
		return err
	}
	worker, err := r.Fleet.Add(Entry{Name: w.Name, Engine: e, ID: w.ID})
	if err != nil {
		closeEngine(e) //nolint:errcheck // the first error is the one to tell
		return err
	}
	r.members[w.Name] = &member{as: w, worker: worker}
	if w.Drain {
		r.Fleet.Drain(worker.id)
	}
	return nil
}

// keep lets a worker stay that may have been leaving, drained or not.
func (r *Roster) keep(m *member, w Wanted) {
	stayed := m.stay != nil
	if stayed {
		m.stay()
		m.stay = nil
	}
	switch {
	case w.Drain && (stayed || !m.as.Drain):
		r.Fleet.Drain(m.worker.id)
	case !w.Drain && (stayed || m.as.Drain):
		r.Fleet.Resume(m.worker.id)
	}
	m.as = w
}

// leave drains a worker, and removes it once nothing runs there any more.
func (r *Roster) leave(m *member) {
	ctx, cancel := context.WithCancel(context.Background())
	m.stay = cancel
	log := r.Fleet.log.With("worker", m.worker.name, "id", m.worker.id)
	log.Info("worker leaves when nothing runs there any more", "patience", r.Patience)
	r.Fleet.Drain(m.worker.id)
	go func() {
		defer cancel()
		r.idle(ctx, m.worker)
		r.mu.Lock()
		stays := ctx.Err() != nil // it may even be leaving anew
		m.gone = m.gone || !stays
		r.mu.Unlock()
		if stays {
			return
		}
		r.Fleet.Remove(m.worker.id)
		log.Info("worker was removed")
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.members[m.as.Name] == m {
			delete(r.members, m.as.Name)
			if _, err := r.reconcile(); err != nil {
				log.Error("worker does not join", "error", err)
			}
		}
	}()
}

// lookAgain is how often it is looked whether a worker still has something to do.
const lookAgain = 50 * time.Millisecond

// idle waits until nothing runs on a worker, it has left, or time is up.
func (r *Roster) idle(ctx context.Context, w *Worker) {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	for r.Busy != nil && r.Busy(w.id) && r.Fleet.Worker(w.id) == w && ctx.Err() == nil {
		pause(ctx, lookAgain)
	}
}
