package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/fleet/file"
	"github.com/dynago/dynago/internal/config"
)

// Sources of workers, in the order in which they are believed: an operator who adds
// one means it.
const (
	fromFlags = "flags"
	fromFile  = "file"
)

// newRoster makes what keeps the fleet as it is wanted.
func (sys *system) newRoster() *fleet.Roster {
	return &fleet.Roster{
		Fleet: sys.fleet, Open: sys.open, Busy: sys.busy,
		Patience: sys.settings.HTTP.DrainTimeout,
		Order:    []string{fleet.Admin, fromFlags, fromFile},
	}
}

// open makes the engine of a worker that joins.
func (sys *system) open(w fleet.Wanted) (engine.Engine, error) {
	spec, err := attach.Parse(w.Spec)
	if err != nil {
		return nil, err
	}
	return attach.New(spec, attach.Config{
		ModelPath: sys.settings.Model.Path, Known: inside, Check: sys.served.check,
		Adapter: attach.Adapter{Log: sys.log.With("worker", w.Name)},
	})
}

// busy says whether requests are booked on a worker.
func (sys *system) busy(id uint64) bool {
	for _, l := range sys.router.Loads() {
		if l.Target.Worker == id && l.Requests > 0 {
			return true
		}
	}
	return false
}

// wanted is what a spec says of a worker.
func wanted(spec *attach.Spec) fleet.Wanted {
	w := fleet.Wanted{Name: spec.URL, Spec: spec.Text(), Drain: spec.Drain}
	if spec.Pod != "" {
		w.ID = fleet.ID(spec.Pod)
	}
	return w
}

// attach lets the engines of flags and of the file join. None of them need be there.
func (sys *system) attach() error {
	var list []fleet.Wanted
	for _, spec := range sys.specs {
		list = append(list, wanted(spec))
	}
	if len(list) > 0 {
		if _, err := sys.roster.Set(fromFlags, list); err != nil {
			return fmt.Errorf("--engine: %w", err)
		}
	}
	if sys.file == nil {
		return nil
	}
	list, err := sys.file.Read()
	if err != nil && !sys.settings.mayCome() {
		return fmt.Errorf("--workers-file: %w", err)
	}
	if err != nil {
		sys.log.Warn("workers are not listed yet", "error", err)
	}
	if list == nil {
		return nil
	}
	if _, err := sys.roster.Set(fromFile, list); err != nil {
		return fmt.Errorf("--workers-file: %w", err)
	}
	return nil
}

// follow keeps to the file until ctx ends.
func (sys *system) follow(ctx context.Context) {
	if sys.file != nil {
		sys.roster.Follow(ctx, fromFile, sys.file)
	}
}

// listed reads one file of workers.
func (s *settings) listed(name string, text []byte) ([]fleet.Wanted, error) {
	texts, err := config.Texts(name, text)
	if err != nil {
		return nil, err
	}
	list, lines := []fleet.Wanted{}, map[string]int{}
	for _, t := range texts {
		spec, err := attach.Parse(t.Value)
		if err == nil {
			err = s.HTTP.apart([]*attach.Spec{spec})
		}
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", name, t.Line, err)
		}
		if line, ok := lines[spec.URL]; ok {
			return nil, fmt.Errorf("%s line %d: url: %s: stands in line %d already", name, t.Line, spec.URL, line)
		}
		lines[spec.URL] = t.Line
		list = append(list, wanted(spec))
	}
	return list, nil
}

// source returns the file of workers, or nil where none is wanted.
func (s *settings) source() *file.Source {
	path := s.Attach.WorkersFile
	if path == "" && s.Ignored.Discovery == "file" {
		path = filepath.Join(os.TempDir(), "dynamo_store_kv")
	}
	if path == "" {
		return nil
	}
	return file.New(path, s.listed)
}

// mayCome says whether the list of workers need not be there at the start: the place
// where others put it by default may not have been made yet.
func (s *settings) mayCome() bool {
	return s.Attach.WorkersFile == "" && s.Ignored.Discovery == "file"
}

// Attach lets one more engine join while the server runs.
func (sys *system) Attach(text string) (uint64, error) {
	if strings.HasPrefix(text, "{") { // the same names as in a list
		items, err := config.Texts("body", []byte("["+text+"]"))
		if err != nil {
			return 0, err
		}
		if len(items) != 1 {
			return 0, fmt.Errorf("body: %d objects: want one", len(items))
		}
		text = items[0].Value
	}
	spec, err := attach.Parse(text)
	if err != nil {
		return 0, err
	}
	if err := sys.settings.HTTP.apart([]*attach.Spec{spec}); err != nil {
		return 0, err
	}
	w, err := sys.roster.Add(wanted(spec))
	if err != nil {
		return 0, err
	}
	sys.log.Info("worker was added", "worker", w.Name(), "id", w.ID())
	return w.ID(), nil
}

// Drain keeps new requests from a worker.
func (sys *system) Drain(id uint64) bool { return sys.drain(id, sys.fleet.Drain, "worker is drained") }

// Resume lets a worker have requests again.
func (sys *system) Resume(id uint64) bool {
	return sys.drain(id, sys.fleet.Resume, "worker is not drained any more")
}

func (sys *system) drain(id uint64, change func(uint64), message string) bool {
	w := sys.fleet.Worker(id)
	if w == nil {
		return false
	}
	sys.log.Info(message, "worker", w.Name(), "id", id)
	change(id)
	return true
}

// Detach drains a worker, and removes it when nothing runs there any more, or when
// that takes longer than a drain may.
func (sys *system) Detach(id uint64) bool { return sys.roster.Remove(id) }

// errNoFile is why there is nothing to read again.
var errNoFile = errors.New("this server has no list of workers to read: want one that was started with --workers-file")

// Reload reads the list of workers again, and says what that changes.
func (sys *system) Reload() (fleet.Change, error) {
	if sys.file == nil {
		return fleet.Change{}, errNoFile
	}
	list, err := sys.file.Read()
	if list == nil {
		return fleet.Change{}, err
	}
	change, failed := sys.roster.Set(fromFile, list)
	if err = errors.Join(err, failed); err == nil {
		sys.log.Info("the list of workers was read again", "added", change.Added, "removed", change.Removed, "changed", change.Changed, "kept", change.Kept)
	}
	return change, err
}

// Sources tells where workers come from.
func (sys *system) Sources() []fleet.SourceState { return sys.roster.Sources() }

// engines is one line about where the workers are from.
func (sys *system) engines() string {
	var list []string
	for _, spec := range sys.specs {
		list = append(list, spec.String())
	}
	if sys.file != nil {
		list = append(list, "those of "+sys.file.Path())
	}
	return strings.Join(list, ", ")
}
