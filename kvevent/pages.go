package kvevent

import (
	"iter"
	"slices"

	"github.com/dynago/dynago/kv"
)

// pages is what one rank of an engine holds whose own blocks, here called
// pages, are smaller than those of the index. A run of pages that fills one of
// our blocks is a group. It goes by the key of its last page, appears on a tier
// with the last page to come, and is gone with the first one to go.
//
// The pages of a group form a tree with those that share its begin, for a chain
// may fork anywhere. Only the links inside a group are kept; between groups the
// keys are enough.
type pages struct {
	size int // tokens of a page
	per  int // pages of a group
	at   map[kv.EngineHash]int32
	all  []page
	free []int32
	// text has the tokens of each page, and one more for the token that follows
	// it.
	text []uint32
}

// page is one of the engine's blocks. Links are places in pages.all; none = -1.
type page struct {
	key      kv.EngineHash
	copies   tally
	up       int32 // the page before it in its group
	child    int32 // the first of those behind it in its group
	sibling  int32 // the next one behind the same page
	before   int32 // the one of which it is the sibling
	place    int32 // in its group, from 0
	told     uint8 // bit per tier on which the group that ends here has been passed on
	followed bool  // the token that follows is known
	// base is the last page of the group before; rooted says that there is none.
	base   kv.EngineHash
	rooted bool
	seed   uint64
	// settled says that the seed is known for sure.
	settled bool
	// chain is that of the groups up to the one before, and, once this page is
	// the last of one that is named, up to this.
	chain kv.SeqHash
	named bool
}

const none = -1

func newPages(size, per int) *pages {
	return &pages{size: size, per: per, at: make(map[kv.EngineHash]int32)}
}

func (p *pages) len() int { return len(p.at) }

// ends says whether a page is the last of its group.
func (p *pages) ends(i int32) bool { return int(p.all[i].place) == p.per-1 }

// tokens returns those of a page, and behind them the one that follows.
func (p *pages) tokens(i int32) []uint32 {
	stride := p.size + 1
	return p.text[int(i)*stride:][:stride]
}

// add makes a page behind another one, or at the root.
func (p *pages) add(key kv.EngineHash, parent int32) int32 {
	var i int32
	if n := len(p.free); n > 0 {
		i, p.free = p.free[n-1], p.free[:n-1]
	} else {
		i = int32(len(p.all))
		p.all = append(p.all, page{})
		p.text = append(p.text, make([]uint32, p.size+1)...)
	}
	n := page{key: key, up: none, child: none, sibling: none, before: none, rooted: true}
	if parent != none {
		before := &p.all[parent]
		n.seed, n.settled, n.chain = before.seed, before.settled, before.chain
		if p.ends(parent) {
			n.base, n.rooted = before.key, false
		} else {
			n.base, n.rooted = before.base, before.rooted
			n.up, n.place = parent, before.place+1
			if n.sibling = before.child; n.sibling != none {
				p.all[n.sibling].before = i
			}
			before.child = i
		}
	}
	p.all[i] = n
	p.at[key] = i
	return i
}

// drop forgets a page that has no copy left, as soon as no other page of its
// group stands behind it, and those before it for which it was the last reason.
func (p *pages) drop(i int32) {
	for i != none {
		n := &p.all[i]
		if n.copies != 0 || n.child != none {
			return
		}
		up := n.up
		switch {
		case n.before != none:
			p.all[n.before].sibling = n.sibling
		case up != none:
			p.all[up].child = n.sibling
		}
		if n.sibling != none {
			p.all[n.sibling].before = n.before
		}
		delete(p.at, n.key)
		p.free = append(p.free, i)
		i = up
	}
}

// complete says whether every page of the group that ends at i is on a tier.
func (p *pages) complete(i int32, tier kv.Tier) bool {
	for ; i != none; i = p.all[i].up {
		if p.all[i].copies.on(tier) == 0 {
			return false
		}
	}
	return true
}

// ending yields the last page of each group that i is part of.
func (p *pages) ending(i int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for at := i; ; {
			n := &p.all[at]
			if p.ends(at) && !yield(at) {
				return
			}
			if n.child != none {
				at = n.child
				continue
			}
			for at != i && p.all[at].sibling == none {
				at = p.all[at].up
			}
			if at == i {
				return
			}
			at = p.all[at].sibling
		}
	}
}

// gather returns the tokens of the group that ends at i, and the one behind it
// if eagle asks for it. It is false if that is not known.
func (p *pages) gather(dst []uint32, i int32, eagle bool) ([]uint32, bool) {
	n := p.size * p.per
	dst = slices.Grow(dst[:0], n+1)[:n]
	if eagle {
		if !p.all[i].followed {
			return dst, false
		}
		dst = append(dst, p.tokens(i)[p.size])
	}
	for at := n; i != none; i = p.all[i].up {
		at -= p.size
		copy(dst[at:], p.tokens(i)[:p.size])
	}
	return dst, true
}

// filePages is [Decoder.file] for pages.
func (d *Decoder) filePages(h *holding, s *store, size int) (filed int, why Reason) {
	if h.pages == nil || h.pages.size != size { // which are then none
		h.pages = newPages(size, d.blockSize/size)
	}
	p, e := h.pages, s.told
	tokens := part(d.tokens, e.tokens)
	before := int32(none)
	if s.hasParent {
		before = p.at[s.parent]
	}
	if first := d.window(e); (!s.settled || d.inFlight != nil && !s.hasParent) && len(first) >= d.span() {
		d.extend(s, 0, kv.HashBlock(first[:d.span()], kv.HashSeed))
		s.settled = true
	}
	for i, key := range part(d.hashes, e.hashes) {
		switch {
		case len(tokens) < p.size:
			return i, ShortTokens
		case i == d.extras.end:
			return i, d.extras.why
		case len(d.extras.mediaOf(i)) > 0:
			return i, UnknownMedia // which page of a group has them is not kept
		}
		at, known := p.at[key]
		switch {
		case known && s.settled && p.all[at].settled && p.all[at].seed != s.seed:
			d.clashPage(p, at, e.tier)
			return i, AmbiguousNamespace
		case !known && h.len() >= d.most:
			return i, TooManyBlocks
		case !known:
			at = p.add(key, before)
			if before == none {
				p.all[at].seed, p.all[at].settled = s.seed, s.settled
			}
			text := p.tokens(at)
			copy(text, tokens[:p.size])
			if e.paired || len(tokens) > p.size {
				// Behind the last one of pairs stands the one that follows.
				text[p.size], p.all[at].followed = tokens[:p.size+1][p.size], true
			}
		}
		tokens = tokens[p.size:]
		n := &p.all[at]
		if n.copies = n.copies.add(e.tier); n.copies.on(e.tier) == 1 {
			for last := range p.ending(at) {
				d.groupStored(p, s.rank, last, e.tier)
			}
		}
		if n := &p.all[at]; n.settled {
			s.seed, s.settled = n.seed, true
		}
		before = at
	}
	return e.hashes.len(), None
}

// groupStored passes on the group that ends at a page if it is complete and its
// namespace known.
func (d *Decoder) groupStored(p *pages, rank uint32, last int32, tier kv.Tier) {
	n := &p.all[last]
	if n.seed == severalSpaces || !p.complete(last, tier) {
		return
	}
	var ok bool
	if d.padded, ok = p.gather(d.padded, last, d.eagle); !ok {
		d.counts.Dropped[TypeStored][ShortTokens]++
		return
	}
	if d.inFlight != nil && !n.named {
		n.named = true
		plain := kv.HashBlock(d.padded, kv.HashSeed)
		if n.rooted {
			n.chain = kv.SeqHash(plain)
		} else {
			n.chain = n.chain.Next(plain)
		}
		if n.rooted && (!n.settled || n.seed != kv.HashSeed) {
			n.seed, n.settled = d.spaceOf(rank, n.chain, n.seed), true
		}
	}
	if !n.settled {
		d.counts.Dropped[TypeStored][AmbiguousNamespace]++
		return
	}
	n.told |= 1 << tier
	d.emitStored(tier, n.base, !n.rooted, kv.Block{Engine: n.key, Local: kv.HashBlock(d.padded, n.seed)})
}

// removePage takes one copy of a page away. It is false if there is none.
func (d *Decoder) removePage(p *pages, key kv.EngineHash, tier kv.Tier) bool {
	i, ok := p.at[key]
	if !ok || p.all[i].copies.on(tier) == 0 {
		return ok
	}
	n := &p.all[i]
	n.copies = n.copies.drop(tier)
	if n.copies.on(tier) > 0 {
		return true
	}
	for last := range p.ending(i) {
		d.groupRemoved(p, last, tier)
	}
	p.drop(i)
	return true
}

// groupRemoved passes on that the group that ends at a page has gone.
func (d *Decoder) groupRemoved(p *pages, last int32, tier kv.Tier) {
	n := &p.all[last]
	if n.told&(1<<tier) == 0 {
		return
	}
	n.told &^= 1 << tier
	d.emitRemoved(tier, n.key)
}

// clashPage is [Decoder.clash] for a page and all groups it is part of.
func (d *Decoder) clashPage(p *pages, i int32, tier kv.Tier) {
	n := &p.all[i]
	n.seed = severalSpaces
	n.copies = n.copies.add(tier)
	for last := range p.ending(i) {
		p.all[last].seed = severalSpaces
		for t := range kv.TierShared + 1 {
			d.groupRemoved(p, last, t)
		}
	}
}
