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
	case DeviceAware:
		return deviceAware{r, DefaultAcceleratorRatio}
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

// deviceAware takes the least loaded of those that run on processors alone while
// they have fewer requests than their share, by ratio to one for each of the
// others; and else the least loaded of the others.
type deviceAware struct {
	rand  *rand.Rand
	ratio int
}

func (p deviceAware) Pick(_ context.Context, _ *Query, c []Candidate) (int, error) {
	var requests, workers [2]int
	kind := func(c *Candidate) int {
		if c.OnCPU {
			return 1
		}
		return 0
	}
	for i := range c {
		k := kind(&c[i])
		requests[k] += c[i].Requests
		workers[k]++
	}
	take := 0
	if workers[0] == 0 || workers[1] > 0 && requests[1] < requests[0]*workers[1]/(p.ratio*workers[0]) {
		take = 1
	}
	return least(p.rand, c, func(c *Candidate) float64 {
		if kind(c) != take {
			return math.Inf(1)
		}
		return float64(c.Requests)
	}), nil
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
	return cheapest(p.rand, c), nil
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

// cheapest returns the candidate of the least cost. Of equal ones a target with
// more free room for blocks has a greater chance: it will be full later.
func cheapest(r *rand.Rand, c []Candidate) int {
	best, ties, low := 0, 1, tokens(&c[0])
	for i := 1; i < len(c); i++ {
		switch v := tokens(&c[i]); {
		case v < low:
			best, ties, low = i, 1, v
		case v == low:
			ties++
		}
	}
	if ties == 1 {
		return best
	}
	room, sum := roomy(c, low), 0.0
	for i := range c {
		if tokens(&c[i]) == low {
			sum += room(&c[i])
		}
	}
	for drawn := r.Float64() * sum; best < len(c); best++ {
		if tokens(&c[best]) != low {
			continue
		}
		if drawn -= room(&c[best]); drawn < 0 {
			return best
		}
	}
	return 0 // not reached: what is drawn is less than the sum
}

// roomy returns what counts of candidates whose cost is low: how many tokens more
// they can hold. Where that is not known of one, or nothing of all, it is equal.
func roomy(c []Candidate, low float64) func(*Candidate) float64 {
	sum := 0
	for i := range c {
		if tokens(&c[i]) != low {
			continue
		}
		if c[i].TotalBlocks == 0 {
			sum = 0
			break
		}
		sum += c[i].free()
	}
	if sum == 0 {
		return func(*Candidate) float64 { return 1 }
	}
	return func(c *Candidate) float64 { return float64(c.free()) }
}

// free returns how many tokens more a target can hold.
func (c *Candidate) free() int { return max(0, c.TotalBlocks-c.ActiveBlocks) * c.BlockSize }

// soften draws with u from [0, 1) a candidate with probability in proportion to
// exp(-(cost-min)/((max-min)*temperature)).
func soften(u float64, c []Candidate, temperature float64) int {
	f, sum, reached := flatten(c, temperature), 0.0, 0.0
	for i := range c {
		sum += f.weight(&c[i])
	}
	for i := range c {
		if reached += f.weight(&c[i]) / sum; reached >= u {
			return i
		}
	}
	return len(c) - 1
}

// flat says how much a temperature makes of differences in cost.
type flat struct{ low, scale, width float64 }

func flatten(c []Candidate, temperature float64) flat {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range c {
		v := bounded(&c[i])
		low, high = min(low, v), max(high, v)
	}
	scale := 1.0
	if math.IsInf(high-low, 0) {
		scale = 1 / max(math.Abs(low), math.Abs(high))
	}
	return flat{low, scale, (high*scale - low*scale) * temperature}
}

func (f flat) weight(c *Candidate) float64 {
	if f.width == 0 {
		return 1 // all cost the same
	}
	return math.Exp(-(bounded(c)*f.scale - f.low*f.scale) / f.width)
}

// bounded is the cost of a candidate in tokens, where factors beyond all measure
// may have made it endless.
func bounded(c *Candidate) float64 { return min(tokens(c), math.MaxFloat64) }
