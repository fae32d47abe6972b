package kvindex

import (
	"time"

	"github.com/dynago/dynago/kv"
)

// Routed fills an index for workers that do not tell what they cache: what was
// sent to one is taken to be cached there for a while. The blocks' keys are
// their sequence hashes.
//
// It is plain data, to be guarded by its user; the index may be used beside it.
// It holds what was added within one TTL, and no more.
type Routed struct {
	index *Index
	ttl   time.Duration
	until map[routedBlock]time.Time
	queue []sent // by time; those before head are done
	head  int
}

type routedBlock struct {
	target kv.Target
	key    kv.EngineHash
}

// sent is one prompt on its way to expiry.
type sent struct {
	target kv.Target
	at     time.Time
	keys   []kv.EngineHash
}

// NewRouted returns an empty record that writes to x.
func NewRouted(x *Index, ttl time.Duration) *Routed {
	return &Routed{index: x, ttl: ttl, until: make(map[routedBlock]time.Time)}
}

// Add records that a prompt went to t, and forgets what has expired. Blocks that
// went there before live as long as the new ones.
func (r *Routed) Add(t kv.Target, local []kv.LocalHash, now time.Time) {
	r.Expire(now)
	if len(local) == 0 {
		return
	}
	until := now.Add(r.ttl)
	s := sent{target: t, at: until, keys: make([]kv.EngineHash, len(local))}
	blocks := make([]kv.Block, len(local))
	var seq kv.SeqHash
	for i, l := range local {
		if seq = seq.Next(l); i == 0 {
			seq = kv.SeqHash(l)
		}
		key := kv.EngineHash(seq)
		s.keys[i], blocks[i] = key, kv.Block{Engine: key, Local: l}
		r.until[routedBlock{t, key}] = until
	}
	r.queue = append(r.queue, s)
	_ = r.index.Apply(t, kv.Event{Kind: kv.Stored, Blocks: blocks}) // counted by the index
}

// Expire forgets what is older than the TTL.
func (r *Routed) Expire(now time.Time) {
	for r.head < len(r.queue) && !r.queue[r.head].at.After(now) {
		s := &r.queue[r.head]
		r.forget(s, now)
		*s = sent{}
		r.head++
	}
	if r.head > len(r.queue)/2 {
		r.queue = append(r.queue[:0], r.queue[r.head:]...)
		r.head = 0
	}
}

// forget removes those blocks of s that no later prompt has renewed.
func (r *Routed) forget(s *sent, now time.Time) {
	e := kv.Event{Kind: kv.Removed}
	for _, key := range s.keys {
		b := routedBlock{s.target, key}
		until, ok := r.until[b]
		if !ok || until.After(now) {
			continue
		}
		delete(r.until, b)
		e.Blocks = append(e.Blocks, kv.Block{Engine: key})
	}
	if len(e.Blocks) > 0 {
		_ = r.index.Apply(s.target, e) // counted by the index
	}
}

// RemoveWorker forgets what was sent to a worker, here; in the index its user
// does.
func (r *Routed) RemoveWorker(id uint64) {
	for i := r.head; i < len(r.queue); i++ {
		s := &r.queue[i]
		if s.target.Worker != id {
			continue
		}
		for _, key := range s.keys {
			delete(r.until, routedBlock{s.target, key})
		}
		s.keys = nil
	}
}
