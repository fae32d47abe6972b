package kvcache

import "github.com/dynago/dynago/kv"

// Plain reports whether nothing has been asked of any block so far.
func (p *Pool) Plain() bool { return p.plain }

// Footprint counts what is kept of sessions, tags and notes beside the blocks.
func (p *Pool) Footprint() int {
	n := len(p.sessions) + len(p.byID) + len(p.timeouts.items) + len(p.expiry.items) + len(p.notes.records) + len(p.pinnings.records) + len(p.tagSets.records) + len(p.promoted)
	for _, s := range p.sessions {
		if s != nil {
			n += len(s.blocks) + len(s.pins) + len(s.sequence) + len(s.thinking) + len(s.superseded)
		}
	}
	return n
}

// Moving reports whether a block is on its way to a tier, or about to be.
func (r *Registry) Moving(to kv.Tier, h kv.SeqHash) bool { return r.moves[moveKey{to, h}] != nil }

// Wishes returns for how many blocks pins are wished.
func (r *Registry) Wishes() int { return len(r.wishes) }
