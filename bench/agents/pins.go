package agents

import (
	"slices"
	"time"

	"github.com/dynago/dynago/sim/agenttrace"
	"github.com/dynago/dynago/sim/trace"
)

// Pinning are agents of which some pin, whose working set is to be three times as large
// as the cache.
type Pinning struct {
	// Asking are the requests of agents that only pin; Telling the same ones, if their
	// sessions say that they end.
	Asking, Telling []trace.Request
	Leads           int
	Pin             map[string]bool // sessions of leads that pin
}

// PinTTL is for how long they pin, from the last time on that the prompt was used.
const PinTTL = 5 * time.Minute

// NewPinning makes so many leads and their sub-agents, of which a part pins. With keep
// templates show the thinking of earlier turns, so that all that was computed of
// an answer can be used again, and nobody need know which part of it was thinking.
func NewPinning(leads int, part float64, keep bool) (*Pinning, error) {
	c := agenttrace.Default()
	c.Leads, c.Rate = leads, 0.12
	c.PinTTL, c.Pinned = PinTTL, part
	c.KeepThinking = keep
	p := &Pinning{Leads: leads, Pin: map[string]bool{}}
	var err error
	if p.Asking, err = collect(c.Requests()); err != nil {
		return nil, err
	}
	c.Tell = true
	if p.Telling, err = collect(c.Requests()); err != nil {
		return nil, err
	}
	for _, r := range p.Asking {
		if len(r.KV.Pins) > 0 {
			p.Pin[r.Session] = true
		}
	}
	return p, nil
}

// PinRun is what one way to keep blocks made of the same requests.
type PinRun struct {
	Name string
	// Held is the share of the budget that was pinned, on average over the time in
	// which leads began; 0 where nobody has looked.
	Held float64
	// Of the blocks that were pinned when a lead's tools or sub-agents set to work,
	// and that its next prompt begins with, Present is the share that was there then.
	Pauses  int
	Present float64
	// Tokens that leads who pin, and the others with all sub-agents, computed though
	// they had been computed before, and the shares of their prompts that were cached.
	AgainPinned, AgainOthers int
	HitPinned, HitOthers     float64
	TTFTPinned, TTFTOthers   float64 // median, milliseconds
}

// Judge looks at what came of the requests of leads that pin, and of the others.
func (h *History) Judge(all []Outcome, pin map[string]bool) (p PinRun) {
	again := h.again(all)
	last := map[string]*Outcome{} // of each session
	input, cached := map[bool]int{}, map[bool]int{}
	ttft := map[bool][]float64{}
	promised, kept := 0, 0
	inOrder := slices.Clone(all)
	slices.SortStableFunc(inOrder, func(a, b Outcome) int { return int(a.Admitted - b.Admitted) })
	for i := range inOrder {
		o := &inOrder[i]
		mine := pin[o.Session]
		input[mine] += o.Input
		cached[mine] += o.Cached
		ttft[mine] = append(ttft[mine], (o.First-o.Arrived).Seconds()*1000)
		if mine {
			p.AgainPinned += again[o.ID]
		} else {
			p.AgainOthers += again[o.ID]
		}
		if before := last[o.Session]; before != nil && before.Pinned > 0 {
			want := min(before.Pinned, h.common(h.at[before.ID], h.at[o.ID]))
			p.Pauses++
			promised += want
			kept += min(want, o.Cached)
		}
		last[o.Session] = o
	}
	if promised > 0 {
		p.Present = float64(kept) / float64(promised)
	}
	for _, mine := range []bool{true, false} {
		slices.Sort(ttft[mine])
	}
	p.HitPinned, p.HitOthers = ratio(cached[true], input[true]), ratio(cached[false], input[false])
	p.TTFTPinned, p.TTFTOthers = median(ttft[true]), median(ttft[false])
	return p
}

func ratio(part, whole int) float64 { return float64(part) / float64(max(whole, 1)) }
