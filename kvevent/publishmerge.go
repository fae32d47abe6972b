package kvevent

import (
	"time"

	"github.com/dynago/dynago/kv"
)

// mergedBlocks is how many blocks are waited for before merged events go out.
const mergedBlocks = 128

// merger joins neighbouring events of one rank that say the same kind of thing:
// removals on one tier, and stores that continue each other. The zero value
// waits for nothing beyond the list that an event came in.
type merger struct {
	wait time.Duration

	pending kv.Event
	any     bool
	since   time.Time // the last time that something went out
}

// add takes one list of events, and returns those that are to go out.
func (m *merger) add(out, events []kv.Event, now time.Time) []kv.Event {
	if !m.any {
		m.since = now
	}
	for i := range events {
		e := &events[i]
		if m.any && !m.joins(e) {
			out = m.flush(out, now)
		}
		switch {
		case e.Kind == kv.Cleared:
			out = append(out, *e)
			m.since = now
			continue
		case !m.any:
			m.pending, m.any = *e, true
			m.pending.Blocks = nil
		}
		m.pending.Blocks = append(m.pending.Blocks, e.Blocks...)
		if len(m.pending.Blocks) >= mergedBlocks {
			out = m.flush(out, now)
		}
	}
	if m.wait == 0 {
		out = m.flush(out, now)
	}
	return out
}

// joins says whether e may be merged with what is pending.
func (m *merger) joins(e *kv.Event) bool {
	if e.Kind != m.pending.Kind || e.Tier != m.pending.Tier || e.Kind == kv.Cleared {
		return false
	}
	n := len(m.pending.Blocks)
	return e.Kind == kv.Removed || n > 0 && e.HasParent && e.Parent == m.pending.Blocks[n-1].Engine
}

// flush lets go of what is pending.
func (m *merger) flush(out []kv.Event, now time.Time) []kv.Event {
	if m.any {
		out = append(out, m.pending)
		m.pending, m.any, m.since = kv.Event{}, false, now
	}
	return out
}

// deadline is when what is pending goes out at the latest.
func (m *merger) deadline() (time.Time, bool) { return m.since.Add(m.wait), m.any && m.wait > 0 }

// copyCounts counts the copies of blocks, for backends that tell of each: a removal
// passes when it is of the last one, or of one never heard of.
type copyCounts struct {
	most int // blocks; of more, no copies are counted
	of   map[copyOf]uint32
}

type copyOf struct {
	tier kv.Tier
	key  kv.EngineHash
}

// filter takes from e the removals that leave a copy, and says whether anything
// is left to tell.
func (c *copyCounts) filter(e *kv.Event) bool {
	switch e.Kind {
	case kv.Stored:
		for _, b := range e.Blocks {
			k := copyOf{e.Tier, b.Engine}
			if n := c.of[k]; n > 0 || len(c.of) < c.most {
				c.of[k] = n + 1
			}
		}
		return true
	case kv.Removed:
		kept := make([]kv.Block, 0, len(e.Blocks))
		for _, b := range e.Blocks {
			k := copyOf{e.Tier, b.Engine}
			if n := c.of[k]; n > 1 {
				c.of[k] = n - 1
				continue
			}
			delete(c.of, k)
			kept = append(kept, b)
		}
		e.Blocks = kept
		return len(kept) > 0
	}
	clear(c.of)
	return true
}
