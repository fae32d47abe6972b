package agents

import (
	"cmp"
	"slices"
	"time"

	"github.com/dynago/dynago/sim/trace"
)

// History is a workload in blocks, to see from what came of its requests what was
// computed more than once, and how much was ever of use at a time.
type History struct {
	work    []trace.Request
	at      map[string]int // by id, in work
	prompts [][]int32      // blocks that are whole and not the last one, which is always computed
	wholes  [][]int32      // with those of the answer
	Blocks  int            // different ones
}

const historyBlock = 64 // tokens

// NewHistory cuts the prompts of a workload, and its answers, into blocks.
func NewHistory(w []trace.Request) *History {
	h := &History{work: w, at: make(map[string]int, len(w))}
	both := make([]trace.Request, 0, 2*len(w))
	for i, r := range w {
		h.at[r.ID] = i
		both = append(both, r, trace.Request{Prompt: slices.Concat(r.Prompt, r.Answer)})
	}
	chains := trace.Chains(both, historyBlock)
	for i, r := range w {
		n := r.Prompt.Len()
		h.prompts = append(h.prompts, chains[2*i][:(n-1)/historyBlock])
		h.wholes = append(h.wholes, chains[2*i+1][:(n+r.Answer.Len())/historyBlock])
	}
	for _, chain := range h.wholes {
		for _, block := range chain {
			h.Blocks = max(h.Blocks, int(block)+1)
		}
	}
	return h
}

// moment is something that happens to a request.
type moment struct {
	at     time.Duration
	of     *Outcome
	begins bool // else what it has computed is there
}

// moments are those of all requests in their order: what ends at one is there for
// what begins at it.
func moments(all []Outcome) []moment {
	var list []moment
	for i := range all {
		o := &all[i]
		list = append(list, moment{o.Admitted, o, true}, moment{o.First, o, false}, moment{o.Ended, o, false})
	}
	slices.SortStableFunc(list, func(a, b moment) int {
		order := cmp.Compare(a.at, b.at)
		if order == 0 && a.begins != b.begins {
			order = 1
			if b.begins {
				order = -1
			}
		}
		return order
	})
	return list
}

// WorkingSet returns how many blocks there were at most at a time that had been
// used and would be used again: with a cache of that size nothing need be computed
// twice.
func (h *History) WorkingSet(all []Outcome) int {
	type life struct{ first, last time.Duration }
	lives := make([]life, h.Blocks)
	for i := range lives {
		lives[i].first = -1
	}
	for _, r := range all {
		for _, block := range h.prompts[h.at[r.ID]] {
			l := &lives[block]
			if l.first < 0 || r.Admitted < l.first {
				l.first = r.Admitted
			}
			l.last = max(l.last, r.Admitted)
		}
	}
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, l := range lives {
		if l.first >= 0 {
			changes = append(changes, change{l.first, 1}, change{l.last, -1})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now, most := 0, 0
	for _, c := range changes {
		now += c.by
		most = max(most, now)
	}
	return most
}

// again returns how many tokens of its prompt each request has computed that some
// request had computed before.
func (h *History) again(all []Outcome) map[string]int {
	computed := make([]bool, h.Blocks)
	again := make(map[string]int, len(all))
	for _, m := range moments(all) {
		i := h.at[m.of.ID]
		if m.begins {
			n := 0
			for n < len(h.prompts[i]) && computed[h.prompts[i][n]] {
				n++
			}
			again[m.of.ID] = max(0, n*historyBlock-m.of.Cached)
			continue
		}
		there := h.prompts[i]
		if m.at == m.of.Ended {
			there = h.wholes[i]
		}
		for _, block := range there {
			computed[block] = true
		}
	}
	return again
}

// common returns how many tokens the prompts of two requests begin with that are the
// same, in whole blocks.
func (h *History) common(a, b int) int {
	p, q := h.prompts[a], h.prompts[b]
	n := 0
	for n < min(len(p), len(q)) && p[n] == q[n] {
		n++
	}
	return n * historyBlock
}
