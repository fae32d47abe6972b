package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// worker is one mock engine in virtual time.
type worker struct {
	name     string
	id       uint64
	reporter *fleet.Reporter
	args     mock.Args
	card     *engine.Card
	epoch    uint64 // its life
	revision uint64 // of what it told of itself
	speed    float64
	ranks    []*rank
	told     time.Duration // when its load was told last
	due      uint64        // the life whose load is to be told when it may be again
	gone     bool
	// When it joined and, if it is gone, left.
	joined, left time.Duration
}

// AddWorker lets a worker join that is such an engine, and returns its number:
// they count from 0, and those that left keep theirs. It is ready once its
// start-up time has passed; those of the beginning are at once.
func (s *Simulation) AddWorker(args mock.Args) (int, error) { return s.addWorker(args, s.cfg.role()) }

func (s *Simulation) addWorker(args mock.Args, role engine.Role) (int, error) {
	if err := args.Validate(); err != nil {
		return 0, fmt.Errorf("sim: %w", err)
	}
	n := len(s.workers)
	// Ids in the order of the numbers make ties and reports easy to follow.
	r, err := s.fleet.Report(fleet.Entry{Name: fmt.Sprintf("worker-%d", n), ID: uint64(n + 1)})
	if err != nil {
		return 0, fmt.Errorf("sim: %w", err)
	}
	w := &worker{
		name: r.Worker().Name(), id: r.Worker().ID(), reporter: r,
		args: args, card: args.Card(s.cfg.Model), speed: 1,
		told: -loadEvery, joined: s.clock.elapsed,
	}
	w.card.Role = role
	for i := range args.DPSize {
		w.ranks = append(w.ranks, &rank{worker: w, number: uint32(i), core: s.shared.NewCore(args)})
	}
	s.workers = append(s.workers, w)
	s.byID[w.id] = w
	return n, s.live(w)
}

// SetSpeed makes a worker so many times as fast as its arguments say, from its
// next pass on.
func (s *Simulation) SetSpeed(n int, factor float64) error {
	w, err := s.worker(n)
	if err != nil {
		return err
	}
	w.speed = factor
	for _, r := range w.ranks {
		r.core.SetSpeed(w.args.SpeedupRatio * factor)
	}
	return nil
}

// RemoveWorker lets a worker vanish. What runs there goes on elsewhere as far as
// [Config.Migrations] allows.
func (s *Simulation) RemoveWorker(n int) error {
	w, err := s.worker(n)
	if err != nil {
		return err
	}
	w.gone, w.left = true, s.clock.elapsed
	lost := s.clear(w)
	for _, r := range w.ranks {
		r.core.Close(s.clock.elapsed)
		r.core = nil
	}
	s.fleet.Remove(w.id)
	s.migrate(w, lost)
	return nil
}

// RestartWorker is a crash and a new start: the cache is lost, and what runs
// there goes on elsewhere as with [Simulation.RemoveWorker].
func (s *Simulation) RestartWorker(n int) error {
	w, err := s.worker(n)
	if err != nil {
		return err
	}
	lost := s.clear(w)
	for _, r := range w.ranks {
		r.core = r.core.Restart(s.clock.elapsed)
	}
	err = s.live(w)
	s.migrate(w, lost)
	return err
}

// worker returns the worker with this number if it is there.
func (s *Simulation) worker(n int) (*worker, error) {
	if n < 0 || n >= len(s.workers) || s.workers[n].gone {
		return nil, fmt.Errorf("there is no worker %d", n)
	}
	return s.workers[n], nil
}

// live begins a life of a worker.
func (s *Simulation) live(w *worker) error {
	w.epoch++
	for _, r := range w.ranks {
		r.core.SetSpeed(w.args.SpeedupRatio * w.speed)
		r.jobs, r.events, r.alarm = make(map[*job]bool), 0, 0
		core := r.core
		r.finish = func() error {
			if r.core != core {
				return nil // a pass of an earlier life
			}
			return s.finish(r)
		}
	}
	startup := time.Duration(w.args.StartupTime * float64(time.Second))
	if startup == 0 || s.clock.elapsed == 0 {
		return w.ready()
	}
	w.become(engine.Loading)
	epoch := w.epoch
	s.agenda.add(s.clock.elapsed+startup, changes, func() error {
		if w.epoch != epoch || w.gone {
			return nil
		}
		err := w.ready()
		s.router.Tick(s.clock.Now())
		return err
	})
	return nil
}

// ready lets a worker take requests, and tells what it can load already.
func (w *worker) ready() error {
	w.become(engine.Ready)
	for _, r := range w.ranks {
		if err := r.tell(r.core.News()); err != nil {
			return err
		}
	}
	return nil
}

// become tells the worker's state.
func (w *worker) become(state engine.State) {
	w.revision++
	w.reporter.Status(engine.Status{Epoch: w.epoch, Revision: w.revision, State: state, Card: w.card})
}

// clear ends a life of a worker, and returns what ran there in the order of the
// workload.
func (s *Simulation) clear(w *worker) []*job {
	var lost []*job
	for _, r := range w.ranks {
		lost = slices.AppendSeq(lost, maps.Keys(r.jobs))
		s.end(r)
		r.pass, r.jobs = nil, nil
	}
	slices.SortFunc(lost, func(a, b *job) int { return cmp.Compare(a.n, b.n) })
	return lost
}

// migrate sends requests on that were lost with a worker.
func (s *Simulation) migrate(w *worker, lost []*job) {
	for _, j := range lost {
		j.booking.Failed()
		j.release()
	}
	for _, j := range lost {
		if len(j.lost) == s.cfg.Migrations {
			s.ended(j, engine.ErrWorkerLost)
			continue
		}
		j.goOn(w.id)
		s.submit(j)
	}
}

// retell tells all of a worker's cache, if somebody wants it.
func (w *worker) retell() error {
	if !w.reporter.Wanted() {
		return nil
	}
	for _, r := range w.ranks {
		for _, part := range kv.Cut(r.core.Stored()) {
			if err := w.reporter.Events(kv.Batch{Rank: r.number, Epoch: w.epoch, Events: part, Snapshot: kv.SnapshotPart}); err != nil {
				return err
			}
		}
		if err := w.reporter.Events(kv.Batch{Rank: r.number, Epoch: w.epoch, Last: r.events, Snapshot: kv.SnapshotEnd}); err != nil {
			return err
		}
	}
	return nil
}

// loadEvery is how often a worker tells its load, at most, as live ones do.
const loadEvery = 100 * time.Millisecond

// tellLoad tells the load of a worker, or lets it be told as soon as it may be
// again: what is told last, before nothing happens for a while, must be true.
func (s *Simulation) tellLoad(w *worker) {
	if next := w.told + loadEvery; s.clock.elapsed < next {
		if epoch := w.epoch; w.due != epoch {
			w.due = epoch
			s.agenda.add(next, passes, func() error {
				if w.due == epoch && w.epoch == epoch && !w.gone && w.ranks[0].core != nil {
					w.due = 0
					s.tellLoad(w)
				}
				return nil
			})
		}
		return
	}
	w.told, w.due = s.clock.elapsed, 0
	l := engine.Load{Ranks: make([]engine.RankLoad, len(w.ranks))}
	for i, r := range w.ranks {
		l.Ranks[i] = r.core.Load()
		l.Ranks[i].Rank = r.number
	}
	w.reporter.Load(l, s.clock.Now())
}
