package sim

import "time"

// agenda is what will happen, as a heap in the order of time. At one moment,
// changes of the fleet come first, then what engines have finished, then new
// requests; what is alike comes in the order in which it was put down.
type agenda struct {
	entries []entry
	last    uint64
}

type entry struct {
	at    time.Duration
	class class
	n     uint64
	do    func() error
}

type class uint8

const (
	changes class = iota
	passes
	arrivals
)

func (e *entry) before(o *entry) bool {
	switch {
	case e.at != o.at:
		return e.at < o.at
	case e.class != o.class:
		return e.class < o.class
	}
	return e.n < o.n
}

// next returns the time of the first entry.
func (a *agenda) next() (time.Duration, bool) {
	if len(a.entries) == 0 {
		return 0, false
	}
	return a.entries[0].at, true
}

func (a *agenda) add(at time.Duration, c class, do func() error) {
	a.last++
	a.entries = append(a.entries, entry{at, c, a.last, do})
	h := a.entries
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// take removes the first entry if its time has come.
func (a *agenda) take(now time.Duration) (do func() error, ok bool) {
	if len(a.entries) == 0 || a.entries[0].at > now {
		return nil, false
	}
	h := a.entries
	do = h[0].do
	n := len(h) - 1
	h[0], h[n] = h[n], entry{}
	h = h[:n]
	a.entries = h
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < n && h[down].before(&h[least]) {
				least = down
			}
		}
		if least == i {
			return do, true
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
