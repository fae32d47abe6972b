package store

import (
	"cmp"
	"context"
	"iter"
	"slices"
)

// Listing is what a driver that knows all its entries says of them. The zero value
// is an empty one.
type Listing struct{ lines []listed }

type listed struct {
	seq uint64
	Entry
}

// Add notes an entry that was put as number seq.
func (l *Listing) Add(seq uint64, e Entry) { l.lines = append(l.lines, listed{seq, e}) }

// Each yields the entries in the order of their numbers, until ctx ends, whose
// error is the last item then.
func (l *Listing) Each(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		slices.SortFunc(l.lines, func(a, b listed) int { return cmp.Compare(a.seq, b.seq) })
		for _, line := range l.lines {
			if err := ctx.Err(); err != nil {
				yield(Entry{}, err)
				return
			}
			if !yield(line.Entry, nil) {
				return
			}
		}
	}
}
