package scrape

import "sync"

// recentReads is over how many reads a [Recent] goes back, or over a few more: as far
// as a look at the counters does.
const recentReads = 1000

// Recent is the rates of hits of late, out of counters that only tell of all times.
// They are looked at whenever the page is. The zero value has seen nothing.
type Recent struct {
	mu    sync.Mutex
	looks []look // the oldest first
}

// look is the counters at one moment.
type look struct {
	reads int64
	// asked is what hits are a share of; reads, unless these are of many things.
	asked int64
	hits  map[string]int64 // by pool
}

// See takes note of counters: how many reads there were, of how many things, and how
// many of those each pool has answered. The map is kept.
func (r *Recent) See(reads, asked int64, hits map[string]int64) {
	now := look{reads, asked, hits}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.looks); n > 1 && r.looks[n-1].reads == r.looks[n-2].reads {
		r.looks = r.looks[:n-1] // nothing happened between them
	}
	r.looks = append(r.looks, now)
	for len(r.looks) > 2 && now.reads-r.looks[1].reads >= recentReads {
		r.looks = r.looks[1:]
	}
}

// Rate returns the part of what was asked for recently that a pool has answered.
func (r *Recent) Rate(pool string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.looks) == 0 {
		return 0
	}
	first, last := r.looks[0], r.looks[len(r.looks)-1]
	if len(r.looks) == 1 {
		first = look{}
	}
	if last.asked <= first.asked {
		return 0
	}
	return float64(last.hits[pool]-first.hits[pool]) / float64(last.asked-first.asked)
}
