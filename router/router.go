// Package router decides where a request runs. It knows which worker holds how
// much of the prompt, and what it has itself sent to each of them; it knows
// neither HTTP nor any wire format.
//
// The one idea: a decision is made over rows. Every rank of every worker that
// may serve the request becomes a [Candidate] that says what is cached there
// and what is going on there; a [Policy] picks a row; the pick becomes a
// [Booking], which keeps the books true until it is released.
//
//	Query ── eligible ── hashes ── index ── load ── cost ── Policy ── Booking
package router

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// Router routes requests to the workers of one fleet. Its methods may be called
// from any goroutine.
type Router struct {
	fleet    *fleet.Fleet
	index    *kvindex.Index
	strays   strays // what it cannot take yet
	memo     *kv.Memo
	tuning   Tuning
	log      *slog.Logger
	now      func() time.Time
	policy   Policy
	observer Observer // or nil
	// learner is the policy, if it learns; else nil.
	learner Learner
	// affinity stands before what decides where there are sessions.
	affinity    *affinity
	conditional *Conditional
	watchful    atomic.Bool // some model has thresholds
	// serial says that the policy is one of ours, which picks under the lock, so
	// that of two requests at the same moment the second sees the first.
	serial  bool
	minimum int         // workers that must have been there once
	begun   atomic.Bool // they have

	tracking     *kv.TrackingKey // of the books' hashes; nil if they are no secret
	shared       SharedCache     // or nil
	sharedErrors atomic.Uint64
	asked        atomic.Uint64
	intake       intake
	wipings      wipings

	expiry time.Duration // of requests of which nothing is heard
	// prefillModel, if not nil, lets outstanding prefill shrink as time passes.
	prefillModel PrefillModel

	parks     bool // requests may have to wait
	policies  *PolicyFile
	threshold *float64
	order     QueueOrder
	patience  time.Duration // of those who wait; 0: endless
	waits     atomic.Int64  // how many wait
	// sooner tells Run that it is wanted sooner than it thinks.
	sooner chan struct{}

	mu       sync.Mutex
	books    books
	waiting  waiting
	requests map[string]*Booking // by id; nil while they are being placed
	// How many of them there may be, and the blocks of their prompts.
	mostBooked, bookedBlocks int
	nextSweep                time.Time
	lastTick                 time.Time
	monitor                  *monitor
	prefilled                map[string]bool // models of which prefill workers have been seen
	routed                   *kvindex.Routed
	// ahead is what workers will tell of, if they are predicted; instead is what was
	// routed to workers that are not believed, or have more than the index knows. It
	// is nil until there is one.
	ahead   *guess
	instead atomic.Pointer[guess]
	watch   *watch
	rand    *rand.Rand
	counted Counters

	crews   atomic.Pointer[crews]
	scratch sync.Pool // of *scratch
}

// Counters are what a router has done since its start.
type Counters struct {
	Asked     uint64 // requests that came, whatever became of them
	Decisions uint64 // bookings made
	Refused   uint64 // requests for which there was no worker
	// NonMaxOverlap counts bookings elsewhere than where most was cached, and
	// OverlapBlocksLost the blocks that cost, summed up.
	NonMaxOverlap     uint64
	OverlapBlocksLost float64
	Expired           uint64 // requests of which nothing was heard for too long
	Parked            uint64 // requests that had to wait
	QueueTimeouts     uint64 // those that waited in vain
	// SharedErrors counts prompts for which the shared cache had no answer.
	SharedErrors uint64
}

// memoBytes bounds the hashes of earlier prompts: those of some 250 prompts of
// 60,000 tokens in blocks of 16.
const memoBytes = 16 << 20

// New makes a router for a fleet without workers, and makes it hear their KV
// events.
func New(c Config, f *fleet.Fleet) (*Router, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	tuning := DefaultTuning()
	switch {
	case c.Tuning != nil:
		tuning = *c.Tuning
	case c.SessionTTL != 0:
		Binding(&tuning)
	}
	seed := c.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	r := &Router{
		fleet:   f,
		index:   kvindex.New(),
		memo:    kv.NewMemo(memoBytes),
		tuning:  tuning,
		log:     c.Logger,
		now:     c.Now,
		policy:  c.Policy,
		expiry:  cmp.Or(c.Expiry, DefaultExpiry),
		minimum: c.MinInitialWorkers,

		tracking: c.Tracking,
		shared:   c.Shared,
		rand:     rand.New(rand.NewPCG(seed, 0)),
		requests: make(map[string]*Booking), mostBooked: cmp.Or(c.MostBooked, DefaultMostBooked),

		prefillModel: c.PrefillModel,

		parks:     c.QueueThreshold != nil || c.PolicyFile != nil,
		policies:  c.PolicyFile,
		threshold: c.QueueThreshold,
		order:     cmp.Or(c.QueueOrder, FCFS),
		patience:  c.QueueTimeout,
		waiting:   waiting{rooms: make(map[roomKey]*waitingRoom)},
		sooner:    make(chan struct{}, 1),

		monitor:   newMonitor(c.Thresholds),
		prefilled: make(map[string]bool),
	}
	r.conditional, _ = c.Conditional.with(c.QueueThreshold) // valid, as was seen
	r.watchful.Store(!r.monitor.idle())
	if r.now == nil {
		r.now = time.Now
	}
	r.nextSweep = r.now().Add(sweepEvery)
	r.affinity = newAffinity(c.SessionTTL, c.StrictSessions, r.now, r.submit)
	r.affinity.direct = c.Mode == Direct && c.Policy == nil
	r.routed = kvindex.NewRouted(r.index, tuning.TTL)
	if tuning.PredictedTTL > 0 {
		r.ahead = newGuess(tuning.PredictedTTL)
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.watch = newWatch(r.index, r.log)
	r.intake.log, r.intake.full = r.log, make(map[kv.Target]*fullness)
	r.observer = c.Observer
	r.learner, _ = r.policy.(Learner)
	if r.policy == nil {
		r.policy, r.serial = builtin(cmp.Or(c.Mode, KV), tuning.Temperature, r.rand), true
		if p, ok := r.policy.(deviceAware); ok {
			p.ratio = cmp.Or(c.AcceleratorRatio, p.ratio)
			r.policy = p
		}
	} else {
		r.serial = isQuick(r.policy)
	}
	r.scratch.New = func() any { return new(scratch) }
	if err := f.Subscribe(feed{r}); err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return r, nil
}

// Route picks a worker for a request and books the request there. The caller
// must release the booking when the request has ended, however it ended. While
// all workers are busy the request may have to wait, as long as ctx lasts; see
// [Config.QueueThreshold].
//
// Errors are of these kinds: not_found for a model nobody serves, unavailable
// if its workers cannot take the request now, resource_exhausted if they are all
// full, worker_overloaded if the pinned one is, invalid_argument for what can
// never be served, internal for a policy that failed.
func (r *Router) Route(ctx context.Context, q *Query) (*Booking, error) {
	if r.binds(q) {
		return await(func(done func(*Booking, error)) { r.Submit(ctx, q, done) })
	}
	r.asked.Add(1)
	return r.route(ctx, q)
}

// place finds a worker for a request that came at start. If it has to wait, it is
// parked with what done returns, and the error is [errParked]; one that has
// waited already does not do so again.
func (r *Router) place(ctx context.Context, q *Query, start time.Time, done func() func(*Booking, error), waited *parked) (*Booking, error) {
	s := r.scratch.Get().(*scratch)
	defer r.recycle(s)
	r.mu.Lock()
	r.expire(start)
	r.mu.Unlock()
	for range mostTries {
		if err := r.consider(ctx, q, s); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, engine.CauseOf(ctx, ctx.Err())
		}
		if b, err := r.decide(ctx, q, s, start, done, waited); b != nil || err != nil {
			return b, err
		}
	}
	r.refuse()
	return nil, notReady(q.Model)
}

// mostTries is how often a decision is made again because the worker was lost
// meanwhile.
const mostTries = 8

// decide picks one of the rows of s and books it. It returns nothing if the
// worker was lost since it was considered.
func (r *Router) decide(ctx context.Context, q *Query, s *scratch, start time.Time, done func() func(*Booking, error), waited *parked) (*Booking, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.weigh(q, s, now)
	var class *Class
	if waited != nil {
		class = waited.Class
	} else {
		var err error
		if class, err = r.park(ctx, q, s, now, done); err != nil {
			return nil, err
		}
	}
	choice, err := r.choose(ctx, q, s)
	if err != nil {
		return nil, err
	}
	// If its life ends from here on, it is forgotten after this, and all that is
	// noted here with it.
	if s.sides[choice].life.Err() != nil {
		r.crews.Store(nil) // before the fleet says so
		return nil, nil
	}
	if !q.pinned() {
		r.compare(s, choice)
	}
	b := r.book(q, s, choice, now)
	if waited != nil {
		b.decision.Queue = start.Sub(waited.since)
	}
	if class != nil {
		b.decision.Class = class.Name
	}
	b.decision.Waiting = r.backlog(s, q)
	b.decision.Routing = r.now().Sub(start)
	if r.observer != nil {
		r.tell(b, q, s, choice)
	}
	if r.log.Enabled(ctx, slog.LevelDebug) {
		r.log.Debug("routed", "request", q.ID, "model", b.decision.Model, "target", b.decision.Target.String(),
			"overlap", b.decision.Overlap, "blocks", b.decision.Blocks, "cost", s.rows[choice].Cost, "candidates", len(s.rows))
	}
	return b, nil
}

// refuse counts a request for which there is no worker.
func (r *Router) refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counted.Refused++
}

// expire forgets prompts that were routed too long ago to count as cached. The
// lock must be held.
func (r *Router) expire(now time.Time) {
	r.routed.Expire(now)
	r.ahead.expire(now)
	r.instead.Load().expire(now)
}

// Counters returns what was counted so far.
func (r *Router) Counters() Counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counted
	c.SharedErrors, c.Asked = r.sharedErrors.Load(), r.asked.Load()
	return c
}

// IndexStats tells what the index of KV blocks holds.
func (r *Router) IndexStats() kvindex.Stats { return r.index.Stats() }

// TargetLoad is what a router has booked on one rank, and knows to be cached
// there.
type TargetLoad struct {
	Target        kv.Target
	Role          engine.Role
	Requests      int
	ActiveBlocks  int // in use by requests booked here, shared ones once
	PrefillTokens int // not yet computed
	CachedBlocks  int
}

// Loads returns the load of every rank in the fleet, in the order of the
// targets.
func (r *Router) Loads() []TargetLoad {
	var loads []TargetLoad
	now := r.now()
	r.mu.Lock()
	for _, w := range r.fleet.Snapshot() {
		card := w.Card()
		if card == nil {
			continue
		}
		for i := range card.Ranks() {
			l := TargetLoad{Target: kv.Target{Worker: w.ID(), Rank: card.DPStart + i}, Role: card.Role}
			if b := r.books.find(l.Target); b != nil && b.life == w.Lost() {
				l.Requests, l.ActiveBlocks, l.PrefillTokens = b.requests, b.activeBlocks(), b.activePrefill(now)
			}
			loads = append(loads, l)
		}
	}
	r.mu.Unlock()
	for i := range loads {
		loads[i].CachedBlocks = r.index.Blocks(loads[i].Target)
	}
	return loads
}

// choose returns the row that a request is to go to.
func (r *Router) choose(ctx context.Context, q *Query, s *scratch) (int, error) {
	if q.pinned() {
		return 0, nil
	}
	return r.pick(ctx, q, s.rows)
}

// pick asks the policy. A policy of the user's may take its time, so the lock is
// not held meanwhile.
func (r *Router) pick(ctx context.Context, q *Query, rows []Candidate) (int, error) {
	if !r.serial {
		r.mu.Unlock()
		defer r.mu.Lock()
	}
	choice, err := r.consult(ctx, q, rows)
	if err != nil {
		if ctx.Err() != nil {
			return 0, engine.CauseOf(ctx, err)
		}
		if engine.KindOf(err) != engine.Internal {
			return 0, err
		}
		return 0, &engine.Error{Kind: engine.Internal, Op: "route: policy", Err: err}
	}
	if choice < 0 || choice >= len(rows) {
		return 0, &engine.Error{Kind: engine.Internal, Op: "route: policy", Message: fmt.Sprintf("picked row %d of %d", choice, len(rows))}
	}
	return choice, nil
}

// consult lets the policy choose. If it panics, the request fails, and no other.
func (r *Router) consult(ctx context.Context, q *Query, rows []Candidate) (choice int, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("the policy has panicked", "request", q.ID, "panic", p, "stack", string(debug.Stack()))
			err = engine.Errorf(engine.Internal, "the policy has panicked")
		}
	}()
	return r.policy.Pick(ctx, q, rows)
}

// compare counts what a choice leaves behind, in its own blocks.
func (r *Router) compare(s *scratch, choice int) {
	c := &s.rows[choice]
	size := float64(c.BlockSize)
	if lost := s.most - s.tuning.overlap(c)*size; lost > 0 {
		r.counted.NonMaxOverlap++
		r.counted.OverlapBlocksLost += lost / size
	}
}

// book makes the choice real.
func (r *Router) book(q *Query, s *scratch, choice int, now time.Time) *Booking {
	t := &s.tuning
	c, side := &s.rows[choice], &s.sides[choice]
	p := &s.prompts[side.prompt]
	r.counted.Decisions++
	b := &Booking{
		router:      r,
		worker:      c.Worker,
		decision:    s.decision(q, choice),
		id:          q.ID,
		role:        q.Role,
		placed:      now,
		heard:       now,
		prompt:      q.Length(),
		expected:    q.Expected,
		blockSize:   c.BlockSize,
		trackOutput: t.TrackActiveBlocks && t.TrackOutputBlocks,
	}
	if q.Hashes == nil && len(q.Tokens) >= kv.MemoTokens && q.Namespace == (kv.Namespace{}) && !p.eagle {
		b.names = p.seq // remembered, and so no memory of the scratch
	}
	b.load = r.books.load(c.Target, side.life)
	b.requests = max(1, q.Choices)
	if t.TrackPrefillTokens {
		b.prefill = r.predict(b.requests, q.Length()-b.decision.CachedTokens, b.decision.CachedTokens)
	}
	hashes := p.tracked
	switch {
	case !t.TrackActiveBlocks:
		hashes = nil
	case !t.AssumeKVReuse:
		hashes = make([]kv.SeqHash, len(p.tracked)) // the prompt's own are shared
		for i := range hashes {
			hashes[i] = kv.SeqHash(r.rand.Uint64())
		}
	}
	r.books.enter(b, hashes)
	r.remember(q, b, side.card, p, now)
	return b
}

// predict returns the outstanding work of a prompt that is computed so many times
// over, of which so many tokens are new and cached.
func (r *Router) predict(times, tokens, cached int) prefill {
	p := prefill{tokens: times * tokens}
	if r.prefillModel == nil || tokens == 0 {
		return p
	}
	if takes, ok := r.prefillModel.Predict(1, tokens, cached); ok && takes >= 0 {
		p.takes, p.told = time.Duration(times)*takes, true
	}
	return p
}

// remember notes what the target of a booking will have cached, where the index
// will not hear it or is not believed, and looks whether it was right before.
func (r *Router) remember(q *Query, b *Booking, card *engine.Card, p *prompt, now time.Time) {
	t, hears := b.decision.Target, r.hears(card)
	e := r.evidence(t, p)
	b.room, b.shown = room(card), e.shown
	if !hears {
		r.routed.Add(t, p.local, p.seq, b.room, now)
	} else if r.ahead != nil {
		r.ahead.routed.Add(t, p.local, p.seq, b.room, now)
	}
	if e.doubted {
		r.lack(t, now)
	}
	if g := r.instead.Load(); g.lacks(t, now) {
		b.note = &note{slices.Clone(p.local), slices.Clone(p.seq)}
	}
	// Who decodes may tell nothing of blocks that another has computed.
	b.stores = hears && e.told < len(p.local) && !q.Recompute && b.role != engine.Decode
	if !hears || !tells(q, card) {
		return
	}
	b.witness = r.watch.witness(t, p.local, e.device, e.told)
}

// tells says whether the answer to a request will show what the worker had
// cached of it.
func tells(q *Query, card *engine.Card) bool {
	switch {
	case !card.Features.Has(engine.FeatureCachedTokens):
		return false
	case q.Choices > 1: // nobody can tell which of the answers was first
		return false
	case q.Recompute:
		return false
	case q.Namespace.Salt != "" && !card.Features.Has(engine.FeatureCacheSalt),
		q.Namespace.LoRA != "" && !card.Features.Has(engine.FeatureLoRA):
		return false // what it keeps apart, we may not
	}
	return true
}

// CacheViews tells how well the index knows the caches of the fleet, of every
// target that has answered.
func (r *Router) CacheViews() []CacheView { return r.watch.all() }

// guessedRoom is how many blocks a worker caches that does not tell: 4 million
// tokens in blocks of 16, more than most have.
const guessedRoom = 1 << 18

// room is how many blocks a rank of a worker can hold.
func room(card *engine.Card) int {
	if card.TotalBlocks == 0 {
		return guessedRoom
	}
	return int(min(card.TotalBlocks, 1<<30))
}
