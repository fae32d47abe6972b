package selection

import (
	"container/list"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// chosen is a selection that may be booked later: what was asked, and the answer.
type chosen struct {
	partition partition
	query     *router.Query
	target    kv.Target
}

// pending remembers selections by their ids for a while. The oldest go first if
// there are too many, or they are too large. It is plain data.
type pending struct {
	ttl          time.Duration
	most, memory int

	entries map[pendingKey]*list.Element
	order   list.List // of *pendingEntry, the oldest first
	bytes   int
}

type pendingKey struct {
	partition partition
	id        string
}

type pendingEntry struct {
	key   pendingKey
	what  chosen
	until time.Time
	bytes int
}

func newPending(ttl time.Duration, most, memory int) pending {
	return pending{ttl: ttl, most: most, memory: memory, entries: make(map[pendingKey]*list.Element)}
}

// put remembers a selection in the place of an earlier one of the same id. One
// that is larger than all that is allowed is not remembered.
func (p *pending) put(c chosen, now time.Time) {
	key := pendingKey{c.partition, c.query.ID}
	p.drop(key)
	p.expire(now)
	size := bytes(c.query)
	if size > p.memory {
		return
	}
	p.entries[key] = p.order.PushBack(&pendingEntry{key, c, now.Add(p.ttl), size})
	p.bytes += size
	for len(p.entries) > p.most || p.bytes > p.memory {
		p.drop(p.order.Front().Value.(*pendingEntry).key)
	}
}

// get returns a selection that has not expired.
func (p *pending) get(part partition, id string, now time.Time) (chosen, bool) {
	e, ok := p.entries[pendingKey{part, id}]
	if !ok || !now.Before(e.Value.(*pendingEntry).until) {
		return chosen{}, false
	}
	return e.Value.(*pendingEntry).what, true
}

// forget drops a selection if it is still the one of this query.
func (p *pending) forget(c chosen) {
	key := pendingKey{c.partition, c.query.ID}
	if e, ok := p.entries[key]; ok && e.Value.(*pendingEntry).what.query == c.query {
		p.drop(key)
	}
}

func (p *pending) drop(key pendingKey) {
	e, ok := p.entries[key]
	if !ok {
		return
	}
	p.bytes -= e.Value.(*pendingEntry).bytes
	p.order.Remove(e)
	delete(p.entries, key)
}

// expire drops what has been kept for long enough.
func (p *pending) expire(now time.Time) {
	for e := p.order.Front(); e != nil && !now.Before(e.Value.(*pendingEntry).until); e = p.order.Front() {
		p.drop(e.Value.(*pendingEntry).key)
	}
}
