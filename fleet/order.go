package fleet

import (
	"cmp"
	"slices"

	"github.com/dynago/dynago/kv"
)

// verdict says what is to be done with a batch.
type verdict uint8

const (
	ignore verdict = iota // nothing new
	apply
	hole // events in or before it are missing; the stream must be opened again
)

// order puts the events of one worker in sequence, rank by rank. The zero value
// has heard nothing.
type order struct{ ranks map[uint32]*progress }

// progress is how far one rank has been told.
type progress struct {
	epoch      uint64
	last       uint64 // newest event applied, if numbered
	numbered   bool
	rebuilding bool // within a snapshot
	told       bool // something, since the last gap
}

// next judges the next batch of the stream and returns the part of it that is
// new. A batch that does not continue what was told before comes back with a
// gap, so that it replaces that. Of a rank of which nothing has been told there
// is nothing to replace, however often the engine says so.
func (o *order) next(b kv.Batch) (kv.Batch, verdict) {
	p, known := o.ranks[b.Rank]
	anew := b.Gap
	switch {
	case !known:
		p = &progress{}
		if o.ranks == nil {
			o.ranks = make(map[uint32]*progress)
		}
		o.ranks[b.Rank] = p
	case b.Gap != "":
	case b.Epoch != p.epoch:
		anew = kv.GapRestart
	case b.Snapshot != kv.SnapshotNone && !p.rebuilding:
		anew = kv.GapLost
	case b.Snapshot == kv.SnapshotNone && p.rebuilding:
		return b, hole // the rest of the snapshot
	}
	if b.Gap = ""; anew != "" {
		if p.told {
			b.Gap = anew
		}
		*p = progress{}
	}
	news := len(b.Events) > 0 || b.Snapshot != kv.SnapshotNone
	p.epoch, p.told = b.Epoch, p.told || news
	p.rebuilding = b.Snapshot == kv.SnapshotPart
	switch {
	case b.Snapshot == kv.SnapshotPart:
		p.numbered = false
		return b, apply
	case b.Snapshot == kv.SnapshotEnd, !p.numbered:
		p.last, p.numbered = b.Last, b.Snapshot == kv.SnapshotEnd || b.Last > 0
		if !news && b.Gap == "" {
			return b, ignore
		}
		return b, apply
	case b.Last <= p.last:
		return b, ignore
	case b.First > p.last+1, len(b.Events) == 0, b.Last-b.First != uint64(len(b.Events)-1):
		p.numbered = false
		return b, hole
	}
	b.First, b.Events = p.last+1, b.Events[p.last+1-b.First:]
	p.last = b.Last
	return b, apply
}

// restart leaves no rank where it can go on.
func (o *order) restart() {
	for _, p := range o.ranks {
		p.numbered = false
	}
}

// forget leaves no rank, and returns those of which something was told.
func (o *order) forget() (told []uint32) {
	for rank, p := range o.ranks {
		if p.told {
			told = append(told, rank)
		}
	}
	clear(o.ranks)
	slices.Sort(told)
	return told
}

// resume returns where each rank goes on in a new stream, and the ranks that
// cannot and must be forgotten.
func (o *order) resume() (cursors []kv.Cursor, broken []uint32) {
	for rank, p := range o.ranks {
		if p.numbered && !p.rebuilding {
			cursors = append(cursors, kv.Cursor{Rank: rank, Epoch: p.epoch, Sequence: p.last})
			continue
		}
		broken = append(broken, rank)
		delete(o.ranks, rank)
	}
	slices.SortFunc(cursors, func(a, b kv.Cursor) int { return cmp.Compare(a.Rank, b.Rank) })
	slices.Sort(broken)
	return cursors, broken
}
