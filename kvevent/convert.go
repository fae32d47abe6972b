package kvevent

import (
	"slices"

	"github.com/dynago/dynago/kv"
)

// convert turns one event into those of package kv, or counts why not.
func (d *Decoder) convert(rank uint32, h *holding, e *told) {
	why := h.judge(e)
	if why == None {
		switch e.kind {
		case TypeStored:
			why = d.stored(rank, h, e)
		case TypeRemoved:
			d.removed(h, e)
		case TypeCleared:
			h.clear()
			d.events = append(d.events, kv.Event{Kind: kv.Cleared})
		}
	}
	if why != None {
		d.counts.Dropped[e.kind][why]++
		return
	}
	d.counts.Accepted[e.kind]++
}

// judge says what forbids an event, going by what it says of itself and by what
// is known of its group.
func (h *holding) judge(e *told) Reason {
	switch {
	case e.owner == ownerCache:
		return UnsupportedOwnership
	case e.owner == ownerUnknown:
		return UnknownOwnership
	case e.kind == TypeCleared:
		return None
	case e.remote:
		return NonLocalLocality
	case e.lost:
		return UnknownMedium
	}
	if e.hasGroup && e.attention != attentionUntold {
		h.groups.learn(e.group, e.attention)
	}
	switch e.attention {
	case attentionMain:
		return None
	case attentionOther:
		return NonMainAttentionKind
	case attentionUnknown:
		return UnknownKind
	}
	if !e.hasGroup {
		return None
	}
	switch h.groups.of(e.group) {
	case attentionMain:
		return None
	case attentionOther, attentionUnknown:
		return NonMainAttentionGroup
	}
	if e.group != 0 {
		return UnlearnedGroup
	}
	return None
}

// removed takes one copy of each block away and passes on which of them were
// the last. Blocks never heard of are passed on as well: they hurt nobody.
func (d *Decoder) removed(h *holding, e *told) {
	for _, key := range part(d.hashes, e.hashes) {
		if h.pages != nil && d.removePage(h.pages, key, e.tier) {
			continue
		}
		if slot, ok := h.find(key); ok && !h.take(slot, e.tier) {
			continue
		}
		d.emitRemoved(e.tier, key)
	}
}

// emitRemoved passes on that a block is gone. Engines tell of each by itself;
// here those that go together come together.
func (d *Decoder) emitRemoved(tier kv.Tier, key kv.EngineHash) {
	d.blocks = append(d.blocks, kv.Block{Engine: key})
	if i := len(d.events) - 1; i >= 0 {
		last := &d.events[i]
		if last.Kind == kv.Removed && last.Tier == tier {
			last.Blocks = slices.Clip(d.blocks[len(d.blocks)-1-len(last.Blocks):])
			return
		}
	}
	d.events = append(d.events, kv.Event{Kind: kv.Removed, Tier: tier, Blocks: slices.Clip(d.blocks[len(d.blocks)-1:])})
}

// emitStored passes on that one block is there, together with the ones before
// it if it continues them.
func (d *Decoder) emitStored(tier kv.Tier, parent kv.EngineHash, hasParent bool, b kv.Block) {
	d.counts.Blocks++
	d.blocks = append(d.blocks, b)
	if i := len(d.events) - 1; i >= 0 && hasParent {
		last := &d.events[i]
		n := len(last.Blocks)
		if last.Kind == kv.Stored && last.Tier == tier && last.Blocks[n-1].Engine == parent {
			last.Blocks = slices.Clip(d.blocks[len(d.blocks)-n-1:])
			return
		}
	}
	d.events = append(d.events, kv.Event{
		Kind: kv.Stored, Tier: tier, Parent: parent, HasParent: hasParent, Blocks: slices.Clip(d.blocks[len(d.blocks)-1:]),
	})
}
