package router

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
)

// waiting is the shell around the queues: one for each model and role, so that
// one that is full keeps nobody else back. The router's lock guards it.
type waiting struct {
	rooms map[roomKey]*waitingRoom
	order []*waitingRoom // as they were made
	// Those who wait, of all rooms, in the order of since.
	oldest, newest *parked
}

type roomKey struct {
	model string
	role  engine.Role
}

// waitingRoom is where the requests for one model and role wait.
type waitingRoom struct {
	roomKey
	profile *Profile
	queue   *Queue[*parked]
	// draining says that somebody sends requests on, and again that he is to look
	// once more. There is one at a time, so that they leave in their order.
	draining, again bool
	// sending is the class of the one that is on its way out. It is still ahead of
	// those that come now.
	sending *Class
	// barred is who of each class was asked last of those that are pinned nowhere,
	// and found no worker with room.
	barred map[*Class]barring
}

// barring is a request, and the version of the fleet whose workers it was held
// against.
type barring struct {
	request *parked
	version uint64
}

// parked is a request that waits.
type parked struct {
	Item[*parked]
	room  *waitingRoom
	ctx   context.Context
	query *Query
	since time.Time // when the wait began
	done  func(*Booking, error)
	stop  func() bool // ends the watch over ctx

	older, younger *parked
}

// Submit routes a request as [Router.Route] does, and waits for nothing: done is
// called once, with no lock held, either before Submit returns or later, by
// whoever makes room; it must not wait for another request. Until then q must
// not be changed.
func (r *Router) Submit(ctx context.Context, q *Query, done func(*Booking, error)) {
	r.asked.Add(1)
	if r.binds(q) {
		r.affinity.submit(ctx, q, r.primary(q.Model), done)
		return
	}
	r.submit(ctx, q, done)
}

// binds says whether the session of a request has a say in where it goes. Work for
// which no client waits leaves sessions alone.
func (r *Router) binds(q *Query) bool {
	return q.Session.ID != "" && !q.Background && !q.Advisory && r.affinity.heeds(q)
}

// submit is Submit once the session has been heeded.
func (r *Router) submit(ctx context.Context, q *Query, done func(*Booking, error)) {
	b, err := r.place(ctx, q, r.now(), func() func(*Booking, error) { return done }, nil)
	if err == errParked {
		r.drainAt(r.landing(q))
		return
	}
	done(b, err)
}

// placed is what a request is told in the end.
type placed struct {
	booking *Booking
	err     error
}

// await is Submit, or what is like it, for one who waits.
func await(submit func(done func(*Booking, error))) (*Booking, error) {
	answer := make(chan placed, 1)
	submit(func(b *Booking, err error) { answer <- placed{b, err} })
	p := <-answer
	return p.booking, p.err
}

// route is await of submit, without a channel for those who need not wait.
func (r *Router) route(ctx context.Context, q *Query) (*Booking, error) {
	var answer chan placed
	b, err := r.place(ctx, q, r.now(), func() func(*Booking, error) {
		later := make(chan placed, 1)
		answer = later
		return func(b *Booking, err error) { later <- placed{b, err} }
	}, nil)
	if err != errParked {
		return b, err
	}
	r.drainAt(r.landing(q))
	p := <-answer
	return p.booking, p.err
}

// errParked says that a request waits, and that its done will be called.
var errParked = engine.Errorf(engine.ResourceExhausted, "the request is parked")

// classify returns where a request is to wait if there is no room, or nil if it
// does not wait whatever happens.
func (r *Router) classify(q *Query, s *scratch) (*waitingRoom, *Class, int) {
	if !r.parks || q.Background || q.Settled {
		return nil, nil, 0
	}
	room := r.room(roomKey{s.sides[0].card.Model, q.Role})
	cached := 0
	for i := range s.rows {
		cached = max(cached, s.tuning.cachedTokens(&s.rows[i]))
	}
	cached = min(cached, q.Length())
	class := room.profile.Classify(q.Class, q.Length()-cached)
	if !class.Waits() {
		return nil, nil, 0
	}
	return room, class, cached
}

// room returns the room of a model and role.
func (r *Router) room(key roomKey) *waitingRoom {
	room := r.waiting.rooms[key]
	if room == nil {
		profile := r.policies.Profile(key.model)
		if profile == nil {
			profile = DefaultProfile(r.threshold, r.order)
		}
		room = &waitingRoom{roomKey: key, profile: profile, queue: NewQueue[*parked](profile, r.now()), barred: make(map[*Class]barring)}
		r.waiting.rooms[key] = room
		r.waiting.order = append(r.waiting.order, room)
	}
	return room
}

// park lets a request wait if it has to, or says why it may not even do that. It
// does not have to if somewhere is room, and nobody of its class is ahead of it.
// It returns that class, or nil if it would not wait whatever happens.
func (r *Router) park(ctx context.Context, q *Query, s *scratch, now time.Time, done func() func(*Booking, error)) (*Class, error) {
	room, class, cached := r.classify(q, s)
	if room == nil {
		return nil, nil
	}
	if room.queue.Backlog(class) == 0 && room.sending != class && !s.busy(class) {
		return class, nil
	}
	since := now
	if !q.came.IsZero() {
		since = q.came // its patience and its place in the queue count from there
	}
	p := &parked{room: room, ctx: ctx, query: q, since: since}
	p.Item = Item[*parked]{
		Value: p, Class: class, Pinned: q.pinned(), Priority: q.Priority, StrictPriority: q.StrictPriority,
		Arrived: since, Tokens: q.Length(), Cached: cached,
	}
	if p.Pinned {
		p.Target = s.rows[0].Target
	}
	if err := room.queue.Push(&p.Item, r.serving(q), now); err != nil {
		r.counted.Refused++
		return nil, err
	}
	p.done = done()
	p.stop = context.AfterFunc(ctx, func() { r.leave(p) })
	r.waiting.add(p)
	r.counted.Parked++
	if r.waits.Add(1) == 1 && r.prefillModel != nil {
		select {
		case r.sooner <- struct{}{}:
		default: // it knows
		}
	}
	return class, errParked
}

// backlog returns how many requests wait for what a request has asked for.
func (r *Router) backlog(s *scratch, q *Query) int {
	if !r.parks {
		return 0
	}
	if room := r.waiting.rooms[roomKey{s.sides[0].card.Model, q.Role}]; room != nil {
		return room.queue.Len()
	}
	return 0
}

// serving returns how many workers there are of the model and role that are asked
// for, whatever they do just now.
func (r *Router) serving(q *Query) (n int) {
	for _, w := range r.fleet.Snapshot() {
		if serves(w.Card(), q) {
			n++
		}
	}
	return n
}

// busy says whether all rows are too busy for a class.
func (s *scratch) busy(class *Class) bool {
	for i := range s.rows {
		if !class.Busy(s.rows[i].PrefillTokens, int(s.sides[i].card.MaxBatchedTokens)) {
			return false
		}
	}
	return true
}

// leave ends the wait of a request whose client does not wait any longer.
func (r *Router) leave(p *parked) {
	r.mu.Lock()
	if !p.Parked() {
		r.mu.Unlock()
		return
	}
	ahead := p.place == 0 // of others in its lane, who may have room where it has none
	p.room.queue.Remove(&p.Item)
	r.waiting.remove(p)
	r.waits.Add(-1)
	r.mu.Unlock()
	p.done(nil, engine.CauseOf(p.ctx, p.ctx.Err()))
	if ahead {
		r.drainAt(&p.Target)
	}
}

// overdue ends the wait of those who have waited too long, and returns what tells
// them. The lock must be held, and not when they are told.
func (r *Router) overdue(now time.Time) (tell []func()) {
	for p := r.waiting.oldest; r.patience > 0 && p != nil && now.Sub(p.since) >= r.patience; p = r.waiting.oldest {
		p.room.queue.Remove(&p.Item)
		r.waiting.remove(p)
		r.waits.Add(-1)
		r.counted.QueueTimeouts++
		err := &engine.Error{
			Kind: engine.ResourceExhausted, Op: "queue", Err: engine.ErrQueueTimeout,
			RetryAfter: p.room.queue.Outlook(p.Class, now),
		}
		tell = append(tell, func() {
			p.stop()
			p.done(nil, err)
		})
	}
	return tell
}

// drain sends on whoever has room.
func (r *Router) drain() { r.drainAt(nil) }

// drainAt is drain where nothing but a target has become freer; nil: anything may
// have.
func (r *Router) drainAt(at *kv.Target) {
	if r.waits.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 0; i < len(r.waiting.order); i++ { // there may be more before it ends
		r.drainRoom(r.waiting.order[i], at)
	}
}

// landing returns where a request that was just parked may have room, and where
// those who came before have not been asked since there was; the target of nobody
// where that can only be itself, and nil for anywhere.
func (r *Router) landing(q *Query) *kv.Target {
	if !q.pinned() {
		return new(kv.Target)
	}
	if q.PinRank != nil {
		return &kv.Target{Worker: q.PinWorker, Rank: *q.PinRank}
	}
	w := r.fleet.Worker(q.PinWorker)
	if w == nil {
		return nil
	}
	card := w.Card()
	if card == nil {
		return nil
	}
	return &kv.Target{Worker: q.PinWorker, Rank: card.DPStart} // it has no other
}

// drainRoom sends on whoever has room of those who wait in one place. The lock
// must be held; it is not meanwhile.
func (r *Router) drainRoom(room *waitingRoom, at *kv.Target) {
	if room.draining {
		room.again = true
		return
	}
	room.draining = true
	defer func() { room.draining = false }()
	for more := true; more; more, at = room.again, nil {
		room.again = false
		now := r.now()
		for item := range room.ready(now, at, func(i *Item[*parked]) bool { return r.fits(i.Value, at, now) }) {
			r.send(item.Value)
		}
	}
}

// ready returns those who have room, of whom some may be left out who could not
// use what has become freer.
func (room *waitingRoom) ready(now time.Time, at *kv.Target, free func(*Item[*parked]) bool) iter.Seq[*Item[*parked]] {
	if at == nil {
		return room.queue.Ready(now, free)
	}
	return room.queue.ReadyAt(now, *at, free)
}

// send decides about a request that has waited. The lock must be held; it is not
// meanwhile.
func (r *Router) send(p *parked) {
	r.waiting.remove(p)
	r.waits.Add(-1)
	p.room.sending = p.Class
	r.mu.Unlock()
	p.stop()
	now := r.now()
	b, err := r.place(p.ctx, p.query, now, nil, p)
	r.mu.Lock()
	p.room.sending = nil
	r.mu.Unlock()
	p.done(b, err)
	r.mu.Lock()
}

// fits says whether a request has room somewhere, or has nowhere to wait for. at
// is as for drainAt. The lock must be held.
func (r *Router) fits(p *parked, at *kv.Target, now time.Time) bool {
	version := r.fleet.Version()
	q, workers, walk, anybody := p.query, r.fleet.Snapshot(), r.books.walk(), false
	c := newCheck(q, workers)
	asked := barring{p, version}
	switch {
	case q.pinned():
		workers = walk.only(workers, q.PinWorker)
	case at != nil && p.room.barred[p.Class] == asked:
		workers, anybody = walk.only(workers, at.Worker), true // it was asked about whatever else was freer
	}
	if r.watchful.Load() {
		c.busy = r.busy(workers)
	}
	for _, w := range workers {
		card := w.Card()
		if !serves(card, q) {
			continue
		}
		life := w.Lost()
		bar := c.bar(w, card, life)
		if anybody = anybody || bar == full; bar != unbarred {
			continue // who is full has no room, and will have some
		}
		first, last, err := q.ranks(w, card)
		if err != nil {
			return true // it will be told
		}
		anybody = true
		for rank := first; ; rank++ {
			l := walk.load(kv.Target{Worker: w.ID(), Rank: rank}, life)
			if l == nil || !p.Class.Busy(l.activePrefill(now), int(card.MaxBatchedTokens)) {
				return true
			}
			if rank == last {
				break
			}
		}
	}
	if anybody && !q.pinned() {
		p.room.barred[p.Class] = asked
	}
	return !anybody
}

// only returns that of the workers which has an id, if there is one, and goes to
// its loads.
func (w *walk) only(workers []*fleet.Worker, id uint64) []*fleet.Worker {
	i, ok := slices.BinarySearchFunc(workers, id, func(w *fleet.Worker, id uint64) int { return cmp.Compare(w.ID(), id) })
	if !ok {
		return nil
	}
	w.at, _ = slices.BinarySearchFunc(w.loads, id, func(l *load, id uint64) int { return cmp.Compare(l.target.Worker, id) })
	return workers[i : i+1]
}

func (w *waiting) add(p *parked) {
	p.older = w.newest
	for p.older != nil && p.since.Before(p.older.since) { // it has waited for its session
		p.older, p.younger = p.older.older, p.older
	}
	if p.older == nil {
		w.oldest = p
	} else {
		p.older.younger = p
	}
	if p.younger == nil {
		w.newest = p
	} else {
		p.younger.older = p
	}
}

func (w *waiting) remove(p *parked) {
	if p.older == nil {
		w.oldest = p.younger
	} else {
		p.older.younger = p.younger
	}
	if p.younger == nil {
		w.newest = p.older
	} else {
		p.younger.older = p.older
	}
	p.older, p.younger = nil, nil
	if p.room.barred[p.Class].request == p {
		delete(p.room.barred, p.Class)
	}
}

// PoolQueue is what waits for the workers of one model and role.
type PoolQueue struct {
	Model   string
	Role    engine.Role
	Classes []QueueStats
}

// Queues returns what waits, in the order in which something first had to.
func (r *Router) Queues() []PoolQueue {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]PoolQueue, len(r.waiting.order))
	for i, room := range r.waiting.order {
		list[i] = PoolQueue{Model: room.model, Role: room.role, Classes: room.queue.Stats()}
	}
	return list
}
