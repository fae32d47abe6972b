package admin

import (
	"sync"

	"github.com/dynago/dynago/kvstore"
)

// recentReads is over how many reads the rates of hits are taken, or over a few
// more: as far back as a look at the counters goes.
const recentReads = 1000

// recent is the rates of hits of late. The counters are looked at whenever the
// page is.
type recent struct {
	mu    sync.Mutex
	looks []look // the oldest first
}

// look is the counters at one moment.
type look struct {
	reads int64
	hits  map[string]int64 // by pool
}

// see takes note of the counters.
func (r *recent) see(st *kvstore.Stats) {
	now := look{reads: st.Hits + st.Misses, hits: map[string]int64{}}
	for _, t := range st.Tiers {
		now.hits[poolOf(t.Name)] += t.Hits
	}
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

// rate returns the part of the recent reads that a pool answered.
func (r *recent) rate(pool string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.looks) == 0 {
		return 0
	}
	first, last := r.looks[0], r.looks[len(r.looks)-1]
	if len(r.looks) == 1 {
		first = look{}
	}
	if last.reads == first.reads {
		return 0
	}
	return float64(last.hits[pool]-first.hits[pool]) / float64(last.reads-first.reads)
}

func (r *recent) figures() (figures []figure) {
	for _, pool := range []string{host, disk, object} {
		help := "Part of the last thousand reads or so that the " + pool + " pool answered."
		figures = append(figures, newFigure(gauge, "kvbm_"+pool+"_cache_hit_rate", help, nil, func(_ *kvstore.Stats, say func(float64, ...string)) {
			say(r.rate(pool))
		}))
	}
	return figures
}
