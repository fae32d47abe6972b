package kvindex

import (
	"math/bits"
	"sync/atomic"
)

// children finds a node by the place above it and its first local hash.
//
// It is an open-addressed table in shards, so that growing one takes some
// microseconds. Its buckets are cache lines: seven entries, and a count of
// those that found no room in a bucket and went on to the next. Nothing moves
// while a table lives, and a removal leaves no trace, so that readers need no
// lock: an entry is no more than a hint, which the node itself confirms.
type children struct {
	shards [1 << shardOrder]atomic.Pointer[shard]
}

const (
	shardOrder = 6
	entries    = 7 // of a bucket
)

type shard struct {
	buckets []bucket
	used    int // for the writer alone
}

type bucket struct {
	entry  [entries]atomic.Uint64 // half a hash, id of the node; 0 = free
	passed atomic.Uint64          // entries that went on from here
}

// nothing stands in for a shard without entries.
var nothing = &shard{buckets: make([]bucket, 1)}

// init makes the table ready. It must be called once.
func (c *children) init() {
	for i := range c.shards {
		c.shards[i].Store(nothing)
	}
}

// seek returns the shard of a hash and the first bucket to look at.
func (c *children) seek(h uint64) (s *shard, at int) {
	s = c.shards[h>>(64-shardOrder)].Load()
	return s, s.home(uint32(h))
}

func (s *shard) home(half uint32) int {
	hi, _ := bits.Mul64(uint64(half)<<32, uint64(len(s.buckets)))
	return int(hi)
}

// put adds an entry that is not there.
func (c *children) put(h uint64, id uint32) {
	p := &c.shards[h>>(64-shardOrder)]
	s := p.Load()
	if limit := len(s.buckets) * entries * 5 / 8; s == nothing || s.used >= limit {
		s = s.resized(s.used + s.used/2 + entries)
		p.Store(s)
	}
	s.put(uint32(h), id)
}

func (s *shard) put(half, id uint32) {
	s.used++
	for at := s.home(half); ; {
		b := &s.buckets[at]
		for i := range b.entry {
			if b.entry[i].Load() == 0 {
				b.entry[i].Store(uint64(half)<<32 | uint64(id))
				return
			}
		}
		b.passed.Store(b.passed.Load() + 1)
		if at++; at == len(s.buckets) {
			at = 0
		}
	}
}

// remove takes an entry out that is there.
func (c *children) remove(h uint64, id uint32) {
	p := &c.shards[h>>(64-shardOrder)]
	s := p.Load()
	s.remove(uint32(h), id)
	switch {
	case s.used == 0:
		p.Store(nothing)
	case len(s.buckets) > 4 && s.used < len(s.buckets)*entries/8:
		p.Store(s.resized(s.used))
	}
}

func (s *shard) remove(half, id uint32) {
	want := uint64(half)<<32 | uint64(id)
	s.used--
	for at := s.home(half); ; {
		b := &s.buckets[at]
		for i := range b.entry {
			if b.entry[i].Load() == want {
				b.entry[i].Store(0)
				return
			}
		}
		b.passed.Store(b.passed.Load() - 1)
		if at++; at == len(s.buckets) {
			at = 0
		}
	}
}

// resized returns a copy of s in which n entries make it two fifths full.
func (s *shard) resized(n int) *shard {
	to := &shard{buckets: make([]bucket, n*5/(2*entries)+1)}
	for i := range s.buckets {
		for k := range s.buckets[i].entry {
			if e := s.buckets[i].entry[k].Load(); e != 0 {
				to.put(uint32(e>>32), uint32(e))
			}
		}
	}
	return to
}

// child returns the node under up that begins with the hash given, and the
// version it had before it was looked at; nil if there is none. What a reader
// learns here holds if what told it of up does.
func (t *tree) child(up place, local uint64) (id uint32, n *node, version uint64) {
	h := fold(uint64(up), local)
	s, at := t.children.seek(h)
	for range s.buckets {
		b := &s.buckets[at]
		for i := range b.entry {
			e := b.entry[i].Load()
			if e>>32 != h&0xffffffff || e == 0 {
				continue
			}
			if n, version := t.confirm(uint32(e), up, local); n != nil {
				return uint32(e), n, version
			}
		}
		if b.passed.Load() == 0 {
			break
		}
		if at++; at == len(s.buckets) {
			at = 0
		}
	}
	return 0, nil, 0
}

// confirm says whether a node stands under up and begins with the hash given.
func (t *tree) confirm(id uint32, up place, local uint64) (*node, uint64) {
	n := t.node(id)
	if n == nil {
		return nil, 0
	}
	version := n.version.Load()
	if n.up() != up {
		return nil, 0
	}
	r := n.at()
	if first := t.hashes(r.start, 1); r.length == 0 || len(first) == 0 || first[0].Load() != local {
		return nil, 0
	}
	return n, version
}
