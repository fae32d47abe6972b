package mock

import "github.com/dynago/dynago/kv"

// ringEvents is how many events are kept for those who come back.
const ringEvents = 4096

// journal keeps the newest events of one rank and says what a reader at some
// place in them has to be told. It is a plain data structure.
type journal struct {
	rank  uint32
	epoch uint64
	last  uint64 // number of the newest event; they count from 1
	ring  []kv.Event
}

// restart begins another life: nothing of the old one can be read any more.
func (j *journal) restart(epoch uint64) {
	clear(j.ring)
	j.epoch, j.last, j.ring = epoch, 0, j.ring[:0]
}

func (j *journal) append(events []kv.Event) {
	for _, e := range events {
		j.last++
		if len(j.ring) < ringEvents {
			j.ring = append(j.ring, e)
		} else {
			j.ring[(j.last-1)%ringEvents] = e
		}
	}
}

// oldest is the number of the oldest event that is kept, or would be next.
func (j *journal) oldest() uint64 { return j.last - uint64(len(j.ring)) + 1 }

// reader is a place in a journal.
type reader struct {
	epoch, last uint64
	fresh       bool // knows nothing yet
	live        bool // has been up to date since it began
}

// read returns the events after the reader's place, in batches, and moves it
// on. If the journal cannot continue from there it begins again: a gap, unless
// the reader is fresh, and a snapshot, for which stored is asked.
func (j *journal) read(r *reader, stored func() []kv.Event) []kv.Batch {
	gap := kv.GapReason("")
	switch {
	case r.fresh:
	case r.epoch != j.epoch:
		gap = kv.GapRestart
	case r.last > j.last:
		gap = kv.GapFuture
	case r.last+1 < j.oldest() && r.live:
		gap = kv.GapOverflow
	case r.last+1 < j.oldest():
		gap = kv.GapTooOld
	default:
		out := j.tail(r.last)
		r.last, r.live = j.last, true
		return out
	}
	var out []kv.Batch
	if gap != "" {
		out = append(out, kv.Batch{Rank: j.rank, Epoch: j.epoch, Gap: gap})
	}
	for _, events := range kv.Cut(stored()) {
		out = append(out, kv.Batch{Rank: j.rank, Epoch: j.epoch, Events: events, Snapshot: kv.SnapshotPart})
	}
	out = append(out, kv.Batch{Rank: j.rank, Epoch: j.epoch, Last: j.last, Snapshot: kv.SnapshotEnd})
	*r = reader{epoch: j.epoch, last: j.last, live: true}
	return out
}

// tail returns the events after number last, which are all kept.
func (j *journal) tail(last uint64) []kv.Batch {
	events := make([]kv.Event, 0, j.last-last)
	for n := last + 1; n <= j.last; n++ {
		events = append(events, j.ring[(n-1)%ringEvents])
	}
	var out []kv.Batch
	for _, part := range kv.Cut(events) {
		first := last + 1
		last += uint64(len(part))
		out = append(out, kv.Batch{Rank: j.rank, Epoch: j.epoch, First: first, Last: last, Events: part})
	}
	return out
}
