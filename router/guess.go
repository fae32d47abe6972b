package router

import (
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// guess counts what was routed to targets as cached there. It is kept apart from
// the index, which holds nothing but what workers have said.
type guess struct {
	index  *kvindex.Index
	routed *kvindex.Routed // guarded by the router's lock
}

func newGuess(ttl time.Duration) *guess {
	x := kvindex.New()
	return &guess{x, kvindex.NewRouted(x, ttl)}
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
		g.routed.RemoveTarget(t)
		g.index.RemoveTarget(t)
	}
}

func (g *guess) removeWorker(id uint64) {
	if g != nil {
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
	t := b.decision.Target
	if wrong || v.judgement == believe {
		r.instead.Load().removeTarget(t)
	}
	if b.load.life.Err() != nil || v.judgement != doubt && len(v.news) == 0 {
		return
	}
	g := r.instead.Load()
	if g == nil {
		g = newGuess(r.tuning.TTL)
		r.instead.Store(g)
	}
	for _, local := range v.news {
		g.routed.Add(t, local, kv.AppendSeqHashes(nil, local), b.room, now)
	}
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
