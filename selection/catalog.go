package selection

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kvevent"
)

// catalog holds the workers that were registered, and lets those that are complete
// join the fleet.
type catalog struct {
	service *Service
	// changing is held by the one who changes something, also while it waits for a
	// worker to leave.
	changing sync.Mutex

	mu      sync.Mutex
	records map[uint64]*registered // by id in the fleet
}

// registered is a worker of the catalog. It is replaced as a whole.
type registered struct {
	worker
	reasons []string             // it is not complete
	engine  *external            // nil then
	heard   kvevent.SourceConfig // what engine listens to
	leaving bool
}

func (c *catalog) get(id uint64) *registered {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records[id]
}

func (c *catalog) put(id uint64, r *registered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records[id] = r
}

// upsert registers a worker, or gives one that is registered other details. What
// was booked on it, and what is known of its caches, stays as far as it can.
func (c *catalog) upsert(ctx context.Context, w worker) (record, error) {
	if err := w.check(); err != nil {
		return record{}, err
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	if err := c.admit(&w); err != nil {
		return record{}, err
	}
	return c.become(ctx, w)
}

// patch changes details of a worker.
func (c *catalog) patch(ctx context.Context, id workerID, d *details) (record, error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	old := c.get(id.inner())
	if old == nil {
		return record{}, c.nobody(id)
	}
	w := old.worker
	w.details.patch(d)
	if err := w.check(); err != nil {
		return record{}, err
	}
	return c.become(ctx, w)
}

// remove lets a worker leave, and with it all that is booked there.
func (c *catalog) remove(id workerID) (record, error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	old := c.get(id.inner())
	if old == nil {
		return record{}, c.nobody(id)
	}
	c.put(id.inner(), &registered{worker: old.worker, reasons: old.reasons, leaving: true})
	c.service.Fleet.Remove(id.inner())
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.records, id.inner())
	return record{worker: old.worker, Lifecycle: unschedulable}, nil
}

// nobody says that there is no such worker, or none that could be changed here.
func (c *catalog) nobody(id workerID) error {
	if c.service.Fleet.Worker(id.inner()) != nil {
		return conflict("worker %d belongs to this process and was not registered here; it cannot be changed", id)
	}
	return unknown("worker %d not found", id)
}

// admit says whether there is a place for a worker.
func (c *catalog) admit(w *worker) error {
	if c.service.OwnWorkers {
		return conflict("the workers of this server are its own; \"dynago router\" is a service that workers register with")
	}
	id := w.ID.inner()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records[id] == nil {
		if c.service.Fleet.Worker(id) != nil {
			return c.nobody(w.ID)
		}
		if len(c.records) >= c.service.MostWorkers {
			return &fault{http.StatusTooManyRequests, fmt.Sprintf("%d workers are registered, and more than that are not taken", len(c.records))}
		}
	}
	for _, o := range c.records {
		if p := o.partition(); p != w.partition() && p.name() == w.partition().name() {
			return conflict("model %s in group %s would be called as model %s in group %s is", clip(w.Model), clip(w.Group), clip(p.model), clip(p.group))
		}
	}
	return nil
}

// become makes w the registration of its id, and the fleet follow.
func (c *catalog) become(ctx context.Context, w worker) (record, error) {
	s, id := c.service, w.ID.inner()
	old := c.get(id)
	next := &registered{worker: w, reasons: w.missing(s.KVEvents, s.Router.NeedsCapacity(w.partition().name()))}
	if len(next.reasons) > 0 {
		c.put(id, next)
		if old != nil && old.engine != nil {
			s.Fleet.Remove(id)
		}
		return c.record(next), nil
	}
	heard, listens := w.listening()
	listens = listens && s.KVEvents
	stays := old != nil && old.engine != nil && old.partition() == w.partition()
	same := stays && sameSource(old.heard, heard)
	var source *kvevent.Source
	if listens && !same {
		heard.Log = s.Logger.With("worker", w.ID)
		var err error
		if source, err = kvevent.NewSource(heard); err != nil {
			return record{}, bad("KV events: %v", err)
		}
	}
	card := w.card(listens)
	next.heard = heard
	if stays {
		next.engine = old.engine
		next.engine.become(card, source, same)
	} else {
		if old != nil && old.engine != nil {
			s.Fleet.Remove(id)
		}
		next.engine = newExternal(card, source)
		if _, err := s.Fleet.Add(fleet.Entry{Name: fmt.Sprintf("worker-%d", w.ID), Engine: next.engine, ID: id}); err != nil {
			return record{}, &fault{http.StatusServiceUnavailable, err.Error()}
		}
	}
	c.put(id, next)
	c.await(ctx, id, card)
	return c.record(next), nil
}

// await waits until the fleet has heard of a card, so that who has registered a
// worker can use it.
func (c *catalog) await(ctx context.Context, id uint64, card *engine.Card) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		changed := c.service.Fleet.Changed()
		w := c.service.Fleet.Worker(id)
		if w == nil || w.Card() == card {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// record tells what is known of a registered worker.
func (c *catalog) record(r *registered) record {
	out := record{worker: r.worker, Lifecycle: incomplete, Reasons: r.reasons}
	if r.engine != nil {
		for _, rank := range r.engine.stats() {
			out.Streams = append(out.Streams, stream{
				Rank: rank.Rank, Connected: rank.Connected, Messages: rank.Order.Live + rank.Order.Replayed,
				Gaps: rank.Order.Gaps, Restarts: rank.Order.Restarts, Partial: rank.Order.Partial,
			})
		}
	}
	switch {
	case r.leaving:
		out.Lifecycle = draining
	case len(r.reasons) == 0:
		out.Lifecycle, out.Reasons = lifecycleOf(c.service.Fleet.Worker(r.ID.inner()))
	}
	return out
}

// lifecycleOf returns that of a worker of the fleet.
func lifecycleOf(w *fleet.Worker) (lifecycle, []string) {
	if w == nil {
		return unschedulable, []string{"it has left"}
	}
	status := w.Status()
	reasons := func(otherwise string) []string { return []string{cmp.Or(status.Reason, otherwise)} }
	switch {
	case status.State == engine.Draining:
		return draining, nil
	case status.State == engine.Loading:
		return incomplete, reasons("it has not told what it is yet")
	case status.State == engine.Failed:
		return unschedulable, reasons("it has failed")
	case status.State == engine.Suspect, status.State == engine.Dead:
		return unschedulable, reasons("it does not answer")
	case !w.Admitted():
		return incomplete, []string{"its context length is not known"}
	case !w.Ready():
		return unschedulable, []string{"it has failed requests just now"}
	case w.Overloaded():
		return unschedulable, []string{"it has refused a request because it was full"}
	}
	return schedulable, nil
}

// list returns all workers in the order of their ids: those that are registered,
// and those that the fleet has besides. Empty names are all.
func (c *catalog) list(model, group string) []record {
	c.mu.Lock()
	known := maps.Clone(c.records)
	c.mu.Unlock()
	out := make([]record, 0, len(known))
	for _, r := range known {
		out = append(out, c.record(r))
	}
	for _, w := range c.service.Fleet.Snapshot() {
		if known[w.ID()] == nil {
			out = append(out, ownRecord(w))
		}
	}
	out = slices.DeleteFunc(out, func(r record) bool {
		return model != "" && r.Model != model || group != "" && r.Group != group
	})
	slices.SortFunc(out, func(a, b record) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// ownRecord tells what is known of a worker that was not registered.
func ownRecord(w *fleet.Worker) record {
	r := record{worker: worker{ID: outer(w.ID()), Group: defaultGroup}}
	r.Endpoint = new(w.Name())
	r.Lifecycle, r.Reasons = lifecycleOf(w)
	card := w.Card()
	if card == nil {
		return r
	}
	r.Model = card.Model
	r.BlockSize, r.DPStart, r.DPSize = &card.BlockSize, &card.DPStart, new(card.Ranks())
	r.ContextLength = &card.ContextLength
	if card.MaxBatchedTokens > 0 {
		r.MaxBatchedTokens = &card.MaxBatchedTokens
	}
	if card.TotalBlocks > 0 {
		r.TotalBlocks = &card.TotalBlocks
	}
	r.Eagle = new(card.HashScheme == engine.SchemeXXH3Eagle)
	r.Taints, r.Topology = card.Taints, card.Topology
	return r
}

// endpoint returns where requests for a worker go.
func (c *catalog) endpoint(w *fleet.Worker) string {
	if r := c.get(w.ID()); r != nil {
		return value(r.Endpoint, "")
	}
	return w.Name()
}

// pools returns the block sizes of a partition's workers, and whether they are
// Eagle's, each pair once.
func (c *catalog) pools(p partition) []pool {
	var out []pool
	for _, w := range c.service.Fleet.Snapshot() {
		card := w.Card()
		if !p.serves(card) || card.BlockSize == 0 {
			continue
		}
		if own := (pool{int(card.BlockSize), card.HashScheme == engine.SchemeXXH3Eagle}); !slices.Contains(out, own) {
			out = append(out, own)
		}
	}
	return out
}

// pool is how workers cut prompts into blocks.
type pool struct {
	blockSize int
	eagle     bool
}
