package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dynago/dynago/kvcache/extent"
)

// recover reads all records and makes entries of those that are true: the
// youngest of each key, if its pages are there and no younger entry has them. A
// key of which that is not so is gone: what it had before is not what was put
// last. The other records are erased, lest they be the youngest one day. Values
// are not read: they are checked whenever they are.
func (s *Store) recover(ctx context.Context) error {
	size, err := s.values.Size()
	if err != nil {
		return err
	}
	if most := s.opts.Capacity / page * page; size > most {
		if err := s.values.Truncate(most); err != nil {
			return err
		}
		size = most
	}
	found, err := s.readRecords(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b *entry) int { return cmp.Compare(b.seq, a.seq) })
	taken := pageSet{make([]uint64, (size/page+63)/64), size / page}
	gone := map[string]bool{}
	var runs []extent.Run
	for _, e := range found {
		s.seq = max(s.seq, e.seq)
		if s.entries[e.key] != nil || gone[e.key] || !taken.add(e.runs) {
			s.counts.Dropped++
			s.stale = append(s.stale, e.slot)
			gone[e.key] = s.entries[e.key] == nil
			continue
		}
		s.counts.Kept++
		s.entries[e.key] = e
		s.used += e.pages() * page
		runs = append(runs, e.runs...)
	}
	slices.SortFunc(runs, func(a, b extent.Run) int { return cmp.Compare(a.Start, b.Start) })
	s.space = extent.Around(uint32(size/page), runs)
	if err := s.eraseStale(); err != nil {
		return err
	}
	if s.opts.Sync {
		return s.records.Sync()
	}
	return nil
}

// readRecords returns all records that are whole, and finds the free slots.
func (s *Store) readRecords(ctx context.Context) ([]*entry, error) {
	size, err := s.records.Size()
	if err != nil {
		return nil, err
	}
	s.slots = size / slot
	var found []*entry
	buf := make([]byte, min(s.slots, 2048)*slot)
	for from := int64(0); from < s.slots; from += int64(len(buf) / slot) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		part := buf[:min(int64(len(buf)), (s.slots-from)*slot)]
		if n, err := s.records.ReadAt(part, from*slot); n < len(part) {
			return nil, fmt.Errorf("records %d to %d: %w", from, from+int64(len(part)/slot), errors.Join(io.ErrUnexpectedEOF, err))
		}
		for i := 0; i < len(part); i += slot {
			at := from + int64(i/slot)
			r, err := decode(part[i : i+slot])
			if err == nil {
				found = append(found, &entry{record: *r, slot: at, refs: 1})
				continue
			}
			if slices.ContainsFunc(part[i:i+slot], func(b byte) bool { return b != 0 }) {
				s.counts.Torn++
			}
			s.free = append(s.free, at)
		}
	}
	slices.Reverse(s.free) // the first ones are taken first
	return found, nil
}

// pageSet is a set of the first n pages.
type pageSet struct {
	words []uint64
	n     int64
}

// add adds all pages of the runs, or none if one is in the set or not among the
// first n.
func (p pageSet) add(runs []extent.Run) bool {
	for i, r := range runs {
		for at := int64(r.Start); at < int64(r.Start)+int64(r.Units); at++ {
			if at < p.n && p.words[at/64]&(1<<(at%64)) == 0 {
				p.words[at/64] |= 1 << (at % 64)
				continue
			}
			p.remove(extent.Run{Start: r.Start, Units: uint32(at - int64(r.Start))})
			for _, done := range runs[:i] {
				p.remove(done)
			}
			return false
		}
	}
	return true
}

func (p pageSet) remove(r extent.Run) {
	for at := int64(r.Start); at < int64(r.Start)+int64(r.Units); at++ {
		p.words[at/64] &^= 1 << (at % 64)
	}
}
