package router

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/dynago/dynago/engine"
)

// Filter is a part of a policy that says which candidates will do.
type Filter interface {
	Inputs() Inputs
	// Keep says whether c will do for q.
	Keep(ctx context.Context, q *Query, c *Candidate) (bool, error)
}

// Scorer is a part of a policy that says what a candidate costs.
type Scorer interface {
	Inputs() Inputs
	// Score returns what q costs on c, a finite number, in a unit that suits the
	// other scorers of the policy.
	Score(ctx context.Context, q *Query, c *Candidate) (float64, error)
}

// Picker is a part of a policy that picks among the candidates that are left. It
// has the method of a [Policy], but its candidates' Cost is what the scorers make
// of them.
type Picker interface {
	Inputs() Inputs
	Policy
}

// Inputs say which facts of a candidate a part of a policy looks at. What it is,
// by Target, Worker, BlockSize and OnCPU, is there for everybody.
type Inputs uint8

// The groups of facts.
const (
	CacheInputs   Inputs = 1 << iota // Device, Host, Disk, Shared
	LoadInputs                       // PrefillTokens, ActiveBlocks, DecodeBlocks, TotalBlocks, Requests, LastPick
	RoutingInputs                    // Preference
	CostInputs                       // Cost, as the router itself counts it

	NoInputs Inputs = 0
)

// of returns c with nothing but these facts.
func (in Inputs) of(c *Candidate) Candidate {
	v := Candidate{Target: c.Target, Worker: c.Worker, BlockSize: c.BlockSize, OnCPU: c.OnCPU}
	if in&CacheInputs != 0 {
		v.Device, v.Host, v.Disk, v.Shared = c.Device, c.Host, c.Disk, c.Shared
	}
	if in&LoadInputs != 0 {
		v.PrefillTokens, v.ActiveBlocks, v.DecodeBlocks, v.TotalBlocks = c.PrefillTokens, c.ActiveBlocks, c.DecodeBlocks, c.TotalBlocks
		v.Requests, v.LastPick = c.Requests, c.LastPick
	}
	if in&RoutingInputs != 0 {
		v.Preference = c.Preference
	}
	if in&CostInputs != 0 {
		v.Cost = c.Cost
	}
	return v
}

// Parts make up a policy.
type Parts struct {
	Filters []Filter // all must keep a candidate
	Scorers []Scorer // their costs are summed; none: [OwnCost]
	Picker  Picker   // nil: the least cost, and of equal ones any
	Seed    uint64   // of the choice among equal ones; 0: a random one
}

// Compose makes a policy of parts: what passes all filters is scored by all
// scorers, and the picker picks. Parts see of a candidate only what one of them
// asks for. The policy is [Quick]: the router asks it for one request at a time
// and holds its lock meanwhile, so parts need no lock of their own, and must
// wait for nothing.
//
// If no candidate is left, the request fails as unavailable. What is wrong with
// the parts fails it as internal: an error, a cost that is no finite number, a
// pick that is out of range.
func Compose(p Parts) Policy {
	c := &composed{Parts: p}
	if len(c.Scorers) == 0 {
		c.Scorers = []Scorer{OwnCost{}}
	}
	if c.Picker == nil {
		seed := p.Seed
		if seed == 0 {
			seed = rand.Uint64()
		}
		c.Picker = leastScore{rand.New(rand.NewPCG(seed, 0))}
	}
	for _, f := range c.Filters {
		c.inputs |= f.Inputs()
	}
	for _, s := range c.Scorers {
		c.inputs |= s.Inputs()
	}
	c.inputs |= c.Picker.Inputs()
	return c
}

type composed struct {
	Parts
	inputs Inputs

	mu sync.Mutex // if it is asked by somebody else than a router
	// Memory of a decision: the candidates that are left, and where they came from.
	rows  []Candidate
	index []int
}

// Quick says that the policy waits for nothing.
func (*composed) Quick() bool { return true }

// Pick asks the parts.
func (p *composed) Pick(ctx context.Context, q *Query, c []Candidate) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { clear(p.rows) }() // they would keep a worker alive
	p.rows, p.index = p.rows[:0], p.index[:0]
	for i := range c {
		row := p.inputs.of(&c[i])
		if keep, err := p.keep(ctx, q, &row); err != nil {
			return 0, err
		} else if !keep {
			continue
		}
		cost, err := p.score(ctx, q, &row)
		if err != nil {
			return 0, err
		}
		row.Cost = cost
		p.rows, p.index = append(p.rows, row), append(p.index, i)
	}
	if len(p.rows) == 0 {
		return 0, engine.Errorf(engine.Unavailable, "the policy's filters leave none of the %d workers that could serve the request", len(c))
	}
	i, err := p.Picker.Pick(ctx, q, p.rows)
	if err != nil {
		return 0, fault(p.Picker, err)
	}
	if i < 0 || i >= len(p.rows) {
		return 0, fault(p.Picker, fmt.Errorf("picked row %d of %d", i, len(p.rows)))
	}
	return p.index[i], nil
}

func (p *composed) keep(ctx context.Context, q *Query, row *Candidate) (bool, error) {
	for _, f := range p.Filters {
		keep, err := f.Keep(ctx, q, row)
		if err != nil {
			return false, fault(f, err)
		}
		if !keep {
			return false, nil
		}
	}
	return true, nil
}

func (p *composed) score(ctx context.Context, q *Query, row *Candidate) (float64, error) {
	sum := 0.0
	for _, s := range p.Scorers {
		cost, err := s.Score(ctx, q, row)
		if err != nil {
			return 0, fault(s, err)
		}
		if sum += cost; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return 0, fault(s, fmt.Errorf("cost %v on %v, want a finite number", cost, row.Target))
		}
	}
	return sum, nil
}

// fault says which part of a policy has failed.
func fault(part any, err error) error {
	return &engine.Error{Kind: engine.Internal, Op: fmt.Sprintf("%T", part), Err: err}
}

// OwnCost is a [Scorer]: what the router itself takes the request to cost, in
// tokens, so that workers with blocks of different size compare.
type OwnCost struct{}

// Inputs asks for the cost.
func (OwnCost) Inputs() Inputs { return CostInputs }

// Score returns the cost.
func (OwnCost) Score(_ context.Context, _ *Query, c *Candidate) (float64, error) {
	return tokens(c), nil
}

// ActiveRequests is a [Scorer]: how many requests are booked.
type ActiveRequests struct{}

// Inputs asks for the load.
func (ActiveRequests) Inputs() Inputs { return LoadInputs }

// Score returns the number of requests.
func (ActiveRequests) Score(_ context.Context, _ *Query, c *Candidate) (float64, error) {
	return float64(c.Requests), nil
}

// leastScore picks the least cost, and any of those that have it.
type leastScore struct{ rand *rand.Rand }

func (leastScore) Inputs() Inputs { return NoInputs }

func (p leastScore) Pick(_ context.Context, _ *Query, c []Candidate) (int, error) {
	return least(p.rand, c, func(c *Candidate) float64 { return c.Cost }), nil
}
