package sim

import (
	"math"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
)

// rank is one core and the pass that it is in.
type rank struct {
	worker *worker
	number uint32
	core   *mock.Core
	events uint64 // number of the last one told in this life

	waiting bool          // to be started when the moment is over
	alarm   time.Duration // when it is woken next if nobody wakes it before; 0 = never
	pass    *mock.Result  // that it is in, or nil
	finish  func() error  // ends a pass of this life
	jobs    map[*job]bool

	requests, computed int // requests that have run, and what of their prompts was not cached
	preempted          int // how often a request was sent back
	busy               time.Duration
}

// send gives a request to a rank.
func (s *Simulation) send(j *job, r *rank) error {
	q := mock.Request{
		Prompt: j.tokens, Namespace: j.KV.Namespace, Generator: j, MaxTokens: len(j.answer) - j.given, Owner: j,
		Session: j.session(&s.cfg), Directives: &j.KV,
	}
	if s.cfg.PlainEngines {
		q.Directives = nil
	} else {
		q.Priority = int32(min(max(j.Priority, math.MinInt32), math.MaxInt32))
	}
	switch j.asked = j.given; j.leg {
	case prefill:
		q.MaxTokens = 1
	case decode:
		q.Received = len(j.tokens)
	}
	if _, err := r.core.Submit(s.clock.elapsed, q); err != nil {
		return err
	}
	r.jobs[j] = true
	s.wake(r)
	return nil
}

// wake lets a rank begin a pass when the moment is over, if it is in none.
func (s *Simulation) wake(r *rank) {
	if !r.waiting && r.pass == nil {
		r.waiting = true
		s.awake = append(s.awake, r)
	}
}

// begin makes the next pass of a rank, if there is something to do. What it
// stores is there at once, what it gives when it ends.
func (s *Simulation) begin(r *rank) error {
	if r.core == nil || r.pass != nil {
		return nil
	}
	now := s.clock.elapsed
	pass := r.core.Step(now)
	if err := r.tell(pass.Events); err != nil {
		return err
	}
	if err := s.spread(r); err != nil {
		return err
	}
	if pass.Idle {
		s.setAlarm(r)
		return nil
	}
	r.pass = pass
	r.busy += pass.End - now
	r.preempted += len(pass.Preempted)
	for _, a := range pass.Admitted {
		j := a.Owner.(*job)
		if j.leg == decode {
			if j.decoder == nil {
				r.requests++
			}
			j.decoder = r
			continue
		}
		if !j.ran {
			j.ran, j.admitted, j.cached, j.from, j.where = true, now, a.Cached, a.From, r
			r.requests++
			r.computed += j.Prompt.Len() - a.Cached
		}
		j.reused = max(j.reused, min(a.Cached, j.Prompt.Len()))
	}
	s.agenda.add(pass.End, passes, r.finish)
	return nil
}

// setAlarm wakes an idle rank when something happens there by itself: blocks have
// come for which a request waits.
func (s *Simulation) setAlarm(r *rank) {
	at, ok := r.core.NextWake()
	if at = max(at, s.clock.elapsed+1); !ok || r.alarm == at {
		return
	}
	r.alarm = at
	core := r.core
	s.agenda.add(at, passes, func() error {
		if r.alarm == at {
			r.alarm = 0
		}
		if r.core == core {
			s.wake(r)
		}
		return nil
	})
}

// spread lets the ranks that share tiers with r tell what it has done there.
func (s *Simulation) spread(r *rank) error {
	g := s.shared.Generation()
	if g == s.generation {
		return nil
	}
	s.generation = g
	for _, w := range s.workers {
		for _, o := range w.ranks {
			if o == r || o.core == nil {
				continue
			}
			if err := o.tell(o.core.News()); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell hands KV events to whoever listens to the worker.
func (r *rank) tell(events []kv.Event) error {
	for _, part := range kv.Cut(events) {
		first := r.events + 1
		r.events += uint64(len(part))
		b := kv.Batch{Rank: r.number, Epoch: r.worker.epoch, First: first, Last: r.events, Events: part}
		if err := r.worker.reporter.Events(b); err != nil {
			return err
		}
	}
	return nil
}

// finish ends a pass of a rank: its tokens come.
func (s *Simulation) finish(r *rank) error {
	pass := r.pass
	r.pass = nil
	for i := range pass.Outputs {
		s.deliver(r, &pass.Outputs[i])
	}
	s.wake(r)
	s.tellLoad(r.worker)
	return r.worker.retell()
}

// deliver does for one token what the pipeline does for an item of a stream.
func (s *Simulation) deliver(r *rank, o *mock.Output) {
	j := o.Owner.(*job)
	b := j.booking
	if o.Err != nil {
		delete(r.jobs, j)
		b.Failed()
		j.release()
		s.ended(j, o.Err)
		return
	}
	if !j.begun {
		j.begun = true
		b.Prefilled()
	}
	b.Output(1)
	if j.leg != prefill {
		if gap, again := j.token(s.clock.elapsed); again {
			s.gaps = append(s.gaps, gap)
		}
	}
	if o.Finish == engine.Running {
		return
	}
	delete(r.jobs, j)
	j.pinned = o.Pinned * r.worker.args.BlockSize
	if j.leg != decode { // it was told what to have
		b.Cached(o.Cached)
	}
	b.Completed()
	j.release()
	if j.leg == prefill {
		s.handOff(j)
		return
	}
	s.ended(j, nil)
}
