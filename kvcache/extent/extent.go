// Package extent divides a row of units, be they pages of memory or of a file,
// among values of any length. It knows numbers only, and has no lock.
//
// The one idea: free runs know their neighbours by both of their ends, so that
// what was split becomes one again, and lie in bins by length, so that a value
// takes a run little longer than itself and long runs stay whole. Where all
// values have one length, as in most caches, no run is ever split in vain.
package extent

import (
	"fmt"
	"math/bits"
	"slices"
)

// steps is the number of bins to each doubling of length.
const steps = 8

// Run is so many units from Start on.
type Run struct{ Start, Units uint32 }

// End returns the unit after the run.
func (r Run) End() uint32 { return r.Start + r.Units }

// Space is a row of units, each free or taken.
type Space struct {
	units, free uint32
	byStart     map[uint32]*gap
	byEnd       map[uint32]*gap
	bins        [33 * steps]*gap
	filled      [(33*steps + 63) / 64]uint64 // which bins have gaps
}

// gap is a longest free run, in the list of its bin.
type gap struct {
	Run
	prev, next *gap
}

// New returns a row of free units.
func New(units uint32) *Space { return Around(units, nil) }

// Around returns a row of units in which the given runs are taken. They are in
// order, disjoint, and within the row.
func Around(units uint32, taken []Run) *Space {
	s := &Space{units: units, byStart: map[uint32]*gap{}, byEnd: map[uint32]*gap{}}
	var from uint32
	for _, r := range append(slices.Clip(taken), Run{units, 0}) {
		if r.Start < from || r.End() < r.Start || r.End() > units {
			panic(fmt.Sprintf("extent: %v taken of %d units, after %d", r, units, from))
		}
		if r.Start > from {
			s.add(Run{from, r.Start - from})
			s.free += r.Start - from
		}
		from = r.End()
	}
	return s
}

// Units returns how many units there are.
func (s *Space) Units() uint32 { return s.units }

// Free returns how many units are free.
func (s *Space) Free() uint32 { return s.free }

// Extend adds n free units at the end.
func (s *Space) Extend(n uint32) {
	if n == 0 {
		return
	}
	old := Run{s.units, n}
	s.units += n
	s.Give(old)
}

// Take returns n free units in one run, now taken, if there are such.
func (s *Space) Take(n uint32) (Run, bool) {
	g := s.fit(n)
	if n == 0 || g == nil {
		return Run{}, false
	}
	s.drop(g)
	if g.Units > n {
		s.add(Run{g.Start + n, g.Units - n})
	}
	s.free -= n
	return Run{g.Start, n}, true
}

// TakeParts returns n free units, now taken, in at most most runs, if there are
// such: the longest ones, so that there are few.
func (s *Space) TakeParts(n uint32, most int) ([]Run, bool) {
	if r, ok := s.Take(n); ok {
		return []Run{r}, true
	}
	if n == 0 || n > s.free {
		return nil, false
	}
	var parts []Run
	for n > 0 && len(parts) < most {
		g := s.fit(n)
		if g == nil {
			g = s.longest()
		}
		r, _ := s.Take(min(n, g.Units))
		parts = append(parts, r)
		n -= r.Units
	}
	if n > 0 {
		for _, r := range parts {
			s.Give(r)
		}
		return nil, false
	}
	return parts, true
}

// Give frees the units of r, which were taken.
func (s *Space) Give(r Run) {
	if r.Units == 0 || r.End() < r.Start || r.End() > s.units {
		panic(fmt.Sprintf("extent: %v given to a space of %d units", r, s.units))
	}
	s.free += r.Units
	if g := s.byEnd[r.Start]; g != nil {
		s.drop(g)
		r = Run{g.Start, g.Units + r.Units}
	}
	if g := s.byStart[r.End()]; g != nil {
		s.drop(g)
		r.Units += g.Units
	}
	s.add(r)
}

// fit returns a gap of at least n units, of the first bin that has one.
func (s *Space) fit(n uint32) *gap {
	if n == 0 || n > s.free {
		return nil
	}
	b := bin(n)
	for g := s.bins[b]; g != nil; g = g.next {
		if g.Units >= n {
			return g
		}
	}
	if b = s.filledFrom(b + 1); b < 0 {
		return nil
	}
	return s.bins[b]
}

// longest returns a gap of the last bin that has one; there is a gap.
func (s *Space) longest() *gap {
	for w := len(s.filled) - 1; w >= 0; w-- {
		if s.filled[w] != 0 {
			return s.bins[w*64+63-bits.LeadingZeros64(s.filled[w])]
		}
	}
	return nil
}

// filledFrom returns the first bin from b on that has gaps, or -1.
func (s *Space) filledFrom(b int) int {
	if b >= len(s.bins) {
		return -1
	}
	w := b / 64
	for word := s.filled[w] &^ (1<<(b%64) - 1); ; word = s.filled[w] {
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
		if w++; w == len(s.filled) {
			return -1
		}
	}
}

func (s *Space) add(r Run) {
	b := bin(r.Units)
	g := &gap{Run: r, next: s.bins[b]}
	if g.next != nil {
		g.next.prev = g
	}
	s.bins[b] = g
	s.filled[b/64] |= 1 << (b % 64)
	s.byStart[r.Start], s.byEnd[r.End()] = g, g
}

func (s *Space) drop(g *gap) {
	b := bin(g.Units)
	if g.prev != nil {
		g.prev.next = g.next
	} else {
		s.bins[b] = g.next
	}
	if g.next != nil {
		g.next.prev = g.prev
	}
	if s.bins[b] == nil {
		s.filled[b/64] &^= 1 << (b % 64)
	}
	delete(s.byStart, g.Start)
	delete(s.byEnd, g.End())
}

// bin returns the bin of runs of n units: exact up to steps, then by the
// leading bits.
func bin(n uint32) int {
	if n < steps {
		return int(n)
	}
	shift := bits.Len32(n) - bits.Len32(steps)
	return (shift+1)*steps + int(n>>shift) - steps
}
