package thompson

import (
	"time"

	"github.com/dynago/dynago/router"
)

// kind is what requests must have in common to be compared.
type kind struct{ answer, prefill level }

// baselines are what requests usually take, in milliseconds: per token of the
// answer, and, of those without an answer, on the whole.
type baselines struct {
	PerToken baseline `json:"per_token"`
	Whole    baseline `json:"whole"`
}

type baseline struct {
	Kinds [3][3]average `json:"kinds"` // by answer and prefill
	All   average       `json:"all"`
}

// average is a mean that follows what it is told.
type average struct {
	Value float64 `json:"value"`
	Count uint64  `json:"count"`
}

// add takes in x, which counts smoothing against all before it.
func (a *average) add(x, smoothing float64) {
	if a.Count == 0 {
		a.Value = x
	} else {
		a.Value += smoothing * (x - a.Value)
	}
	a.Count++
}

func (b *baseline) add(k kind, metric, smoothing float64) {
	b.Kinds[k.answer][k.prefill].add(metric, smoothing)
	b.All.add(metric, smoothing)
}

func (b *baselines) of(tokens int) *baseline {
	if tokens > 0 {
		return &b.PerToken
	}
	return &b.Whole
}

// Learn turns an outcome into a reward. It changes nothing if the decision was
// not this policy's, or if nobody waited long enough to see anything come.
func (t *Policy) Learn(o router.Outcome) {
	now := t.config.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.take(decision{o.ID, o.Target}, now)
	if d == nil {
		t.counted.unknown++
		return
	}
	switch {
	case o.End == router.Failed:
		t.reward(d, 0)
	case o.End == router.Completed || o.OutputTokens > 0:
		t.counted.latency.add(o.Total.Seconds())
		t.counted.tokens.add(float64(o.PromptTokens + o.OutputTokens))
		t.reward(d, t.rate(d, &o))
	default:
		t.counted.abandoned++
	}
}

// rate compares what a request took with what such requests take.
func (t *Policy) rate(d *trial, o *router.Outcome) float64 {
	metric := max(0, float64(o.Total)/float64(time.Millisecond))
	if o.OutputTokens > 0 {
		metric /= float64(o.OutputTokens)
	}
	own, all := d.arm.own.of(o.OutputTokens), t.fleet.of(o.OutputTokens)
	usual := max(1, metric)
	for _, a := range t.precedence(own, all, d.kind) {
		if a.Count > 0 {
			usual = a.Value
			break
		}
	}
	own.add(d.kind, metric, t.config.Smoothing)
	all.add(d.kind, metric, t.config.Smoothing)
	return 1 / (1 + metric/max(1e-3, usual))
}

// precedence lists what a request is compared with, best first.
func (t *Policy) precedence(own, all *baseline, k kind) []*average {
	if t.config.Literal {
		return []*average{&own.Kinds[k.answer][k.prefill], &own.All, &all.All}
	}
	return []*average{&all.Kinds[k.answer][k.prefill], &all.All}
}

// reward lets the arm of a decision learn.
func (t *Policy) reward(d *trial, reward float64) {
	p, a := &t.config, d.arm
	t.counted.reward.add(reward)
	part := t.left(a)
	a.model.fade(part)
	a.success = a.success.faded(part)

	a.model.learn(&d.x, reward, p.Forget, p.Ridge)
	if p.Literal {
		a.success.learn(reward, 1)
	} else {
		a.success.learn(reward, p.Forget)
	}
	t.rounds += 1 / float64(max(1, t.present))
	a.learned = t.rounds
}

// left returns what is left of the lessons of an arm that has had fewer of late
// than others: each round that passed it by counts as one that it forgets, though
// never more than leaves it, over all features, as sure as it was at the beginning.
func (t *Policy) left(a *arm) float64 {
	over := t.rounds - a.learned - 1
	if over <= 0 || t.config.Literal {
		return 1
	}
	return min(1, max(t.config.forgetting(over), t.config.Ridge/a.model.sureness()))
}

// absence is how long an arm that could not be picked still counts: those that
// have left, which are remembered, do not make a round longer.
const absence = 10 * time.Minute

// see notes that an arm can be picked.
func (t *Policy) see(a *arm, now time.Time) {
	if now.Sub(a.seen) >= absence {
		t.present++
	}
	a.seen = now
}

// sweep lets decisions whose outcome never came count as failed, sessions that
// have gone quiet as ended, and arms that nobody sees as absent.
func (t *Policy) sweep(now time.Time) {
	if now.Sub(t.swept) < t.config.SweepInterval {
		return
	}
	t.swept = now
	t.present = 0
	for _, a := range t.arms.all() {
		if now.Sub(a.seen) < absence {
			t.present++
		}
	}
	for d, p := t.pending.oldest(); p != nil && now.Sub(p.start) >= t.config.Timeout; d, p = t.pending.oldest() {
		t.take(d, now)
		if p.advised {
			continue
		}
		t.counted.timeouts++
		t.reward(p, t.config.TimeoutReward)
	}
	for key, s := t.sessions.oldest(); s != nil && now.Sub(s.seen) >= t.config.SessionIdle; key, s = t.sessions.oldest() {
		t.end(key, s)
	}
}
