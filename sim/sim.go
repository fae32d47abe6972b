// Package sim replays workloads in virtual time. It runs the very router that
// serves live requests, and the scheduler cores of mock engines, as a discrete
// event simulation: an hour of a large fleet takes seconds, and the same inputs
// give the same report to the last byte.
//
// The one idea: nothing is imitated but the passing of time. Requests go through
// [router.Router.Submit], KV events through the fleet into the router's index,
// bookings are released as the pipeline releases them; what is simulated is a
// heap of the moments at which something happens next, worked off by one
// goroutine that never waits.
//
//	workload ── arrival ──▶ router ── booking ──▶ core ── pass ends ──▶ tokens
//	                          ▲  ▲                 │                     │
//	                          │  └─── KV events ───┘                     │
//	                          └─────────── released ◀── last token ──────┘
package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim/trace"
)

// Clock is the time of a simulation. It is not safe for concurrent use.
type Clock struct{ elapsed time.Duration }

// start is when every simulation begins. Only differences matter.
var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Now returns the present time.
func (c *Clock) Now() time.Time { return start.Add(c.elapsed) }

// Elapsed returns how long the simulation has gone on.
func (c *Clock) Elapsed() time.Duration { return c.elapsed }

// Simulation is a fleet, its router, and what goes on there. It is for one
// goroutine.
type Simulation struct {
	cfg    Config
	clock  *Clock
	fleet  *fleet.Fleet
	router *router.Router

	agenda  agenda
	workers []*worker // in the order in which they joined; those that left stay
	byID    map[uint64]*worker
	awake   []*rank // may begin a pass when the moment is over
	intake  intake
	// shared is what the workers have together below their own tiers, or nil, and
	// generation what of it all of them have told.
	shared     *mock.Shared
	generation uint64
	past       caches // what caches have done in lives that have ended
	// admitting says that requests are being let in further up the stack.
	admitting bool
	gaps      []time.Duration // between tokens, of all requests
}

// Run replays a workload on a fleet of its own.
func Run(cfg Config, workload []trace.Request) (*Report, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Run(workload)
}

// New makes a fleet and its router. The caller closes the simulation.
func New(cfg Config) (*Simulation, error) {
	cfg.Model = cmp.Or(cfg.Model, "sim")
	cfg.Workers = max(1, cfg.Workers)
	if cfg.Engine == (mock.Args{}) {
		cfg.Engine = mock.DefaultArgs()
	}
	if cfg.PrefillEngine == (mock.Args{}) {
		cfg.PrefillEngine = cfg.Engine
	}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	if cfg.Clock == nil {
		cfg.Clock = new(Clock)
	}
	s := &Simulation{
		cfg: cfg, clock: cfg.Clock, byID: make(map[uint64]*worker),
		// Who comes back is there at once: being left alone takes real time.
		fleet:  fleet.New(fleet.Config{Inhibit: -1}),
		shared: mock.NewShared(cfg.Engine),
	}
	c := cfg.Router
	c.Now = s.clock.Now
	c.Seed = cmp.Or(c.Seed, 1)
	var err error
	if s.router, err = router.New(c, s.fleet); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	for n := range cfg.Prefills + cfg.Workers {
		role, args := engine.Prefill, cfg.PrefillEngine
		if n >= cfg.Prefills {
			role, args = cfg.role(), cfg.Engine
		}
		if _, err := s.addWorker(args, role); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Close lets go of the fleet.
func (s *Simulation) Close() { s.fleet.Close() } //nolint:errcheck // there is nothing behind it that could fail

// Router returns the router that decides.
func (s *Simulation) Router() *router.Router { return s.router }

// Run replays a workload, whose requests may stand in any order. It is for one
// call.
func (s *Simulation) Run(workload []trace.Request) (*Report, error) {
	if err := s.intake.take(workload); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	s.intake.limit = s.cfg.Concurrency
	for _, j := range s.intake.jobs {
		if j.waits == 0 {
			s.expect(j)
		}
	}
	for _, c := range slices.Clone(s.cfg.Changes) {
		s.agenda.add(c.At, changes, func() error { return s.change(c) })
	}
	if err := s.play(); err != nil {
		return nil, fmt.Errorf("sim: at %v: %w", s.clock.elapsed, err)
	}
	return s.report(), nil
}

// play does what is on the agenda, one moment after the other, until nothing is
// left to answer.
func (s *Simulation) play() error {
	for s.intake.left > 0 {
		at, err := s.next()
		if err != nil {
			return err
		}
		if s.cfg.Horizon > 0 && at > s.cfg.Horizon {
			s.clock.elapsed = s.cfg.Horizon
			return nil
		}
		s.clock.elapsed = at
		for {
			do, ok := s.agenda.take(at)
			if !ok {
				break
			}
			if err := do(); err != nil {
				return err
			}
		}
		if now := s.clock.Now(); !now.Before(s.router.NextTick()) {
			s.router.Tick(now)
		}
		for _, r := range s.awake {
			r.waiting = false
			if err := s.begin(r); err != nil {
				return err
			}
		}
		s.awake = s.awake[:0]
	}
	return nil
}

// patience is how long nothing but the router's own clock may move. Whoever is
// parked longer than that is never sent on.
const patience = time.Hour

// longest is how long a simulation lasts at most. Traces and settings can ask for
// more, by mistake: it would pass minute by minute, and at last overflow.
const longest = 30 * 365 * 24 * time.Hour

// next returns when something happens next.
func (s *Simulation) next() (time.Duration, error) {
	tick := s.router.NextTick().Sub(start)
	at, ok := s.agenda.next()
	switch {
	case ok && at > longest:
		return 0, fmt.Errorf("what happens next is %v after the start, and a simulation lasts %v at most", at, longest)
	case ok && (at <= tick || s.intake.running == 0): // the router has nothing to look after
		return at, nil
	case !ok && tick-s.intake.moved > patience:
		return 0, fmt.Errorf("%d requests of %d will never be answered; %d of them have come and wait in the router", s.intake.left, len(s.intake.jobs), s.intake.running)
	}
	return max(tick, s.clock.elapsed), nil
}

func (s *Simulation) change(c Change) error {
	if err := c.Do(s); err != nil {
		return fmt.Errorf("a change of the workers: %w", err)
	}
	s.router.Tick(s.clock.Now())
	return nil
}

// submit asks the router for a place for j, or for one for each of its legs.
func (s *Simulation) submit(j *job) {
	ctx, q := context.Background(), j.ask(&s.cfg)
	if s.cfg.Prefills == 0 {
		s.router.Submit(ctx, q, func(b *router.Booking, err error) { s.placed(j, whole, b, err) })
		return
	}
	s.router.SubmitPlan(ctx, q, router.Legs{}, func(p *router.Plan, err error) {
		switch {
		case err != nil:
			s.ended(j, err)
		case p.Prefill == nil:
			p.SubmitDecode(ctx, func(b *router.Booking, err error) { s.placed(j, whole, b, err) })
		default:
			j.plan = p
			s.placed(j, prefill, p.Prefill, nil)
		}
	})
}

// handOff sends a request to a decode worker, once its blocks are there.
func (s *Simulation) handOff(j *job) {
	s.agenda.add(s.clock.elapsed+s.cfg.Transfer.takes(len(j.tokens)), passes, func() error {
		j.plan.SubmitDecode(context.Background(), func(b *router.Booking, err error) { s.placed(j, decode, b, err) })
		return nil
	})
}

// placed sends a request to where the router has put it.
func (s *Simulation) placed(j *job, l leg, b *router.Booking, err error) {
	if err != nil {
		s.ended(j, err)
		return
	}
	d := b.Decision()
	j.booking, j.leg = b, l
	j.parked += d.Queue
	j.class = cmp.Or(d.Class, j.class)
	if len(j.lost) == 0 && l != decode {
		j.placed, j.predicted = s.clock.elapsed, d.CachedTokens
	}
	w := s.byID[d.Target.Worker]
	if err := s.send(j, w.ranks[d.Target.Rank]); err != nil {
		j.release()
		s.ended(j, err)
	}
}

// ended notes that a request is through, and lets those come that have waited
// for it.
func (s *Simulation) ended(j *job, err error) {
	now := s.clock.elapsed
	j.ended, j.err = now, err
	j.tokens, j.answer, j.query, j.plan = nil, nil, router.Query{}, nil
	if s.cfg.Record != nil {
		s.cfg.Record(recordOf(j))
	}
	s.intake.over(now)
	for _, d := range j.followers {
		if d.settle(now) {
			s.expect(d)
		}
	}
	j.followers = nil
	s.admit()
}

// expect puts the arrival of j on the agenda.
func (s *Simulation) expect(j *job) {
	at := j.At
	switch {
	case len(j.After) > 0:
		at = j.ready
	case s.cfg.Concurrency > 0:
		at = 0
	}
	s.agenda.add(max(at, s.clock.elapsed), arrivals, func() error {
		s.intake.arrive(j)
		s.admit()
		return nil
	})
}

// admit lets requests come as long as there is room for them.
func (s *Simulation) admit() {
	if s.admitting {
		return // a request that came has ended at once
	}
	s.admitting = true
	for j := s.intake.pop(); j != nil; j = s.intake.pop() {
		j.arrived, s.intake.moved = s.clock.elapsed, s.clock.elapsed
		s.submit(j)
	}
	s.admitting = false
}
