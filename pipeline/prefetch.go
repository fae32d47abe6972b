package pipeline

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/router"
)

// mostPrefetches is how many prefetches can be asked about, of some 200 bytes each.
const mostPrefetches = 4096

// PrefetchRequest asks that what is cached of a prompt in lower tiers be brought up
// where the prompt will be computed.
type PrefetchRequest struct {
	// Chat is the prompt, as it would be sent. With Hashes it names the model alone.
	Chat      *chat.Request
	Hashes    []kv.SeqHash // of whole blocks, from the root
	Namespace kv.Namespace
	Session   string        // whose worker is meant; "": none
	Worker    uint64        // 0: that of the session, or where the prompt would go
	Target    kv.Tier       // device or host
	In        time.Duration // until the blocks are needed; 0: soon
	Tenant    string        // who alone may ask about it
}

// Prefetch is one that was begun, and how far it has come.
type Prefetch struct {
	Worker uint64
	engine.PrefetchState
}

// prefetches are those that can be asked about. It is safe for concurrent use.
type prefetches struct {
	mu    sync.Mutex
	known map[string]*begunPrefetch
	order []string // as they were begun

	begun, refused, cancelled int64
	hinted, unheard           int64 // requests that said when the next one comes
}

// begunPrefetch is a prefetch at the worker that does it.
type begunPrefetch struct {
	tenant string
	worker *fleet.Worker
	id     string // that the engine gave it
}

// add makes a prefetch known, and returns its name.
func (s *prefetches) add(b begunPrefetch) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	for name, known := range s.known {
		if *known == b { // the engine knew it already
			return name
		}
	}
	if s.known == nil {
		s.known = map[string]*begunPrefetch{}
	}
	name := "pf_" + rand.Text()
	s.known[name] = &b
	if s.order = append(s.order, name); len(s.order) > mostPrefetches {
		s.forgetLocked()
	}
	return name
}

// forgetLocked forgets the eldest prefetch of the tenant that has most. The lock must be
// held.
func (s *prefetches) forgetLocked() {
	of, most := map[string]int{}, ""
	for _, b := range s.known {
		if of[b.tenant]++; of[b.tenant] > of[most] {
			most = b.tenant
		}
	}
	i := slices.IndexFunc(s.order, func(name string) bool { return s.known[name].tenant == most })
	delete(s.known, s.order[i])
	s.order = slices.Delete(s.order, i, i+1)
}

// of returns a tenant's prefetch.
func (s *prefetches) of(tenant, name string) (*begunPrefetch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.known[name]
	if b == nil || b.tenant != tenant {
		return nil, noPrefetch(name)
	}
	return b, nil
}

func (s *prefetches) count(of *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*of++
}

func noPrefetch(name string) error {
	return &engine.Error{Kind: engine.NotFound, Message: "There is no prefetch " + name + ", or it is over and forgotten", Param: "id", Code: "prefetch_not_found"}
}

// Prefetch begins to bring up what is cached of a prompt. It is advice: what it does
// not do, the request does that needs the blocks. The error is of kind unsupported if
// no worker of the model can prefetch.
func (p *Pipeline) Prefetch(ctx context.Context, q *PrefetchRequest) (Prefetch, error) {
	f, err := p.prefetch(ctx, q)
	if err != nil {
		p.fetched.count(&p.fetched.refused)
	}
	return f, err
}

func (p *Pipeline) prefetch(ctx context.Context, q *PrefetchRequest) (f Prefetch, err error) {
	serving, card, err := p.serves(q.Chat.Model)
	if err != nil {
		return f, err
	}
	able := p.prefetchers(card.Model)
	if len(able) == 0 {
		return f, unableToPrefetch("no worker of model %s can prefetch", card.Model)
	}
	r := adapted(&Request{Chat: q.Chat, Tenant: q.Tenant, Identity: nvext.Identity{Key: q.Session}, Notes: new(Notes), KV: kv.Directives{Namespace: q.Namespace}}, card)
	var ids []uint32
	if q.Hashes == nil {
		if ids, err = p.tokens(r, serving, card); err != nil {
			return f, err
		}
	}
	look := r.query(ids)
	look.Allow, look.Advisory = able, true
	if look.PinWorker = q.Worker; q.Worker != 0 && !slices.Contains(able, q.Worker) {
		return f, unableToPrefetch("worker %d does not serve model %s, or cannot prefetch", q.Worker, card.Model)
	}
	if q.Hashes != nil {
		look.Hashes = &router.Hashes{Seq: q.Hashes, Tokens: len(q.Hashes) * int(max(1, card.BlockSize))}
	}
	d, err := p.Router.Advise(ctx, look)
	if err != nil {
		return f, err
	}
	w := p.worker(d.Target.Worker)
	if w == nil {
		return f, engine.Errorf(engine.Unavailable, "worker %d has left", d.Target.Worker)
	}
	e, err := prefetcher(w)
	if err != nil {
		return f, err
	}
	ask := engine.PrefetchRequest{Namespace: r.KV.Namespace, TokenIDs: ids, Hashes: q.Hashes, Target: q.Target, In: q.In}
	if w.Card().Ranks() > 1 {
		ask.Rank = &d.Target.Rank
	}
	f.Worker = w.ID()
	if f.PrefetchState, err = e.Prefetch(ctx, ask); err != nil {
		return f, err
	}
	f.ID = p.fetched.add(begunPrefetch{q.Tenant, w, f.ID})
	return f, nil
}

// tokens returns the ids of the prompt that a request would have.
func (p *Pipeline) tokens(r *Request, worker *fleet.Worker, card *engine.Card) ([]uint32, error) {
	if doorOf(card) == engine.InputChat {
		return nil, noTokens(card)
	}
	m, err := p.loadFor(worker, card)
	if err != nil {
		return nil, err
	}
	v, err := p.view(r, m, card.Model)
	if err != nil {
		return nil, err
	}
	return m.Tokens(v.chat, true)
}

// prefetchers returns the workers of a model that can prefetch.
func (p *Pipeline) prefetchers(model string) (ids []uint64) {
	for _, w := range p.Fleet.Snapshot() {
		if card := w.Card(); card != nil && card.Model == model && w.Ready() && card.Features.Has(engine.FeaturePrefetch) {
			ids = append(ids, w.ID())
		}
	}
	return ids
}

// worker returns the worker of an id, or nil.
func (p *Pipeline) worker(id uint64) *fleet.Worker {
	for _, w := range p.Fleet.Snapshot() {
		if w.ID() == id {
			return w
		}
	}
	return nil
}

func unableToPrefetch(format string, args ...any) error {
	e := engine.Errorf(engine.Unsupported, format, args...)
	e.Message += ": prefetches want an engine with tiers of cache below its device, whose card says so"
	return e
}

// prefetcher returns a worker's engine as one that can prefetch.
func prefetcher(w *fleet.Worker) (engine.Prefetcher, error) {
	e, ok := engine.As[engine.Prefetcher](w.Engine())
	if card := w.Card(); !ok || card == nil || !card.Features.Has(engine.FeaturePrefetch) {
		return nil, unableToPrefetch("worker %s cannot prefetch", w.Name())
	}
	return e, nil
}

// PrefetchState says how far a tenant's prefetch has come. One that is not known, or
// not known any more, is an error of kind not_found.
func (p *Pipeline) PrefetchState(ctx context.Context, tenant, name string) (Prefetch, error) {
	b, err := p.fetched.of(tenant, name)
	if err != nil {
		return Prefetch{}, err
	}
	e, err := prefetcher(b.worker)
	if err != nil {
		return Prefetch{}, err
	}
	state, err := e.PrefetchState(ctx, b.id)
	if engine.KindOf(err) == engine.NotFound {
		return Prefetch{}, noPrefetch(name)
	}
	state.ID = name
	return Prefetch{b.worker.ID(), state}, err
}

// CancelPrefetch ends a tenant's prefetch, and says how far it has come. It is no
// error if it has ended.
func (p *Pipeline) CancelPrefetch(ctx context.Context, tenant, name string) (Prefetch, error) {
	b, err := p.fetched.of(tenant, name)
	if err != nil {
		return Prefetch{}, err
	}
	e, err := prefetcher(b.worker)
	if err != nil {
		return Prefetch{}, err
	}
	if err := e.CancelPrefetch(ctx, b.id); engine.KindOf(err) == engine.NotFound {
		return Prefetch{}, noPrefetch(name)
	} else if err != nil {
		return Prefetch{}, err
	}
	p.fetched.count(&p.fetched.cancelled)
	return p.PrefetchState(ctx, tenant, name)
}

// PrefetchCounts are what became of prefetches that clients asked for, and of hints
// when the next request of a session comes: workers that can prefetch are told of
// them, and others are not asked for anything.
type PrefetchCounts struct {
	Begun, Refused, Cancelled int64
	Hinted, Unheard           int64
}

// hint counts when a request says that the next one comes, to a worker of this card.
func (s *prefetches) hint(r *Request, card *engine.Card) {
	switch {
	case r.KV.NextIn == 0:
	case card != nil && card.Features.Has(engine.FeaturePrefetch):
		s.count(&s.hinted)
	default:
		s.count(&s.unheard)
	}
}

// Prefetches tells what became of prefetches so far.
func (p *Pipeline) Prefetches() PrefetchCounts {
	s := &p.fetched
	s.mu.Lock()
	defer s.mu.Unlock()
	return PrefetchCounts{s.begun, s.refused, s.cancelled, s.hinted, s.unheard}
}
