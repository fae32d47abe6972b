package router

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/dynago/dynago/engine"
)

// builtin returns the policy of a mode. It is not safe for concurrent use.
func builtin(m Mode, temperature float64, r *rand.Rand) Policy {
	switch m {
	case RoundRobin:
		return roundRobin{}
	case Random:
		return random{r}
	case PowerOfTwo:
		return powerOfTwo{r}
	case LeastLoaded:
		return leastLoaded{r}
	case Direct:
		return direct{}
	}
	return leastCost{temperature, r}
}

// roundRobin takes the candidate whose turn was longest ago, so that it stays
// fair while workers come and go.
type roundRobin struct{}

func (roundRobin) Pick(_ context.Context, _ *Query, c []Candidate) (int, error) {
	best := 0
	for i := range c {
		if c[i].LastPick < c[best].LastPick {
			best = i
		}
	}
	return best, nil
}

type random struct{ rand *rand.Rand }

func (p random) Pick(_ context.Context, _ *Query, c []Candidate) (int, error) {
	return p.rand.IntN(len(c)), nil
}

type powerOfTwo struct{ rand *rand.Rand }

func (p powerOfTwo) Pick(_ context.Context, _ *Query, c []Candidate) (int, error) {
	i := p.rand.IntN(len(c))
	if len(c) == 1 {
		return i, nil
	}
	j := (i + 1 + p.rand.IntN(len(c)-1)) % len(c)
	if c[j].Requests < c[i].Requests {
		return j, nil
	}
	return i, nil
}

type leastLoaded struct{ rand *rand.Rand }

func (p leastLoaded) Pick(_ context.Context, _ *Query, c []Candidate) (int, error) {
	return least(p.rand, c, func(c *Candidate) float64 { return float64(c.Requests) }), nil
}

// direct is asked only about requests that name no worker.
type direct struct{}

func (direct) Pick(context.Context, *Query, []Candidate) (int, error) {
	return 0, &engine.Error{
		Kind: engine.InvalidArgument, Param: "nvext.backend_instance_id",
		Message: "the request names no worker, and in router mode direct every request must name one",
	}
}

// leastCost takes the least cost in tokens, so that candidates with blocks of
// different size compare.
type leastCost struct {
	temperature float64
	rand        *rand.Rand
}

func (p leastCost) Pick(_ context.Context, q *Query, c []Candidate) (int, error) {
	temperature := p.temperature
	if q.Overrides != nil && q.Overrides.Temperature != nil {
		temperature = *q.Overrides.Temperature
	}
	if temperature > 0 {
		return soften(p.rand.Float64(), c, temperature), nil
	}
	return least(p.rand, c, tokens), nil
}

func tokens(c *Candidate) float64 { return c.Cost * float64(c.BlockSize) }

// least returns the candidate with the least value. Of equal ones each has the
// same chance: the k-th replaces the choice with probability 1/k.
func least(r *rand.Rand, c []Candidate, value func(*Candidate) float64) int {
	best, ties := 0, 1
	least := value(&c[0])
	for i := 1; i < len(c); i++ {
		switch v := value(&c[i]); {
		case v < least:
			best, least, ties = i, v, 1
		case v == least:
			if ties++; r.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return best
}

// soften draws with u from [0, 1) a candidate with probability in proportion to
// exp(-(cost-min)/((max-min)*temperature)).
func soften(u float64, c []Candidate, temperature float64) int {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range c {
		v := tokens(&c[i])
		low, high = min(low, v), max(high, v)
	}
	if low == high {
		return min(int(u*float64(len(c))), len(c)-1)
	}
	scale := 1.0
	if math.IsInf(high-low, 0) {
		scale = 1 / max(math.Abs(low), math.Abs(high))
	}
	width := (high*scale - low*scale) * temperature
	weight := func(i int) float64 { return math.Exp(-(tokens(&c[i])*scale - low*scale) / width) }
	sum := 0.0
	for i := range c {
		sum += weight(i)
	}
	reached := 0.0
	for i := range c {
		if reached += weight(i) / sum; reached >= u {
			return i
		}
	}
	return len(c) - 1
}
