package thompson

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// clock is a time that tests set.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Unix(1_800_000_000, 0)} }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

// policy returns one with a clock.
func policy(t testing.TB, change ...func(*Config)) (*Policy, *clock) {
	t.Helper()
	clock, c := newClock(), Default()
	c.Seed, c.Now = 1, func() time.Time { return clock.now }
	for _, f := range change {
		f(&c)
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p, clock
}

// certain takes all chance out of what an arm is worth.
func certain(c *Config) { c.Exploration, c.BetaWeight, c.Literal = 0, 0, true }

// workers returns that many candidates with blocks of 16 tokens.
func workers(n int, change ...func(int, *router.Candidate)) []router.Candidate {
	c := make([]router.Candidate, n)
	for i := range c {
		c[i] = router.Candidate{Target: kv.Target{Worker: uint64(i + 1)}, BlockSize: 16}
		for _, f := range change {
			f(i, &c[i])
		}
	}
	return c
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-9*max(1, math.Abs(want))) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// The features of a request of 2048 tokens, half of which are cached, that comes
// third in its session, where sessions have eleven requests.
func TestFeatures(t *testing.T) {
	p, clock := policy(t, certain)
	p.length = average{Value: 11, Count: 1}
	c := workers(2, func(i int, c *router.Candidate) {
		c.Device, c.Requests, c.TotalBlocks, c.ActiveBlocks = 64*i, 2, 1000, 250
	})
	q := &router.Query{Tokens: make([]uint32, 2048), Expected: 2000, Session: router.Session{ID: "s"}}
	for i := range 2 {
		q.ID = string(rune('a' + i))
		r := p.describe(q, clock.now)
		v := p.view(&r, &c[1], p.arm(&c[1]))
		p.place(q, &r, &c[1], &v, p.arm(&c[1]), clock.now)
		p.Learn(router.Outcome{ID: q.ID, Target: c[1].Target, End: router.Completed, OutputTokens: 1})
		clock.pass(200 * time.Millisecond)
	}
	r := p.describe(q, clock.now)
	// Eleven less two, less this one; the answer is long, the pause medium.
	if r.reuse != 8 || r.decode != 3 || r.pace != 1 || r.last != p.arm(&c[1]) {
		t.Fatalf("the request is %+v", r)
	}
	// What is expected of the session, since its second request: nine more of the
	// weight of an answer and half a prompt, which is one unit.
	work := 9.0 * (3 + 1) * 1
	for i, want := range []vector{
		{1, 1 / (1 + 0.25 + 1.5*2), 0, 0, 0, 1, math.Tanh(2), 1 / 1.5, math.Tanh(2)},
		{1, 1 / (1 + 0.25 + 1.5*2), 0.5, 1, math.Tanh(0.1 * work), 1, math.Tanh(1), 1 / 1.5, math.Tanh(2)},
	} {
		v := p.view(&r, &c[i], p.arm(&c[i]))
		got := v.features(&r, &p.config)
		for f := range got {
			near(t, "feature", got[f], want[f])
		}
	}

	// And what the arms are worth, of which nothing is learned: the one, what it
	// costs to leave; the other, what it brings to stay; both by how idle they are.
	p.arms = aged[armKey, *arm]{}
	c[1].Requests = 0
	fresh := p.arm(&c[1])
	fresh.work, r.last = work, fresh
	left := p.view(&r, &c[0], p.arm(&c[0]))
	near(t, "leaving", p.value(&r, &left, p.arm(&c[0])),
		-(0.10+0.04*8+0.03)/(1+0.25+1.5*2+0.40*(3+2)*0.25+0.20*(3+2)*2))
	stay := p.view(&r, &c[1], fresh)
	near(t, "staying", p.value(&r, &stay, fresh),
		(0.30+0.08*8+0.20)*0.75/(1+0.25+0.45*work+0.40*(3+1)*0.25))
	near(t, "temperature", p.temperature(&r, nil), max(0.15, 1.0/9))

	// However busy, a part of its worth is left for those who are there.
	fresh.work = 1e6
	stay = p.view(&r, &c[1], fresh)
	near(t, "staying where all is lost", p.value(&r, &stay, fresh), (0.30+0.08*8+0.20)*0.75*0.01)
	// With nothing more to come, nothing is to be kept.
	r.reuse = 0
	near(t, "the last request", p.value(&r, &stay, fresh), 0)
	near(t, "its temperature", p.temperature(&r, nil), 1)
}

func TestTemperatureIsInDeviations(t *testing.T) {
	p, _ := policy(t)
	r := request{pace: 1}
	near(t, "temperature", p.temperature(&r, []float64{1, 3, 1, 3}), 1)
	near(t, "temperature", p.temperature(&r, []float64{0, 0, 0, 8}), 8*math.Sqrt(3)/4)
	near(t, "temperature", p.temperature(&r, []float64{5, 5}), 1)
	r.reuse = 3
	near(t, "temperature", p.temperature(&r, []float64{0.01, 0.03}), 0.01/4)
}

func TestLevels(t *testing.T) {
	p, clock := policy(t)
	for expected, want := range map[uint32]float64{0: 2, 1: 1, 255: 1, 256: 2, 1023: 2, 1024: 3} {
		if r := p.describe(&router.Query{Expected: expected}, clock.now); r.decode != want {
			t.Errorf("an answer of %d tokens weighs %v, want %v", expected, r.decode, want)
		}
	}
	for pause, want := range map[time.Duration]float64{
		0: 1.5, 99 * time.Millisecond: 1.5, 100 * time.Millisecond: 1, 499 * time.Millisecond: 1, 500 * time.Millisecond: 0.6, time.Hour: 0.6,
	} {
		p.sessions.put(sessionKey{id: "s"}, &session{ended: clock.now.Add(-pause)})
		if r := p.describe(&router.Query{Session: router.Session{ID: "s"}}, clock.now); r.pace != want {
			t.Errorf("a pause of %v is a pace of %v, want %v", pause, r.pace, want)
		}
	}
	p.sessions.put(sessionKey{id: "s"}, &session{running: 1})
	if r := p.describe(&router.Query{Session: router.Session{ID: "s"}}, clock.now); r.pace != 1.5 {
		t.Errorf("requests at the same time are a pace of %v, want 1.5", r.pace)
	}
	for prefill, want := range map[float64]level{0: low, 0.249: low, 0.25: medium, 0.749: medium, 0.75: high} {
		if got := (&view{prefill: prefill}).bin(); got != want {
			t.Errorf("prefill of %v is %v, want %v", prefill, got, want)
		}
	}
}

// A worker of which nothing is known counts as used by its requests; blocks that
// are not on the device count in part; a prompt may be given by its hashes.
func TestView(t *testing.T) {
	p, clock := policy(t)
	r := p.describe(&router.Query{Hashes: &router.Hashes{Tokens: 1024}}, clock.now)
	c := workers(1, func(_ int, c *router.Candidate) { c.Requests, c.Device, c.Host, c.Disk = 5, 16, 16, 16 })
	v := p.view(&r, &c[0], p.arm(&c[0]))
	near(t, "usage", v.usage, 0.25)
	near(t, "queue", v.queue, 5)
	near(t, "overlap", v.overlap, 0.5)
	near(t, "prefill", v.prefill, 0.5)
	c[0].Device = 1000
	v = p.view(&r, &c[0], p.arm(&c[0]))
	near(t, "overlap", v.overlap, 1)
	near(t, "prefill", v.prefill, 0)
	p.arm(&c[0]).pending = 30
	v = p.view(&r, &c[0], p.arm(&c[0]))
	near(t, "queue", v.queue, 30)
	near(t, "usage", v.usage, 1)
}

// What an engine itself tells of a rank counts, and the rank keeps its name
// whatever id it has.
func TestToldLoad(t *testing.T) {
	f := fleet.New(fleet.Config{})
	defer f.Close()
	reporter, err := f.Report(fleet.Entry{Name: "gpu", ID: 7})
	if err != nil {
		t.Fatal(err)
	}
	p, clock := policy(t)
	r := p.describe(&router.Query{Tokens: make([]uint32, 10)}, clock.now)
	c := workers(2, func(i int, c *router.Candidate) {
		c.Target, c.Worker = kv.Target{Worker: 7, Rank: uint32(i)}, reporter.Worker()
		c.Requests, c.ActiveBlocks, c.TotalBlocks = 2, 100, 1000
	})
	seen := func(i int) view { return p.view(&r, &c[i], p.arm(&c[i])) }
	near(t, "usage before it tells", seen(1).usage, 0.1)
	near(t, "queue before it tells", seen(1).queue, 2)
	reporter.Load(engine.Load{Ranks: []engine.RankLoad{
		{Rank: 0, Waiting: 50, UsedBlocks: 1, TotalBlocks: 1000},
		{Rank: 1, Waiting: 6, UsedBlocks: 800, TotalBlocks: 1000},
	}}, clock.now)
	near(t, "usage", seen(1).usage, 0.8)
	near(t, "queue", seen(1).queue, 6)
	near(t, "queue of the other rank", seen(0).queue, 50)
	reporter.Load(engine.Load{Ranks: []engine.RankLoad{
		{Rank: 1, Waiting: engine.Unknown, UsedBlocks: engine.Unknown, TotalBlocks: 1000},
	}}, clock.now)
	near(t, "usage where it does not tell", seen(1).usage, 0.1)
	near(t, "queue where it does not tell", seen(1).queue, 2)
	if s := p.Stats(); len(s.Arms) != 2 || s.Arms[0].Worker != "gpu" || s.Arms[1].Rank != 1 {
		t.Errorf("the arms are %+v, want two ranks of gpu", s.Arms)
	}
}

func TestDraw(t *testing.T) {
	values := []float64{0, math.Log(2), math.Log(3)} // shares of 1/6, 2/6 and 3/6
	for _, c := range []struct {
		u    float64
		want int
	}{{0, 0}, {1.0/6 - 1e-9, 0}, {1.0/6 + 1e-9, 1}, {0.5 - 1e-9, 1}, {0.5 + 1e-9, 2}, {1 - 1e-9, 2}} {
		if got := draw(values, 1, c.u); got != c.want {
			t.Errorf("%v draws %d, want %d", c.u, got, c.want)
		}
	}
	if got := draw([]float64{worthless, worthless, 0}, 1, 1e-12); got != 2 {
		t.Errorf("a worthless arm is drawn: %d", got)
	}
	if got := draw([]float64{worthless, worthless}, 1, 0.75); got != 1 {
		t.Errorf("of worthless arms %d is drawn, want 1", got)
	}
}

// An arm whose beliefs have burst is worth nothing, and hurts nobody.
func TestWorthless(t *testing.T) {
	p, _ := policy(t)
	c := workers(2)
	p.arm(&c[0]).model.moment[0] = math.NaN()
	for range 100 {
		if i, err := p.Pick(context.Background(), &router.Query{Tokens: make([]uint32, 10)}, c); i != 1 || err != nil {
			t.Fatalf("picked %d, %v, want the sound one", i, err)
		}
	}
}
