package kvevent

import (
	"slices"

	"github.com/dynago/dynago/kv"
)

// teller makes batches of what an [Order] finds out about one rank. Each time
// the rank has to be forgotten a new epoch begins, in which events are numbered
// from 1 on. A rank is known completely from the end of a snapshot on, and
// partially until then.
type teller struct {
	rank    uint32   // as told; what messages say of themselves is their decoder's
	decoder *Decoder // of the rank's messages, if it has such
	send    func(kv.Batch)

	epoch uint64
	seq   uint64 // number of the newest event told
	mode  mode
	told  bool     // something, in this epoch
	read  []uint32 // ranks that messages have said of themselves
}

// mode is how much of a rank has been told.
type mode uint8

const (
	partial mode = iota
	rebuilding
	exact
)

// Apply implements [Effects].
func (t *teller) Apply(m Message) (cleared bool, err error) {
	rank, events, err := t.decoder.Decode(m.Payload)
	if err != nil {
		return false, err
	}
	if !slices.Contains(t.read, rank) {
		t.read = append(t.read, rank)
	}
	last := -1
	for i := range events {
		if events[i].Kind == kv.Cleared {
			last = i
		}
	}
	if last >= 0 && t.mode == partial {
		// Now nothing is there, and so everything is known.
		t.begin(kv.GapRestart)
		t.Complete()
		events = events[last+1:]
	}
	t.tell(events)
	return last >= 0, nil
}

// Clear implements [Effects].
func (t *teller) Clear(reason kv.GapReason) {
	t.forget()
	t.begin(reason)
}

// forget makes the decoder forget all ranks that it has read of.
func (t *teller) forget() {
	for _, rank := range t.read {
		t.decoder.Forget(rank)
	}
	t.read = t.read[:0]
}

// Rebuild implements [Effects].
func (t *teller) Rebuild() { t.mode = rebuilding }

// Complete implements [Effects].
func (t *teller) Complete() {
	t.mode, t.told = exact, true
	t.send(kv.Batch{Rank: t.rank, Epoch: t.epoch, Last: t.seq, Snapshot: kv.SnapshotEnd})
}

// begin begins an epoch, unless nothing was told in the present one.
func (t *teller) begin(reason kv.GapReason) {
	t.seq, t.mode = 0, partial
	if t.told {
		t.told = false
		t.epoch++
		t.send(kv.Batch{Rank: t.rank, Epoch: t.epoch, Gap: reason})
	}
}

// beginAnew begins an epoch for a consumer that knows nothing of it, or has a
// cursor in another one.
func (t *teller) beginAnew(cursor bool) {
	t.told = cursor
	if !cursor {
		t.epoch++
	}
	t.begin(kv.GapRestart)
}

// tell sends events, in batches of their own memory.
func (t *teller) tell(events []kv.Event) {
	for _, events := range kv.Cut(keep(events)) {
		t.told = true
		b := kv.Batch{Rank: t.rank, Epoch: t.epoch, Events: events}
		if t.mode == rebuilding {
			b.Snapshot = kv.SnapshotPart
		} else {
			b.First, b.Last = t.seq+1, t.seq+uint64(len(events))
			t.seq = b.Last
		}
		t.send(b)
	}
}

// keep copies events with their blocks.
func keep(events []kv.Event) []kv.Event {
	n := 0
	for i := range events {
		n += len(events[i].Blocks)
	}
	out, blocks := slices.Clone(events), make([]kv.Block, 0, n)
	for i := range out {
		from := len(blocks)
		blocks = append(blocks, out[i].Blocks...)
		out[i].Blocks = blocks[from:len(blocks):len(blocks)]
	}
	return out
}
