package router

import "math"

// Reason names what decided for a candidate.
type Reason string

// The reasons.
const (
	ReasonNecessity  Reason = "necessity"  // there was no other
	ReasonCache      Reason = "cache"      // more of the prompt is cached there
	ReasonLoad       Reason = "load"       // less is going on there
	ReasonPreference Reason = "preference" // the request prefers its taints
	ReasonTie        Reason = "tie"        // others cost the same
	ReasonChance     Reason = "chance"     // others cost less, and it was drawn at a temperature
	ReasonPin        Reason = "pin"        // the request, or its session, names it
	ReasonPolicy     Reason = "policy"     // others cost less, and the policy wanted it
)

// Comparison is a candidate against the best of the others.
type Comparison struct {
	Reason Reason
	Next   int // row of the best other one; -1: there is none
	Ties   int // rows that cost the same as the one taken, itself included
	// How much better the one taken is than Next, in tokens as the cost counts them:
	// by what is cached, and by what is going on. Below 0 it is worse.
	Cache, Load float64
}

// Compare says why the row at taken is where a request goes, as far as costs tell.
func Compare(rows []Row, taken int) Comparison {
	t := &rows[taken]
	c := Comparison{Next: -1, Ties: 1}
	least := math.Inf(1)
	for i := range rows {
		if i == taken {
			continue
		}
		cost := tokens(&rows[i].Candidate)
		if c.Next < 0 || cost < least { // which may be endless for all
			c.Next, least = i, cost
		}
		if cost == tokens(&t.Candidate) {
			c.Ties++
		}
	}
	if c.Next < 0 {
		c.Reason = ReasonNecessity
		return c
	}
	n := &rows[c.Next]
	c.Cache, c.Load = t.saved()-n.saved(), n.busy()-t.busy()
	switch cost := tokens(&t.Candidate); {
	case cost > least && t.Chance > 0:
		c.Reason = ReasonChance
	case cost > least:
		c.Reason = ReasonPolicy
	case cost == least:
		c.Reason = ReasonTie
	case c.Cache > 0 && c.Cache >= c.Load:
		c.Reason = ReasonCache
	case c.Load > 0:
		c.Reason = ReasonLoad
	default:
		c.Reason = ReasonPreference
	}
	return c
}

// saved is what the cache takes off the cost, in tokens.
func (r *Row) saved() float64 { return r.Terms.Scale * r.Terms.Credit * float64(r.BlockSize) }

// busy is what a request would cost if nothing were cached, in tokens.
func (r *Row) busy() float64 {
	return (r.Terms.Scale*r.Terms.RawPrefill + float64(r.DecodeBlocks) + r.Terms.Requests) * float64(r.BlockSize)
}
