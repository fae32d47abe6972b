package live

import (
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// ringEvents is how many events of a rank are kept for those who come back.
const ringEvents = 4096

// journal is what one rank has told in the present life of its engine: the newest
// events by their numbers, and all that it holds. It is a plain data structure.
//
// Numbers go on over gaps: whatever begins anew takes a number of its own, so that
// a place in the journal says of itself whether it is still one.
type journal struct {
	rank  uint32
	epoch uint64
	last  uint64 // number of the newest event; they count from 1
	ring  []kv.Event

	begun  uint64       // the number that the newest beginning took: what is before is void
	reason kv.GapReason // why it is
	held   *kvevent.Holdings
	// whole says that nothing else is held; rebuilding that it is being told what is.
	// Without either the rank is known partially.
	whole, rebuilding bool
}

func newJournal(rank uint32, epoch uint64) *journal {
	return &journal{rank: rank, epoch: epoch, held: kvevent.NewHoldings(0)}
}

// renew begins another life. What was told before is of it if it is to be kept.
func (j *journal) renew(epoch uint64, keep bool) {
	if !keep {
		*j = *newJournal(j.rank, epoch)
		return
	}
	j.epoch, j.last, j.begun, j.ring = epoch, 0, 0, nil
	if j.held.Blocks() > 0 {
		j.begin(kv.GapRestart)
	}
}

// take notes what the source has told.
func (j *journal) take(b kv.Batch) {
	if b.Gap != "" {
		j.forget(b.Gap)
	}
	if b.Snapshot == kv.SnapshotPart && !j.rebuilding {
		j.forget(kv.GapLost)
		j.rebuilding = true
	}
	for i := range b.Events {
		j.held.Apply(&b.Events[i])
		if !j.rebuilding {
			j.push(b.Events[i])
		}
	}
	if b.Snapshot == kv.SnapshotEnd {
		if j.held.Blocks() > 0 {
			j.begin(j.reason)
		}
		j.whole, j.rebuilding = true, false
	}
	j.whole = j.whole && j.held.Whole()
}

// forget makes what was told void, if something was.
func (j *journal) forget(reason kv.GapReason) {
	if j.last == j.begun && !j.whole && !j.rebuilding && j.held.Blocks() == 0 {
		return
	}
	j.held = kvevent.NewHoldings(0)
	j.whole, j.rebuilding = false, false
	j.begin(reason)
}

// begin makes all places void.
func (j *journal) begin(reason kv.GapReason) {
	j.push(kv.Event{})
	j.begun, j.reason = j.last, reason
}

func (j *journal) push(e kv.Event) {
	j.last++
	if len(j.ring) < ringEvents {
		j.ring = append(j.ring, e)
	} else {
		j.ring[(j.last-1)%ringEvents] = e
	}
}

// oldest is the number of the oldest event that is kept, or would be next.
func (j *journal) oldest() uint64 { return j.last - uint64(len(j.ring)) + 1 }

// reader is a place in a journal.
type reader struct {
	epoch, last uint64
	fresh       bool // has been told nothing, not even that there is nothing
	empty       bool // has nothing that could be void
	whole       bool // has been told all that was held
	live        bool // has been up to date since it began
}

// at returns the reader of a cursor.
func at(c kv.Cursor) reader { return reader{epoch: c.Epoch, last: c.Sequence, whole: true} }

// read returns what comes behind the reader's place, in batches, and moves it on.
// Where the journal does not go on from there it begins anew: with a gap, unless
// the reader has nothing, and then with all that is held, if that is known.
func (j *journal) read(r *reader) []kv.Batch {
	gap := kv.GapReason("")
	switch {
	case r.fresh:
	case r.epoch != j.epoch:
		gap = kv.GapRestart
	case r.last > j.last:
		gap = kv.GapFuture
	case r.last < j.begun || j.whole && !r.whole:
		if !r.empty {
			gap = j.void()
		}
	case r.last+1 < j.oldest():
		if gap = kv.GapTooOld; r.live {
			gap = kv.GapOverflow
		}
	default:
		return j.follow(r, nil)
	}
	var out []kv.Batch
	if gap != "" {
		out = append(out, kv.Batch{Rank: j.rank, Epoch: j.epoch, Gap: gap})
	}
	*r = reader{epoch: j.epoch, last: max(j.begun, j.oldest()-1), empty: true}
	if !j.whole {
		return j.follow(r, out)
	}
	for _, events := range kv.Cut(j.held.Dump()) {
		out = append(out, kv.Batch{Rank: j.rank, Epoch: j.epoch, Events: events, Snapshot: kv.SnapshotPart})
	}
	*r = reader{epoch: j.epoch, last: j.last, whole: true, live: true}
	return append(out, kv.Batch{Rank: j.rank, Epoch: j.epoch, Last: j.last, Snapshot: kv.SnapshotEnd})
}

// void is why the places before the newest beginning are none.
func (j *journal) void() kv.GapReason {
	if j.reason == "" {
		return kv.GapTooOld // they are of a time before anybody listened
	}
	return j.reason
}

// follow adds the events behind the reader's place, which are all kept.
func (j *journal) follow(r *reader, out []kv.Batch) []kv.Batch {
	events := make([]kv.Event, 0, j.last-r.last)
	for n := r.last + 1; n <= j.last; n++ {
		events = append(events, j.ring[(n-1)%ringEvents])
	}
	for _, part := range kv.Cut(events) {
		first := r.last + 1
		r.last += uint64(len(part))
		out = append(out, kv.Batch{Rank: j.rank, Epoch: j.epoch, First: first, Last: r.last, Events: part})
	}
	r.empty, r.live = r.empty && len(events) == 0, true
	return out
}

// mark is a batch without news.
func (j *journal) mark() kv.Batch { return kv.Batch{Rank: j.rank, Epoch: j.epoch, Last: j.last} }
