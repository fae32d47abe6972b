package kvindex

import (
	"time"

	"github.com/dynago/dynago/kv"
)

// Routed fills an index for targets that do not tell what they cache: what was
// sent to one is taken to be cached there for a while, and no more of it than
// has room there. The blocks' keys are their sequence hashes.
//
// It is plain data, to be guarded by its user; the index may be used beside it.
type Routed struct {
	index   *Index
	ttl     time.Duration
	records map[kv.Target]*record
	expired int64 // the last moment for which that was done, in ticks
}

// record is what was sent to one target, the oldest block first. Within a prompt
// the end counts as older than the beginning, so that what is left of it is
// always a beginning.
type record struct {
	at     map[kv.EngineHash]int32 // in blocks
	blocks []routedBlock
	ends   [2]int32 // oldest and latest, or nowhere
	free   int32    // the first of those not in use, linked by newer
}

type routedBlock struct {
	key          kv.EngineHash
	until        int64 // in ticks
	older, newer int32
}

const (
	// tick is the precision of expiry.
	tick = 100 * time.Millisecond

	oldest, latest = 0, 1
	nowhere        = int32(-1)
)

// NewRouted returns an empty record that writes to x.
func NewRouted(x *Index, ttl time.Duration) *Routed {
	return &Routed{index: x, ttl: ttl, records: make(map[kv.Target]*record)}
}

// Add records that a prompt went to t, which has room for so many blocks, and
// forgets what has expired or has no room any more. Blocks that went there
// before live as long as the new ones.
func (r *Routed) Add(t kv.Target, local []kv.LocalHash, seq []kv.SeqHash, room int, now time.Time) {
	r.Expire(now)
	if room < len(local) {
		local = local[:max(0, room)]
	}
	if len(local) == 0 {
		return
	}
	rec := r.records[t]
	if rec == nil {
		rec = &record{at: make(map[kv.EngineHash]int32), ends: [2]int32{nowhere, nowhere}, free: nowhere}
		r.records[t] = rec
	}
	until := ticks(now.Add(r.ttl))
	blocks := make([]kv.Block, len(local))
	for i := len(local) - 1; i >= 0; i-- {
		key := kv.EngineHash(seq[i])
		blocks[i] = kv.Block{Engine: key, Local: local[i]}
		rec.touch(key, until)
	}
	_ = r.index.Apply(t, kv.Event{Kind: kv.Stored, Blocks: blocks}) // counted by the index
	r.forget(t, rec, func(*routedBlock) bool { return len(rec.at) > room })
}

// Expire forgets what is older than the TTL. It looks at the oldest block of
// each target, ten times a second at most.
func (r *Routed) Expire(now time.Time) {
	at := now.UnixNano() / int64(tick)
	if at <= r.expired {
		return
	}
	r.expired = at
	for t, rec := range r.records {
		r.forget(t, rec, func(b *routedBlock) bool { return b.until <= at })
	}
}

// Blocks returns how many blocks count as cached on t.
func (r *Routed) Blocks(t kv.Target) int {
	if rec := r.records[t]; rec != nil {
		return len(rec.at)
	}
	return 0
}

// RemoveTarget forgets what was sent to a target, here; in the index its user
// does.
func (r *Routed) RemoveTarget(t kv.Target) { delete(r.records, t) }

// RemoveWorker is RemoveTarget for all ranks of a worker.
func (r *Routed) RemoveWorker(id uint64) {
	for t := range r.records {
		if t.Worker == id {
			delete(r.records, t)
		}
	}
}

// forget drops blocks of a target, the oldest first, as long as old says so.
func (r *Routed) forget(t kv.Target, rec *record, old func(*routedBlock) bool) {
	e := kv.Event{Kind: kv.Removed}
	for i := rec.ends[oldest]; i != nowhere && old(&rec.blocks[i]); i = rec.ends[oldest] {
		e.Blocks = append(e.Blocks, kv.Block{Engine: rec.blocks[i].key})
		rec.drop(i)
	}
	if len(e.Blocks) > 0 {
		_ = r.index.Apply(t, e) // counted by the index
	}
	if len(rec.at) == 0 {
		delete(r.records, t)
	}
}

// touch makes a block the latest.
func (rec *record) touch(key kv.EngineHash, until int64) {
	i, ok := rec.at[key]
	switch {
	case ok:
		rec.unlink(i)
	case rec.free != nowhere:
		i = rec.free
		rec.free = rec.blocks[i].newer
	default:
		i = int32(len(rec.blocks))
		rec.blocks = append(rec.blocks, routedBlock{})
	}
	rec.at[key] = i
	rec.blocks[i] = routedBlock{key: key, until: until, older: rec.ends[latest], newer: nowhere}
	if rec.ends[latest] == nowhere {
		rec.ends[oldest] = i
	} else {
		rec.blocks[rec.ends[latest]].newer = i
	}
	rec.ends[latest] = i
}

func (rec *record) drop(i int32) {
	rec.unlink(i)
	delete(rec.at, rec.blocks[i].key)
	rec.blocks[i] = routedBlock{newer: rec.free}
	rec.free = i
}

func (rec *record) unlink(i int32) {
	b := &rec.blocks[i]
	if b.older == nowhere {
		rec.ends[oldest] = b.newer
	} else {
		rec.blocks[b.older].newer = b.newer
	}
	if b.newer == nowhere {
		rec.ends[latest] = b.older
	} else {
		rec.blocks[b.newer].older = b.older
	}
}

// ticks rounds a moment up.
func ticks(t time.Time) int64 { return (t.UnixNano() + int64(tick) - 1) / int64(tick) }
