package selection

import (
	"context"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// selection says where a request should go, or goes.
type selection struct {
	ID        string   `json:"selection_id,omitzero"`
	Length    int      `json:"isl_tokens"`
	Model     string   `json:"model_name"`
	Group     string   `json:"routing_group"`
	Worker    workerID `json:"worker_id"`
	Rank      uint32   `json:"dp_rank"`
	Endpoint  string   `json:"endpoint"`
	BlockSize int      `json:"block_size"`
	Overlap   overlap  `json:"overlap"`
	// Prefill is how many tokens of the prompt are taken to be left to compute.
	Prefill      int `json:"effective_prefill_tokens"`
	DecodeBlocks int `json:"potential_decode_blocks"`
}

// overlap is what a worker has cached of a prompt, in tokens. CPU and Disk count
// what lies above them too; all are those of the best rank.
type overlap struct {
	Longest int            `json:"longest_matched"`
	GPU     int            `json:"gpu"`
	Ranks   map[string]int `json:"dp"` // on the device, by rank
	CPU     int            `json:"cpu"`
	Disk    int            `json:"disk"`
}

// add counts what one rank has cached, in blocks.
func (o *overlap) add(rank uint32, device, host, disk, blockSize int) {
	if o.Ranks == nil {
		o.Ranks = make(map[string]int)
	}
	o.Ranks[strconv.FormatUint(uint64(rank), 10)] = device * blockSize
	o.GPU = max(o.GPU, device*blockSize)
	o.CPU = max(o.CPU, (device+host)*blockSize)
	o.Disk = max(o.Disk, (device+host+disk)*blockSize)
	o.Longest = o.Disk
}

// serveSelect answers where a request should go, and books nothing. With an id the
// selection can be booked later.
func (s *Service) serveSelect(w http.ResponseWriter, r *http.Request) {
	var in selectRequest
	q, err := s.asked(w, r, &in)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	for range mostTries {
		d, err := s.Router.Advise(r.Context(), q)
		s.selected(r, router.DecisionSpans{Request: in.ID, Decision: d, Advice: true}, err)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		out, there := s.tell(r.Context(), &in, q, d)
		if !there {
			continue
		}
		if in.ID != "" {
			s.mu.Lock()
			s.pending.put(chosen{in.partition(), q, d.Target}, s.Now())
			s.mu.Unlock()
		}
		answer(w, http.StatusOK, out)
		return
	}
	s.refuse(w, r, errAllLeave)
}

// mostTries is how often a worker is chosen again because the one before has left
// meanwhile.
const mostTries = 8

var errAllLeave = engine.Errorf(engine.Unavailable, "one worker after another leaves as it is chosen")

// selectAndReserve answers where a request goes, which is booked there. It may
// have to wait for room.
func (s *Service) selectAndReserve(w http.ResponseWriter, r *http.Request) {
	var in selectRequest
	q, err := s.asked(w, r, &in)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if in.ID == "" {
		in.ID = uuid.NewString()
		q.ID = in.ID
	}
	for range mostTries {
		b, err := s.book(r.Context(), q)
		if err != nil {
			s.selected(r, router.DecisionSpans{Request: in.ID}, err)
			s.refuse(w, r, err)
			return
		}
		s.selected(r, router.DecisionSpans{Request: in.ID, Decision: b.Decision()}, nil)
		if out, there := s.tell(r.Context(), &in, q, b.Decision()); there {
			s.forget(in.partition(), in.ID)
			answer(w, http.StatusOK, out)
			return
		}
		b.Release()
	}
	s.refuse(w, r, errAllLeave)
}

// asked reads a request and makes it a query.
func (s *Service) asked(w http.ResponseWriter, r *http.Request, in *selectRequest) (*router.Query, error) {
	if err := read(w, r, s.BodyLimit, in); err != nil {
		return nil, err
	}
	return s.query(in, class(r))
}

// book books a request, for which it may wait. If the client has left by then,
// the booking is given back: nobody knows of it.
func (s *Service) book(ctx context.Context, q *router.Query) (*router.Booking, error) {
	b, err := s.Router.Book(ctx, q)
	if err != nil {
		return nil, engine.CauseOf(ctx, err)
	}
	if ctx.Err() != nil {
		b.Release()
		return nil, engine.CauseOf(ctx, ctx.Err())
	}
	return b, nil
}

// tell makes the answer of a decision. It is false if the worker has left since.
func (s *Service) tell(ctx context.Context, in *selectRequest, q *router.Query, d router.Decision) (_ selection, there bool) {
	p := in.partition()
	out := selection{
		ID: in.ID, Length: q.Length(), Model: p.model, Group: p.group,
		Worker: outer(d.Target.Worker), Rank: d.Target.Rank,
		Prefill: q.Length() - d.CachedTokens, DecodeBlocks: d.DecodeBlocks,
	}
	w := s.Fleet.Worker(d.Target.Worker)
	if w == nil || w.Card() == nil {
		return out, false
	}
	out.Endpoint = s.catalog.endpoint(w)
	card := w.Card()
	out.BlockSize = int(card.BlockSize)
	if card.Ranks() > 1 {
		s.others(ctx, q, d.Target, &out.Overlap)
	}
	out.Overlap.add(d.Target.Rank, d.Device, d.Host, d.Disk, out.BlockSize)
	return out, true
}

// others adds what the other ranks of the worker have cached.
func (s *Service) others(ctx context.Context, q *router.Query, t kv.Target, o *overlap) {
	every := *q
	every.PinWorker, every.PinRank, every.Allow = 0, nil, []uint64{t.Worker}
	rows, err := s.Router.Explain(ctx, &every)
	if err != nil {
		return // it is not ready any more; what was decided stands
	}
	for _, row := range rows {
		if row.Target != t {
			o.add(row.Target.Rank, row.Device, row.Host, row.Disk, row.BlockSize)
		}
	}
}
