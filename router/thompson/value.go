package thompson

import (
	"math"
	"time"

	"github.com/dynago/dynago/router"
)

// level is low, medium or high.
type level uint8

const (
	low level = iota
	medium
	high
)

// levelOf says whether x is below a, below b, or neither.
func levelOf(x, a, b float64) level {
	switch {
	case x < a:
		return low
	case x < b:
		return medium
	}
	return high
}

// Bounds of the levels.
const (
	shortAnswer, longAnswer   = 256, 1024  // tokens
	shortPause, longPause     = 100, 500   // milliseconds
	smallPrefill, somePrefill = 0.25, 0.75 // units
)

// paces are by the pause between requests: in a slow session it matters less to
// stay.
var paces = [...]float64{low: 1.5, medium: 1.0, high: 0.6}

// request is what a decision depends on besides the arms.
type request struct {
	tokens  float64
	answer  level // its length
	decode  float64
	pace    float64
	reuse   float64  // requests still expected of the session
	last    *arm     // of the session's last request; nil: none
	session *session // nil: none
}

// describe gathers what is known of a request.
func (t *Policy) describe(q *router.Query, now time.Time) request {
	r := request{tokens: float64(q.Length()), answer: medium, pace: paces[medium]}
	if q.Expected > 0 {
		r.answer = levelOf(float64(q.Expected), shortAnswer, longAnswer)
	}
	r.decode = 1 + float64(r.answer)
	t.recall(q, &r, now)
	return r
}

// view is one arm as a request sees it.
type view struct {
	overlap float64 // part of the prompt that is cached, 0..1
	prefill float64 // to compute, in units
	usage   float64 // of blocks, 0..1
	queue   float64
	work    float64
	same    bool // as for the session's last request
}

// emptyUsage is how many requests count as filling a worker of unknown size.
const emptyUsage = 20

func (t *Policy) view(r *request, c *router.Candidate, a *arm) view {
	v := view{same: r.last == a, work: max(0, a.work)}
	if r.tokens > 0 {
		v.overlap = min(1, cached(c)/r.tokens)
	}
	v.prefill = r.tokens * (1 - v.overlap) / t.config.PrefillScale * t.config.PrefillWeight
	used, waiting := told(c)
	v.queue = max(float64(max(c.Requests, a.pending)), waiting)
	switch {
	case used >= 0:
		v.usage = used
	case c.TotalBlocks > 0:
		v.usage = min(1, float64(c.ActiveBlocks)/float64(c.TotalBlocks))
	default:
		v.usage = min(1, v.queue/emptyUsage)
	}
	return v
}

// cached returns how many tokens of the prompt lie on c, those of lower tiers for
// what they are worth by default.
func cached(c *router.Candidate) float64 {
	t := router.DefaultTuning()
	blocks := float64(c.Device) + t.HostCacheHitWeight*float64(c.Host) + t.DiskCacheHitWeight*float64(c.Disk)
	return blocks * float64(c.BlockSize)
}

// told returns what the engine itself says of a rank: the part of its blocks in
// use, and its waiting requests; -1 where it does not.
func told(c *router.Candidate) (used, waiting float64) {
	used, waiting = -1, -1
	if c.Worker == nil {
		return used, waiting
	}
	load, _ := c.Worker.Load()
	for i := range load.Ranks {
		l := &load.Ranks[i]
		if l.Rank != c.Target.Rank {
			continue
		}
		if l.Waiting >= 0 {
			waiting = float64(l.Waiting)
		}
		if l.TotalBlocks > 0 && l.UsedBlocks >= 0 {
			used = min(1, float64(l.UsedBlocks)/float64(l.TotalBlocks))
		}
	}
	return used, waiting
}

// bin says how much there is to compute.
func (v *view) bin() level { return levelOf(v.prefill, smallPrefill, somePrefill) }

func (v *view) features(r *request, p *Config) vector {
	same := 0.0
	if v.same {
		same = 1
	}
	return vector{
		1,
		1 / (1 + p.UsageWeight*v.usage + p.QueueWeight*v.queue),
		v.overlap,
		same,
		math.Tanh(0.1 * v.work),
		r.decode / 3,
		math.Tanh(v.prefill),
		r.pace / paces[low],
		math.Tanh(0.25 * r.reuse),
	}
}

// idleness is 1 for a worker that has nothing to do, and falls the busier it is.
func (v *view) idleness(r *request, p *Config) float64 {
	size := r.decode + v.prefill
	return 1 / (1 + p.UsageWeight*v.usage + p.QueueWeight*v.queue + p.WorkWeight*v.work +
		p.UsageSize*size*v.usage + p.QueueSize*size*v.queue)
}

// worthless is the value of an arm whose beliefs make no sense.
const worthless = -1e9

// value draws what an arm is worth to a request.
func (t *Policy) value(r *request, v *view, a *arm) float64 {
	p := &t.config
	part := t.left(a)
	x := v.features(r, p)
	weights := a.model.sample(t.rand, p.Exploration/math.Sqrt(part))
	value := p.BetaWeight / (1 + r.reuse*r.pace) * a.success.faded(part).sample(t.rand)
	for i := range x {
		value += weights[i] * x[i]
	}
	idleness := v.idleness(r, p)
	if r.last != nil && r.reuse > 0 {
		if v.same {
			value += (p.Affinity + p.AffinityReuse*r.reuse + p.AffinityPace*r.pace) * (0.5 + 0.5*v.overlap)
			idleness = max(idleness, p.StickyFloor)
		} else {
			value -= p.Switch + p.SwitchReuse*r.reuse + p.SwitchPace*r.pace
		}
	}
	value *= idleness
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return worthless
	}
	return value
}

// temperature returns that of the softmax over values.
func (t *Policy) temperature(r *request, values []float64) float64 {
	p := &t.config
	temperature := min(p.MaxTemperature, max(p.MinTemperature, p.Temperature/(1+r.reuse*r.pace)))
	if p.Literal {
		return temperature
	}
	if d := deviation(values); d > 0 {
		temperature *= d
	}
	return temperature
}

// deviation returns the standard deviation of values, of which worthless ones say
// nothing.
func deviation(values []float64) float64 {
	n, sum, square := 0.0, 0.0, 0.0
	for _, v := range values {
		if v != worthless {
			n, sum = n+1, sum+v
		}
	}
	for _, v := range values {
		if v != worthless {
			square += (v - sum/n) * (v - sum/n)
		}
	}
	if n == 0 {
		return 0
	}
	return math.Sqrt(square / n)
}
