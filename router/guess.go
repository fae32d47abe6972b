package router

import (
	"maps"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// guess counts what was routed to targets as cached there. It is kept apart from
// the index, which holds nothing but what workers have said.
type guess struct {
	index  *kvindex.Index
	routed *kvindex.Routed // guarded by the router's lock, as what follows
	// lacking are the targets that have more than the index knows.
	lacking map[kv.Target]lack
}

// lack is what is done about a target that has more than the index knows: all that
// is routed there is noted, without exception. Then the order in which blocks were
// used last is the engine's own, and so is the order in which they go.
type lack struct {
	until time.Time
	spare int // one part in so many of the room is not filled
}

const (
	// lackFor is for how long what is routed to a target is noted, from the last
	// sign on that the index lacks something. By then engines that have something to
	// do have let go of most of what was told before.
	lackFor = longestDoubt
	// spareAtFirst leaves some room for answers, of which nothing is noted, and for what
	// others send. Each time that an answer shows it to be too little, it is twice as
	// much, up to spareAtMost.
	spareAtFirst, spareAtMost = 32, 2
)

func newGuess(ttl time.Duration) *guess {
	x := kvindex.New()
	return &guess{x, kvindex.NewRouted(x, ttl), map[kv.Target]lack{}}
}

// lack notes a sign that the index lacks something of a target.
func (g *guess) lack(t kv.Target, now time.Time) {
	l, known := g.lacking[t]
	if !known {
		l.spare = spareAtFirst
	}
	l.until = now.Add(lackFor)
	g.lacking[t] = l
}

// lacks says whether what is routed to a target is to be noted. What was noted is
// forgotten when that ends: a record with holes would be in another order.
func (g *guess) lacks(t kv.Target, now time.Time) bool {
	if g == nil {
		return false
	}
	l, ok := g.lacking[t]
	if ok && !now.Before(l.until) {
		g.removeTarget(t)
		return false
	}
	return ok
}

// note is a prompt that will be cached on a target of which the index lacks
// something, once it has been computed.
type note struct {
	local []kv.LocalHash
	seq   []kv.SeqHash
}

// add takes a prompt to be cached on such a target, which has so much room.
func (g *guess) add(t kv.Target, n *note, room int, now time.Time) {
	g.routed.Add(t, n.local, n.seq, room-room/g.lacking[t].spare, now)
}

// belied takes note that a target had less than was noted. All of it is forgotten.
func (g *guess) belied(t kv.Target) {
	if g == nil {
		return
	}
	l, lacks := g.lacking[t]
	g.removeTarget(t)
	if lacks {
		l.spare = max(spareAtMost, l.spare/2)
		g.lacking[t] = l
	}
}

// match sets out to what the prompts routed lately have in common with this one.
func (g *guess) match(local []kv.LocalHash, out *kvindex.Matches) {
	if g == nil {
		out.Found = out.Found[:0]
		return
	}
	g.index.Match(local, out)
}

func (g *guess) expire(now time.Time) {
	if g != nil {
		g.routed.Expire(now)
	}
}

func (g *guess) removeTarget(t kv.Target) {
	if g != nil {
		delete(g.lacking, t)
		g.routed.RemoveTarget(t)
		g.index.RemoveTarget(t)
	}
}

func (g *guess) removeWorker(id uint64) {
	if g != nil {
		maps.DeleteFunc(g.lacking, func(t kv.Target, _ lack) bool { return t.Worker == id })
		g.routed.RemoveWorker(id)
		g.index.RemoveWorker(id)
	}
}

// learn notes what follows from the answer to b: what answers have shown to be
// cached beyond what the index knows, or that what earlier ones have shown is no
// more.
func (r *Router) learn(b *Booking, v verdict, wrong bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.load.life.Err() != nil {
		return // it says nothing of the cache that is there now
	}
	t := b.decision.Target
	g := r.instead.Load()
	switch {
	case v.judgement == believe:
		g.removeTarget(t)
	case wrong:
		g.belied(t)
	}
	r.note(b, int(b.cached.Load()-1)/b.blockSize, now)
	if v.judgement != doubt && len(v.news) == 0 {
		return
	}
	noted := g.lacks(t, now)
	g = r.lack(t, now)
	if noted {
		return // what is news to the index is not to this
	}
	for _, local := range v.news {
		g.add(t, &note{local, kv.AppendSeqHashes(nil, local)}, b.room, now)
	}
}

// note takes so many leading blocks of a prompt to be cached where it went, if that
// is to be noted. The lock must be held.
func (r *Router) note(b *Booking, blocks int, now time.Time) {
	t := b.decision.Target
	if g := r.instead.Load(); b.note != nil && b.load.life.Err() == nil && g.lacks(t, now) {
		blocks = min(blocks, len(b.note.local))
		g.add(t, &note{b.note.local[:blocks], b.note.seq[:blocks]}, b.room, now)
	}
}

// lack notes a sign that the index lacks something of a target, and returns where
// what is routed there is noted. The lock must be held.
func (r *Router) lack(t kv.Target, now time.Time) *guess {
	g := r.instead.Load()
	if g == nil {
		g = newGuess(r.tuning.TTL)
		r.instead.Store(g)
	}
	g.lack(t, now)
	return g
}

// expect lets a row count so many leading blocks as cached on the device. What
// lower tiers were found to continue with counts only beyond them.
func (c *Candidate) expect(blocks int) {
	more := blocks - c.Device
	if more <= 0 {
		return
	}
	c.Device = blocks
	c.Host, more = max(0, c.Host-more), max(0, more-c.Host)
	c.Disk = max(0, c.Disk-more)
}
