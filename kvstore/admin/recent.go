package admin

import (
	"github.com/dynago/dynago/internal/scrape"
	"github.com/dynago/dynago/kvstore"
)

// recent is the rates of hits of late.
type recent struct{ scrape.Recent }

// see takes note of the counters.
func (r *recent) see(st *kvstore.Stats) {
	hits := map[string]int64{}
	for _, t := range st.Tiers {
		hits[poolOf(t.Name)] += t.Hits
	}
	reads := st.Hits + st.Misses
	r.See(reads, reads, hits)
}

func (r *recent) figures() (figures []figure) {
	for _, pool := range []string{host, disk, object} {
		help := "Part of the last thousand reads or so that the " + pool + " pool answered."
		figures = append(figures, newFigure(gauge, "kvbm_"+pool+"_cache_hit_rate", help, nil, func(_ *kvstore.Stats, say func(float64, ...string)) {
			say(r.Rate(pool))
		}))
	}
	return figures
}
