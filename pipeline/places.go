package pipeline

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
)

// shared is where the choices of a request run, until they move. It is found by the
// first of them, and given back when the last has left. Where the prompt is computed
// elsewhere, that place is given back as soon as the last prompt is.
type shared struct {
	once  sync.Once
	plan  *router.Plan    // nil until it is made
	first *router.Booking // of the leg that begins
	err   error           // why there is none

	second  sync.Once
	booking *router.Booking // of the leg that answers; nil until that is placed
	late    error           // why there is none

	users     atomic.Int32 // choices that have not left
	computing atomic.Int32 // choices whose prompts may yet be computed elsewhere
}

func share(users int) *shared {
	s := new(shared)
	s.users.Store(int32(users))
	s.computing.Store(int32(users))
	return s
}

// place finds the place if that was not tried yet, and says what came of it. A
// booking comes with the plan unless the leg that answers is placed later. What
// begins at the place, unless it is nil, does so when the place is known, which is
// given back however it ends.
func (s *shared) place(f *Flow, find func() (*router.Plan, *router.Booking, error), begin func(*router.Booking) error) error {
	s.once.Do(func() {
		f.route.Add(1)
		defer f.route.Add(-1)
		found := false
		defer func() {
			if !found { // it has panicked
				s.err = engine.Errorf(engine.Internal, "the request was not placed")
			}
		}()
		if s.plan, s.booking, s.err = find(); s.err == nil {
			s.first = begins(s.plan, s.booking)
			if begin != nil {
				s.err = begin(s.first)
			}
		}
		found = true
	})
	return s.err
}

// answer places the leg that answers, if that was not done yet, and returns where.
// Whoever places it notes that; the error is for all choices.
func (s *shared) answer(ctx context.Context, note func(*router.Booking)) (*router.Booking, error) {
	s.second.Do(func() {
		if s.booking != nil {
			return
		}
		s.late = engine.Errorf(engine.Internal, "the leg that answers was not placed")
		if s.booking, s.late = s.plan.Decode(ctx); s.late == nil {
			note(s.booking)
		}
	})
	if s.late != nil {
		return nil, engine.CauseOf(ctx, s.late)
	}
	return s.booking, nil
}

// computed says that a choice has its prompt, or will not have it.
func (s *shared) computed() {
	if s.computing.Add(-1) == 0 && s.plan != nil && s.plan.Prefill != nil {
		s.plan.Prefill.Release()
	}
}

func (s *shared) release() {
	if s.users.Add(-1) == 0 && s.booking != nil {
		s.booking.Release()
	}
}

// leave gives back what the choice has of its place.
func (j *job) leave() {
	if !j.computed {
		j.computed = true
		j.booking.computed()
	}
	j.booking.release()
}

// place finds a place for the job's request, unless one of its other choices has
// done so.
func (j *job) place(ctx context.Context) error {
	err := j.booking.place(&j.p.flow, func() (*router.Plan, *router.Booking, error) {
		return j.route(ctx, j.routed(nil), j.request.Chat.Sampling.Choices(), nil)
	}, func(first *router.Booking) (err error) {
		j.request.placed(j.booking.plan, j.booking.booking)
		j.works(first)
		j.p.fetched.hint(j.request, first.Worker().Card())
		j.onTerms(first)
		j.request.Notes.Degraded, err = j.enter(ctx, first)
		j.hold(first)
		return err
	})
	if err == nil {
		j.here = j.booking.first
	}
	return err
}

// begins returns the booking of the first leg.
func begins(plan *router.Plan, answer *router.Booking) *router.Booking {
	if plan.Prefill != nil {
		return plan.Prefill
	}
	return answer
}

// answering returns the card of a worker that answers the request: that of its own,
// or where that is still to be chosen, of one that may become it.
func (j *job) answering() *engine.Card {
	if j.booking.plan.Prefill == nil {
		return j.here.Worker().Card()
	}
	prefill := j.here.Worker().Card()
	for _, w := range j.p.Fleet.Snapshot() {
		if card := w.Card(); w.Ready() && card != nil && prefill != nil && card.Model == prefill.Model && answers(card) {
			return card
		}
	}
	return prefill
}

// answers says whether a worker of this card gives answers, alone or after another.
func answers(card *engine.Card) bool {
	return card.Role == engine.Aggregated || card.Role == engine.Decode
}

// disaggregator returns the worker's engine as one that computes prompts for others.
func disaggregator(w *fleet.Worker) (engine.Disaggregator, error) {
	card := w.Card()
	if card == nil {
		return nil, &engine.Error{Kind: engine.CannotConnect, Worker: w.ID(), Message: "the worker has left"}
	}
	d, ok := engine.As[engine.Disaggregator](w.Engine())
	if !ok || !card.Features.Has(engine.FeatureHandoff) {
		return nil, &engine.Error{Kind: engine.Unsupported, Worker: w.ID(), Message: "the worker's card says that it computes prompts for others, and it does not"}
	}
	return d, nil
}
