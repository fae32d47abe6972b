package thompson

import (
	"math"
	"slices"
	"strings"
)

// Stats are what a policy has done since it was made, and what it believes. They
// are a copy.
type Stats struct {
	Arms     []Arm // by worker and rank
	Pending  int   // decisions without an outcome
	Sessions int   // that may go on
	Timeouts uint64
	// Sticky counts requests that stayed where their session was, Switches those
	// that left.
	Sticky, Switches uint64
	// Unknown counts outcomes of decisions that were not this policy's, or that had
	// timed out; Abandoned, those that say nothing.
	Unknown, Abandoned uint64

	Overlap Histogram // cached part of the prompt where it went
	Reward  Histogram
	Latency Histogram // seconds from decision to end
	Reuse   Histogram // requests still expected of the session
	Tokens  Histogram // of prompt and answer
}

// Arm is what is known of one rank.
type Arm struct {
	Worker    string
	Rank      uint32
	Decisions uint64
	Pending   int
	// Alpha and Beta are the parameters of the belief on the whole.
	Alpha, Beta float64
	// Work is what its sessions are expected to bring.
	Work float64
}

// Histogram counts values. Counts[i] are those up to Bounds[i] and above the
// bound before; the last, those above all bounds.
type Histogram struct {
	Bounds []float64
	Counts []uint64
	Sum    float64
}

func histogram(bounds ...float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

func (h *Histogram) add(x float64) {
	if math.IsNaN(x) {
		return
	}
	i, _ := slices.BinarySearch(h.Bounds, x)
	h.Counts[i]++
	h.Sum += x
}

// Count returns how many values there are.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

func (h *Histogram) clone() Histogram {
	return Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum}
}

// counts are the counters of a policy.
type counts struct {
	timeouts, sticky, switches, unknown, abandoned uint64
	overlap, reward, latency, reuse, tokens        Histogram
}

func newCounts() counts {
	tenths := []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}
	return counts{
		overlap: histogram(tenths...),
		reward:  histogram(tenths...),
		latency: histogram(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
		reuse:   histogram(0, 1, 2, 4, 8, 16, 32),
		tokens:  histogram(64, 256, 1024, 4096, 16384, 65536, 262144, 1048576),
	}
}

func (n *counts) place(r *request, v *view) {
	n.overlap.add(v.overlap)
	n.reuse.add(r.reuse)
	if r.last == nil {
		return
	}
	if v.same {
		n.sticky++
	} else {
		n.switches++
	}
}

// Stats returns what there is to tell.
func (t *Policy) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := &t.counted
	s := Stats{
		Pending: t.pending.len(), Sessions: t.sessions.len(),
		Timeouts: n.timeouts, Sticky: n.sticky, Switches: n.switches, Unknown: n.unknown, Abandoned: n.abandoned,
		Overlap: n.overlap.clone(), Reward: n.reward.clone(), Latency: n.latency.clone(),
		Reuse: n.reuse.clone(), Tokens: n.tokens.clone(),
	}
	for key, a := range t.arms.all() {
		s.Arms = append(s.Arms, Arm{
			Worker: key.worker, Rank: key.rank, Decisions: a.decisions, Pending: a.pending,
			Alpha: a.success.a, Beta: a.success.b, Work: a.work,
		})
	}
	slices.SortFunc(s.Arms, func(a, b Arm) int {
		if c := strings.Compare(a.Worker, b.Worker); c != 0 {
			return c
		}
		return int(a.Rank) - int(b.Rank)
	})
	return s
}
