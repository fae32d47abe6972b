package sim

import "github.com/dynago/dynago/kv"

// Caches returns what every rank really holds, by target and tier, as sets of the
// sequence hashes of blocks.
func (s *Simulation) Caches() map[kv.Target]*[tiers]map[kv.EngineHash]bool {
	caches := make(map[kv.Target]*[tiers]map[kv.EngineHash]bool)
	for _, w := range s.workers {
		for _, r := range w.ranks {
			if r.core == nil {
				continue // the worker has left
			}
			held := new([tiers]map[kv.EngineHash]bool)
			for i := range held {
				held[i] = make(map[kv.EngineHash]bool)
			}
			for _, e := range r.core.Stored() {
				for _, b := range e.Blocks {
					held[e.Tier][b.Engine] = true
				}
			}
			caches[kv.Target{Worker: w.id, Rank: r.number}] = held
		}
	}
	return caches
}

// Running returns how many requests are in the simulation and have not ended.
func (s *Simulation) Running() int { return s.intake.running }

// Workers returns how many workers there have been, and Gone whether one has
// left.
func (s *Simulation) Workers() int { return len(s.workers) }

func (s *Simulation) Gone(n int) bool { return s.workers[n].gone }

// Starve waits for a request that nobody has sent.
func (s *Simulation) Starve() error {
	s.intake.left = 1
	return s.play()
}

// Resync lets the router ask for all events of a worker anew, as it does when it
// doubts them.
func (s *Simulation) Resync(n int) { s.workers[n].reporter.Worker().Resync() }
