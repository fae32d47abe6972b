// Package thompson is a routing policy that learns which worker answers fastest,
// and that keeps conversations where their cache is.
//
// The one idea: a choice among workers is a bandit with a context. Every rank is
// an arm with two beliefs: a linear model of the reward that a request with
// given features brings here, and a beta distribution of how good its rewards are
// on the whole. A decision draws a sample of each, so that an arm is tried in
// proportion to the chance that it is the best; adds what it is worth to stay
// where the session was; divides by how busy the arm is; and draws from a softmax.
// An outcome becomes a reward by comparison with what such requests usually take.
//
// Rules and parameters are those of the learning router in NVIDIA's NeMo Agent
// Toolkit. What they are fed with comes from elsewhere here: the prefix is the
// session, whose length is guessed from that of earlier ones and whose pace is
// measured; the length of the answer is the query's forecast; load is what the
// engine tells of itself, and where it does not, what is booked there; blocks in
// lower tiers count as cached in part; and a request whose client left before the
// first token teaches nothing. [Config.Literal] says where the rules differ as
// well, and takes that back.
package thompson

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// Policy is a [router.Learner]. Its methods may be called from any goroutine.
type Policy struct {
	config Config

	mu       sync.Mutex
	rand     *rand.Rand
	arms     aged[armKey, *arm]
	pending  aged[decision, *trial]
	sessions aged[sessionKey, *session]
	fleet    baselines // of all arms together
	length   average   // requests of a session
	present  int       // arms that could be picked of late
	rounds   float64   // lessons that each of them has had on average
	swept    time.Time
	counted  counts
}

var _ router.Learner = (*Policy)(nil)

// What a policy remembers is kept within these bounds; the oldest goes first.
const (
	mostArms     = 4096
	mostPending  = 1 << 17
	mostSessions = 1 << 16
)

// armKey names a rank over restarts, when ids may be others.
type armKey struct {
	worker string
	rank   uint32
}

// arm is what is known of one rank.
type arm struct {
	model   linear
	success beta
	own     baselines
	learned float64   // the round of its last lesson
	seen    time.Time // when it could be picked last

	pending   int     // decisions without an outcome
	work      float64 // that the sessions here are expected to bring
	sessions  int     // whose work that is
	decisions uint64
}

// decision names what was decided: a request may be placed more than once.
type decision struct {
	id     string
	target kv.Target
}

// trial is a decision whose outcome is not known yet.
type trial struct {
	arm     *arm
	x       vector
	kind    kind
	start   time.Time
	session sessionKey // its id "": none
	// advised says that nothing may ever come of it, which is nobody's fault.
	advised bool
}

// New returns a policy that has learned nothing yet.
func New(c Config) (*Policy, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Seed = cmp.Or(c.Seed, rand.Uint64())
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Policy{config: c, rand: rand.New(rand.NewPCG(c.Seed, 1)), counted: newCounts()}, nil
}

// Pick draws one of the candidates. Background work is placed by the same rules,
// but it is no turn of its session, and nothing is learned from it. Advice that
// will not be booked later leaves no trace either.
func (t *Policy) Pick(_ context.Context, q *router.Query, c []router.Candidate) (int, error) {
	now := t.config.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(now)

	r := t.describe(q, now)
	arms, views, values := make([]*arm, len(c)), make([]view, len(c)), make([]float64, len(c))
	for i := range c {
		arms[i] = t.arm(&c[i])
		t.see(arms[i], now)
		views[i] = t.view(&r, &c[i], arms[i])
		values[i] = t.value(&r, &views[i], arms[i])
	}
	i := draw(values, t.temperature(&r, values), t.rand.Float64())
	if !q.Background && !(q.Advisory && q.ID == "") {
		t.place(q, &r, &c[i], &views[i], arms[i], now)
	}
	return i, nil
}

// place notes a decision.
func (t *Policy) place(q *router.Query, r *request, c *router.Candidate, v *view, a *arm, now time.Time) {
	a.decisions++
	t.counted.place(r, v)
	d := decision{q.ID, c.Target}
	t.take(d, now)
	if t.pending.len() == mostPending {
		oldest, _ := t.pending.oldest()
		t.take(oldest, now)
	}
	t.follow(q, r, v, a, now)
	if q.ID == "" { // its outcome could not be told from others
		return
	}
	p := &trial{arm: a, x: v.features(r, &t.config), kind: kind{r.answer, v.bin()}, start: now, advised: q.Advisory}
	if !p.advised {
		p.session = keyOf(q)
		a.pending++
	}
	t.pending.put(d, p)
}

// take returns a decision, if there is one, that is over now.
func (t *Policy) take(d decision, now time.Time) *trial {
	p := t.pending.get(d)
	if p != nil {
		t.pending.remove(d)
		if !p.advised {
			p.arm.pending--
			t.pause(p.session, now)
		}
	}
	return p
}

// arm returns the arm of a candidate, which may be a new one.
func (t *Policy) arm(c *router.Candidate) *arm {
	key := armKey{"#" + c.Target.String(), 0}
	if c.Worker != nil {
		key = armKey{c.Worker.Name(), c.Target.Rank}
	}
	a := t.arms.get(key)
	if a == nil {
		a = &arm{model: newLinear(t.config.Ridge), success: beta{1, 1}, learned: t.rounds}
		if t.arms.len() == mostArms {
			oldest, _ := t.arms.oldest()
			t.arms.remove(oldest)
		}
	}
	t.arms.put(key, a)
	return a
}

// draw takes with u from [0, 1) an index with probability in proportion to
// exp(value/temperature).
func draw(values []float64, temperature, u float64) int {
	most := math.Inf(-1)
	for _, v := range values {
		most = max(most, v)
	}
	sum := 0.0
	for _, v := range values {
		sum += math.Exp((v - most) / temperature)
	}
	reached := 0.0
	for i, v := range values {
		if reached += math.Exp((v-most)/temperature) / sum; u <= reached {
			return i
		}
	}
	return len(values) - 1
}
