package thompson

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// pick places a request on the only candidate.
func pick(t testing.TB, p *Policy, q *router.Query, c []router.Candidate) {
	t.Helper()
	if i, err := p.Pick(context.Background(), q, c); i != 0 || err != nil {
		t.Fatalf("picked %d, %v", i, err)
	}
}

// after returns the outcome of a request that has taken so long.
func after(id string, c *router.Candidate, took time.Duration, tokens int) router.Outcome {
	return router.Outcome{ID: id, Target: c.Target, Total: took, OutputTokens: tokens, End: router.Completed}
}

// serve lets a worker serve a request, and returns the reward.
func serve(t testing.TB, p *Policy, c []router.Candidate, prompt int, took time.Duration, tokens int) float64 {
	t.Helper()
	before := p.Stats().Reward.Sum
	pick(t, p, &router.Query{ID: "r", Tokens: make([]uint32, prompt)}, c)
	p.Learn(after("r", &c[0], took, tokens))
	return p.Stats().Reward.Sum - before
}

// A reward says how a request compares with what such requests took before: first
// of the same kind, then at all.
func TestReward(t *testing.T) {
	const small, large = 100, 2000
	for _, literal := range []bool{false, true} {
		t.Run(fmt.Sprint("literal=", literal), func(t *testing.T) {
			p, _ := policy(t, func(c *Config) { c.Literal = literal })
			w := workers(2)
			a, b := w[:1], w[1:]
			near(t, "the first", serve(t, p, a, small, time.Second, 100), 0.5)
			near(t, "twice as long", serve(t, p, a, small, 2*time.Second, 100), 1.0/3)
			// What is usual has followed a fifth of the way, to 12 ms per token.
			near(t, "as usual", serve(t, p, a, small, 12*time.Millisecond, 1), 0.5)
			near(t, "another kind, compared with all", serve(t, p, a, large, 24*time.Millisecond, 1), 1.0/3)
			near(t, "and with itself", serve(t, p, a, large, 48*time.Millisecond, 1), 1.0/3)
			near(t, "without tokens", serve(t, p, a, small, time.Second, 0), 0.5)
			near(t, "and again", serve(t, p, a, small, 3*time.Second, 0), 0.25)

			// Another worker is three times slower. It is compared with the fleet; by the
			// letter only once, with all kinds, and from then on with itself.
			first, second := 1.0/(1+3), 1.0/(1+36/(12+0.2*24))
			if literal {
				all := 12.0
				for _, m := range []float64{12, 24, 48} {
					all += 0.2 * (m - all)
				}
				first, second = 1/(1+36/all), 0.5
			}
			near(t, "a slow one", serve(t, p, b, small, 36*time.Millisecond, 1), first)
			near(t, "a slow one again", serve(t, p, b, small, 36*time.Millisecond, 1), second)
		})
	}
}

// What takes no time has no baseline that could be divided by.
func TestRewardOfNoTime(t *testing.T) {
	p, _ := policy(t)
	w := workers(1)
	near(t, "the first, of half a millisecond", serve(t, p, w, 10, 500*time.Microsecond, 1), 1/1.5)
	p, _ = policy(t)
	near(t, "the first, of no time", serve(t, p, w, 10, 0, 1), 1)
	near(t, "the second, of no time", serve(t, p, w, 10, 0, 1), 1)
	near(t, "one that ended before it began", serve(t, p, w, 10, -time.Second, 1), 1)
	near(t, "one that takes some", serve(t, p, w, 10, time.Millisecond, 1), 1/(1+1000.0))
}

// What an outcome teaches.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		name         string
		outcome      router.Outcome
		alpha, beta  float64
		lost, wasted uint64 // unknown, abandoned
	}{
		{name: "completed", outcome: router.Outcome{ID: "r", End: router.Completed, Total: time.Second, OutputTokens: 5}, alpha: 1.5, beta: 1.5},
		{name: "completed without tokens", outcome: router.Outcome{ID: "r", End: router.Completed, Total: time.Second}, alpha: 1.5, beta: 1.5},
		{name: "failed", outcome: router.Outcome{ID: "r", End: router.Failed, Total: time.Second, OutputTokens: 5}, alpha: 1, beta: 2},
		{name: "abandoned with tokens", outcome: router.Outcome{ID: "r", Total: time.Second, OutputTokens: 5}, alpha: 1.5, beta: 1.5},
		{name: "abandoned before", outcome: router.Outcome{ID: "r", Total: time.Second}, alpha: 1, beta: 1, wasted: 1},
		{name: "of another request", outcome: router.Outcome{ID: "q", End: router.Failed}, alpha: 1, beta: 1, lost: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := policy(t)
			w := workers(1)
			c.outcome.Target = w[0].Target
			pick(t, p, &router.Query{ID: "r", Tokens: make([]uint32, 10)}, w)
			if n := p.Stats().Arms[0].Pending; n != 1 {
				t.Errorf("%d decisions are pending, want 1", n)
			}
			p.Learn(c.outcome)
			s := p.Stats()
			near(t, "alpha", s.Arms[0].Alpha, c.alpha)
			near(t, "beta", s.Arms[0].Beta, c.beta)
			if s.Unknown != c.lost || s.Abandoned != c.wasted {
				t.Errorf("%d unknown and %d abandoned, want %d and %d", s.Unknown, s.Abandoned, c.lost, c.wasted)
			}
			p.Learn(c.outcome) // nobody is told twice
			if again := p.Stats(); again.Unknown != s.Unknown+1 && c.lost == 0 || again.Arms[0].Alpha != s.Arms[0].Alpha {
				t.Errorf("the same outcome has taught something again: %+v", again)
			}
		})
	}
}

// An outcome that never comes counts as failed, but not before its time, and the
// look for it is not taken with each request.
func TestTimeout(t *testing.T) {
	p, clock := policy(t)
	w := workers(1)
	next := 0
	arrive := func() Stats {
		next++
		pick(t, p, &router.Query{ID: fmt.Sprint(next), Tokens: make([]uint32, 10)}, w)
		return p.Stats()
	}
	arrive()
	clock.pass(119 * time.Second)
	if s := arrive(); s.Timeouts != 0 || s.Pending != 2 {
		t.Errorf("after 119 s %d have timed out and %d are pending, want 0 and 2", s.Timeouts, s.Pending)
	}
	clock.pass(2 * time.Second)
	if s := arrive(); s.Timeouts != 0 {
		t.Errorf("the look is taken after 2 s, want 5")
	}
	clock.pass(3 * time.Second)
	if s := arrive(); s.Timeouts != 1 || s.Pending != 3 || s.Arms[0].Beta != 2 {
		t.Errorf("%d have timed out, %d are pending, beta is %v, want 1, 3 and 2", s.Timeouts, s.Pending, s.Arms[0].Beta)
	}
	p.Learn(after("1", &w[0], time.Second, 1))
	if s := p.Stats(); s.Unknown != 1 || s.Arms[0].Alpha != 1 {
		t.Errorf("what comes too late teaches: %+v", s)
	}
}

// The belief on the whole forgets, unless by the letter; and an arm that others
// pass by gets less sure, unless by the letter.
func TestForgetting(t *testing.T) {
	for _, literal := range []bool{false, true} {
		t.Run(fmt.Sprint("literal=", literal), func(t *testing.T) {
			p, _ := policy(t, func(c *Config) { c.Literal, c.Forget = literal, 0.9 })
			w := workers(2)
			for range 100 {
				serve(t, p, w[:1], 10, time.Second, 1)
			}
			a := p.Stats().Arms[0]
			if sum, want := a.Alpha+a.Beta, map[bool]float64{true: 102, false: 12}[literal]; sum < want-0.1 || sum > want+0.1 {
				t.Errorf("the belief is as sure as after %v lessons, want %v", sum-2, want-2)
			}
			arm := p.arm(&w[0])
			before := p.left(arm)
			for range 20 {
				serve(t, p, w[1:], 10, time.Second, 1)
			}
			// Of two arms, each round is two lessons, and the first one is its own.
			want := 1.0
			if !literal {
				want = max(p.config.forgetting(9), 1/arm.model.sureness())
			}
			near(t, "what is left at first", before, 1)
			near(t, "what is left when others have had 20", p.left(arm), want)
			if !literal && want >= 1 {
				t.Error("the test says nothing")
			}
			if got, want := spread(p, arm), spread(p, p.arm(&w[1])); got > 1.2*want == literal {
				t.Errorf("samples of the idle arm deviate by %v, those of the other by %v", got, want)
			}
			sum := arm.success.a + arm.success.b - 2
			serve(t, p, w[:1], 10, time.Second, 1)
			if literal {
				near(t, "lessons of the idle arm", arm.success.a+arm.success.b-2, sum+1)
				return
			}
			near(t, "lessons of the idle arm", arm.success.a+arm.success.b-2, 0.9*want*sum+1)
			for range 2000 {
				serve(t, p, w[1:], 10, time.Second, 1)
			}
			near(t, "what is left at least", p.left(arm), 1/arm.model.sureness())
		})
	}
}

// spread is the standard deviation of what an arm is worth.
func spread(p *Policy, a *arm) float64 {
	r := request{pace: 1, decode: 1}
	values := make([]float64, 2000)
	for i := range values {
		values[i] = p.value(&r, &view{}, a)
	}
	return deviation(values)
}

// Work that nobody waits for neither teaches nor is a turn of its session.
func TestBackground(t *testing.T) {
	p, clock := policy(t)
	w := workers(1)
	q := &router.Query{ID: "r", Tokens: make([]uint32, 10), Session: router.Session{ID: "s"}, Background: true}
	pick(t, p, q, w)
	if s := p.Stats(); s.Pending != 0 || s.Sessions != 0 || s.Arms[0].Decisions != 0 {
		t.Errorf("background work has left %+v", s)
	}
	p.sessions.put(sessionKey{id: "s"}, &session{requests: 1, ended: clock.now.Add(-time.Minute), seen: clock.now})
	pick(t, p, q, w)
	if s := p.sessions.get(sessionKey{id: "s"}); s.pause.Count != 0 || s.requests != 1 {
		t.Errorf("background work counts as a turn: %+v", s)
	}
}

// Advice that nobody follows costs no worker its good name; that which is booked
// by its id teaches like any other.
func TestAdvice(t *testing.T) {
	p, clock := policy(t)
	w := workers(1)
	advise := func(id string) {
		q := router.Query{ID: id, Tokens: make([]uint32, 10), Advisory: true, Session: router.Session{ID: "s"}}
		pick(t, p, &q, w)
	}
	advise("")
	if s := p.Stats(); s.Pending != 0 || s.Sessions != 0 || s.Arms[0].Decisions != 0 {
		t.Errorf("advice that nobody can book has left %+v", s)
	}
	advise("booked")
	if s := p.Stats(); s.Arms[0].Pending != 0 || p.sessions.get(sessionKey{id: "s"}).running != 0 {
		t.Errorf("advice counts as running: %+v", s)
	}
	p.Learn(after("booked", &w[0], time.Second, 1))
	if s := p.Stats(); s.Unknown != 0 || s.Arms[0].Alpha != 1.5 || s.Arms[0].Pending != 0 {
		t.Errorf("advice that was booked has taught nothing: %+v", s)
	}
	advise("forgotten")
	clock.pass(3 * time.Minute)
	pick(t, p, &router.Query{ID: "next"}, w)
	if s := p.Stats(); s.Timeouts != 0 || s.Pending != 1 || s.Arms[0].Beta != 1.5 || s.Arms[0].Pending != 1 {
		t.Errorf("advice that nobody has booked counts as failed: %+v", s)
	}
}

// Without an id nothing can be told of an outcome; with the same one again, what
// came before is forgotten.
func TestIDs(t *testing.T) {
	p, _ := policy(t)
	w := workers(1)
	s := router.Session{ID: "s"}
	pick(t, p, &router.Query{Session: s}, w)
	if got := p.Stats(); got.Pending != 0 || got.Arms[0].Pending != 0 || p.sessions.get(sessionKey{id: "s"}).running != 0 {
		t.Errorf("a request without an id is waited for: %+v", got)
	}
	for range 3 {
		pick(t, p, &router.Query{ID: "r", Session: s}, w)
	}
	if got := p.Stats(); got.Pending != 1 || got.Arms[0].Pending != 1 || p.sessions.get(sessionKey{id: "s"}).running != 1 {
		t.Errorf("the same request is waited for several times: %+v", got)
	}
}

// A session is followed while it lasts; how long sessions last is learned.
func TestSessions(t *testing.T) {
	p, clock := policy(t)
	w := workers(1)
	turn := func(id string, n int, final bool) {
		t.Helper()
		r := fmt.Sprint(id, n)
		pick(t, p, &router.Query{ID: r, Tokens: make([]uint32, 1024), Session: router.Session{ID: id, Final: final}}, w)
		p.Learn(after(r, &w[0], time.Second, 10))
		clock.pass(time.Second)
	}
	reuse := func(id string) float64 {
		r := p.describe(&router.Query{Session: router.Session{ID: id}}, clock.now)
		return r.reuse
	}
	near(t, "what is expected of the first session", reuse("a"), 1)
	for n := range 6 {
		turn("a", n, n == 5)
	}
	if s := p.Stats(); s.Sessions != 0 || s.Arms[0].Work != 0 {
		t.Errorf("a session that has ended leaves %d sessions and work %v", s.Sessions, s.Arms[0].Work)
	}
	near(t, "what is expected of the second", reuse("b"), 5)
	turn("b", 0, false)
	near(t, "and after its first request", reuse("b"), 4)
	// Five more of an answer of medium weight and one unit of prefill.
	near(t, "work", p.Stats().Arms[0].Work, 5*(2+1))
	for n := 1; n < 9; n++ {
		turn("b", n, false)
	}
	near(t, "beyond what is usual", reuse("b"), 1)
	near(t, "work", p.Stats().Arms[0].Work, 1*(2+1)*0.6)
	if r := p.describe(&router.Query{Session: router.Session{ID: "b", Final: true}}, clock.now); r.reuse != 0 {
		t.Errorf("after its last request %v are expected", r.reuse)
	}

	// One that goes quiet has ended, too.
	clock.pass(11 * time.Minute)
	turn("c", 0, false)
	if s := p.Stats(); s.Sessions != 1 {
		t.Errorf("%d sessions go on, want 1", s.Sessions)
	}
	near(t, "the mean length", p.length.Value, 6+0.05*(9-6))

	// What is expected of one has a bound, and nothing is left of many.
	p.length.Value = 1000
	near(t, "what is expected at most", reuse("d"), 16)
	p.end(sessionKey{id: "c"}, p.sessions.get(sessionKey{id: "c"}))
	p.config.PrefillWeight = 0.3 // sums that are not exact
	for n := range 100 {
		id := fmt.Sprint(n)
		pick(t, p, &router.Query{ID: id, Tokens: make([]uint32, 1+n*37), Session: router.Session{ID: id}}, w)
	}
	for n := range 100 {
		id := fmt.Sprint(n)
		pick(t, p, &router.Query{ID: id + "'", Tokens: make([]uint32, 10), Session: router.Session{ID: id, Final: true}}, w)
	}
	if got := p.Stats().Arms[0].Work; got != 0 {
		t.Errorf("work of %v is left when all sessions have ended", got)
	}
}

// Sessions of other tenants and models are others, though they are called alike.
func TestSessionsOfOthers(t *testing.T) {
	p, clock := policy(t)
	w := workers(1)
	q := router.Query{Model: "m", Namespace: kv.Namespace{Salt: "a"}, Session: router.Session{ID: "s"}}
	pick(t, p, &q, w)
	if r := p.describe(&q, clock.now); r.last == nil {
		t.Error("a session is forgotten")
	}
	tenant, model := q, q
	tenant.Namespace.Salt, model.Model = "b", "n"
	for _, q := range []router.Query{tenant, model} {
		if r := p.describe(&q, clock.now); r.last != nil {
			t.Errorf("%+v counts as a turn of another session", q)
		}
	}
}

// However much comes, what is remembered is bounded.
func TestBounds(t *testing.T) {
	p, _ := policy(t)
	w := workers(mostArms + 10)
	for i := range mostPending + 10 {
		id := fmt.Sprint(i)
		pick(t, p, &router.Query{ID: id, Tokens: make([]uint32, 1), Session: router.Session{ID: id}}, w[i%len(w):][:1])
	}
	s := p.Stats()
	if s.Pending != mostPending || s.Sessions != mostSessions || len(s.Arms) != mostArms {
		t.Errorf("%d decisions, %d sessions, %d arms are known, want %d, %d and %d", s.Pending, s.Sessions, len(s.Arms), mostPending, mostSessions, mostArms)
	}
	if s.Timeouts != 0 {
		t.Errorf("%d decisions that were dropped count as failed", s.Timeouts)
	}
	near(t, "the length of sessions that were dropped", p.length.Value, 1)
}

// All may be called at once.
func TestConcurrency(t *testing.T) {
	p, _ := policy(t)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			w := workers(4)
			for n := range 200 {
				id := fmt.Sprint(g, n)
				i, err := p.Pick(context.Background(), &router.Query{ID: id, Tokens: make([]uint32, 64), Session: router.Session{ID: fmt.Sprint(n % 20)}}, w)
				if err != nil {
					t.Error(err)
					return
				}
				p.Learn(after(id, &w[i], time.Second, 10))
			}
		})
	}
	all.Wait()
	s := p.Stats()
	decisions := uint64(0)
	for _, a := range s.Arms {
		decisions += a.Decisions
	}
	if s.Pending != 0 || decisions != 1600 || s.Unknown != 0 {
		t.Errorf("%d decisions, %d pending, %d unknown, want 1600, 0 and 0", decisions, s.Pending, s.Unknown)
	}
}
