package live

import "github.com/dynago/dynago/kv"

// RingEvents is how many events a journal keeps.
const RingEvents = ringEvents

// Journal is a journal with readers.
type Journal struct{ j *journal }

// NewJournal returns that of a rank in a life.
func NewJournal(rank uint32, epoch uint64) *Journal { return &Journal{newJournal(rank, epoch)} }

// Take, Renew and Mark are those of journals.
func (j *Journal) Take(b kv.Batch)               { j.j.take(b) }
func (j *Journal) Renew(epoch uint64, keep bool) { j.j.renew(epoch, keep) }

// Whole says whether all that the rank holds is known.
func (j *Journal) Whole() bool { return j.j.whole }

// Place is a reader's.
type Place struct{ r reader }

// Fresh returns the place of who knows nothing, and From that of a cursor.
func Fresh() *Place           { return &Place{reader{fresh: true}} }
func From(c kv.Cursor) *Place { return &Place{at(c)} }
func (p *Place) Cursor(rank uint32) kv.Cursor {
	return kv.Cursor{Rank: rank, Epoch: p.r.epoch, Sequence: p.r.last}
}

// Read returns what is new for a reader.
func (j *Journal) Read(p *Place) []kv.Batch { return j.j.read(&p.r) }
