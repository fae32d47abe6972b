package selection

import (
	"net/http"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
)

// reservationRequest books a request: one that was selected before, by its id
// alone, or any on a worker that the dispatcher has picked itself.
type reservationRequest struct {
	selectRequest
	Worker *workerID `json:"worker_id"`
	Rank   *uint32   `json:"dp_rank"`
	// Track stands for the override of the same name, and Uncached for what the
	// index would say is left to compute.
	Track    *bool `json:"track_prefill_tokens"`
	Uncached *int  `json:"effective_prefill_tokens"`
}

// reservation says where a request is booked.
type reservation struct {
	ID       string   `json:"selection_id"`
	Model    string   `json:"model_name"`
	Group    string   `json:"routing_group"`
	Worker   workerID `json:"worker_id"`
	Rank     uint32   `json:"dp_rank"`
	Endpoint string   `json:"endpoint"`
}

// reserve books a request where it was to go. It waits for nothing: where the
// request goes is settled, and the books only say so.
func (s *Service) reserve(w http.ResponseWriter, r *http.Request) {
	var in reservationRequest
	if err := read(w, r, s.BodyLimit, &in); err != nil {
		s.refuse(w, r, err)
		return
	}
	c, err := s.settled(&in, class(r))
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	worker, err := s.place(c)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	q := *c.query
	q.PinWorker, q.PinRank, q.Settled = c.target.Worker, &c.target.Rank, true
	b, err := s.book(r.Context(), &q)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	s.mu.Lock()
	s.pending.forget(c)
	s.mu.Unlock()
	t := b.Decision().Target
	answer(w, http.StatusCreated, reservation{
		ID: q.ID, Model: c.partition.model, Group: c.partition.group,
		Worker: outer(t.Worker), Rank: t.Rank, Endpoint: s.catalog.endpoint(worker),
	})
}

// settled returns what is to be booked and where.
func (s *Service) settled(in *reservationRequest, class string) (chosen, error) {
	p := in.partition()
	if in.ID == "" {
		return chosen{}, bad("selection_id is required")
	}
	if in.Worker == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		c, ok := s.pending.get(p, in.ID, s.Now())
		if !ok {
			return chosen{}, unknown("no pending selection %s: it has expired, was booked, or was never made", clip(in.ID))
		}
		return c, nil
	}
	if in.Track == nil && in.Uncached != nil {
		in.Track = new(true)
	}
	if in.Track != nil {
		if in.Overrides == nil {
			in.Overrides = new(overrides)
		}
		in.Overrides.Track = in.Track
	}
	in.prompt.sequenceAlone = true
	q, err := s.query(&in.selectRequest, class)
	if err != nil {
		return chosen{}, err
	}
	if q.Uncached = in.Uncached; q.Uncached != nil && (*q.Uncached < 0 || *q.Uncached > q.Length()) {
		return chosen{}, bad("effective_prefill_tokens: got %d, want 0 to %d, the length of the prompt", *q.Uncached, q.Length())
	}
	s.forget(p, in.ID)
	c := chosen{partition: p, query: q}
	c.target.Worker = in.Worker.inner()
	if in.Rank != nil {
		c.target.Rank = *in.Rank
	} else if w := s.Fleet.Worker(c.target.Worker); w != nil && w.Card() != nil {
		c.target.Rank = w.Card().DPStart
	}
	return c, nil
}

// place returns the worker that a booking is for, if it can have one.
func (s *Service) place(c chosen) (*fleet.Worker, error) {
	w := s.Fleet.Worker(c.target.Worker)
	if w != nil && w.Admitted() {
		if card := w.Card(); c.partition.serves(card) && c.target.Rank-card.DPStart < card.Ranks() {
			return w, nil
		}
	}
	return nil, unknown("schedulable worker %d (dp_rank %d) not found for model %s in group %s",
		outer(c.target.Worker), c.target.Rank, clip(c.partition.model), clip(c.partition.group))
}

// forget drops the selection of an id that is booked otherwise.
func (s *Service) forget(p partition, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending.drop(pendingKey{p, id})
}

// booked returns the booking that a request's path names.
func (s *Service) booked(r *http.Request) (*router.Booking, error) {
	id := r.PathValue("id")
	if err := checkID("reservation id", id); err != nil {
		return nil, err
	}
	return s.Router.Booked(id)
}

// prefillComplete hears that the first token has come. A dispatcher that knows how
// much of the prompt was cached may say so, which tells how true the view of that
// worker's cache is.
func (s *Service) prefillComplete(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Cached *int `json:"cached_tokens"`
	}
	b, err := s.bookedWith(w, r, &in)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if in.Cached != nil {
		b.Cached(*in.Cached)
	}
	b.Prefilled()
	done(w)
}

// outputBlock hears that the answer takes one more block.
func (s *Service) outputBlock(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Decay *float64 `json:"decay_fraction"`
	}
	b, err := s.bookedWith(w, r, &in)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if in.Decay != nil && !(*in.Decay >= 0 && *in.Decay <= 1) {
		s.refuse(w, r, bad("decay_fraction: got %v, want a number from 0 to 1", *in.Decay))
		return
	}
	b.OutputBlock(in.Decay)
	done(w)
}

// free ends a booking. Unless the query says otherwise the answer has come to its
// end.
func (s *Service) free(w http.ResponseWriter, r *http.Request) {
	b, err := s.booked(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	switch outcome := r.URL.Query().Get("outcome"); outcome {
	case "", "completed":
		b.Completed()
	case "failed":
		b.Failed()
	case "abandoned":
	default:
		s.refuse(w, r, bad("outcome: got %s, want completed, failed or abandoned", clip(outcome)))
		return
	}
	b.Release()
	done(w)
}

// bookedWith is booked for a request that may have a body.
func (s *Service) bookedWith(w http.ResponseWriter, r *http.Request, in any) (*router.Booking, error) {
	const small = 4 << 10
	if r.ContentLength != 0 {
		if err := read(w, r, small, in); err != nil {
			return nil, err
		}
	}
	return s.booked(r)
}
