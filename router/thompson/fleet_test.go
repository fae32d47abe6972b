package thompson_test

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/thompson"
)

// fleet imitates four workers in virtual time. A worker computes what of a prompt
// it has not cached, and then decodes; it is the slower the more it decodes at
// once, and all of it takes slow times as long.
type fleet struct {
	policy  *thompson.Policy
	random  *rand.Rand
	now     time.Duration
	ahead   agenda
	running [4]int
	slow    [4]float64
	cached  map[string]*[4]int // tokens of each session
	picks   []int
	total   time.Duration
}

// agenda is what is to happen, by time.
type agenda []event

type event struct {
	at time.Duration
	do func()
}

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(e any)        { *a = append(*a, e.(event)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	*a = (*a)[:last]
	return e
}

func (f *fleet) after(d time.Duration, do func()) { heap.Push(&f.ahead, event{f.now + d, do}) }

func newFleet(t testing.TB, seed uint64, change ...func(*thompson.Config)) *fleet {
	t.Helper()
	f := &fleet{
		random: rand.New(rand.NewPCG(seed, 9)), slow: [4]float64{1, 1, 1, 1}, cached: map[string]*[4]int{},
	}
	c := thompson.Default()
	c.Seed, c.Now = seed, func() time.Time { return time.Unix(1_800_000_000, 0).Add(f.now) }
	for _, set := range change {
		set(&c)
	}
	var err error
	if f.policy, err = thompson.New(c); err != nil {
		t.Fatal(err)
	}
	return f
}

const answer = 100 // tokens

// request sends one, and calls done when it has been answered.
func (f *fleet) request(s router.Session, prompt int, done func()) {
	id := fmt.Sprint(len(f.picks))
	cached := f.cached[s.ID]
	if cached == nil {
		cached = new([4]int)
		if s.ID != "" {
			f.cached[s.ID] = cached
		}
	}
	c := make([]router.Candidate, 4)
	for i := range c {
		c[i] = router.Candidate{
			Target: kv.Target{Worker: uint64(i + 1)}, BlockSize: 16, TotalBlocks: 8192,
			Requests: f.running[i], ActiveBlocks: f.running[i] * prompt / 16, Device: cached[i] / 16,
		}
	}
	q := &router.Query{ID: id, Tokens: make([]uint32, prompt), Expected: answer, Session: s}
	i, err := f.policy.Pick(context.Background(), q, c)
	if err != nil {
		panic(err)
	}
	f.picks = append(f.picks, i)
	uncached := prompt - cached[i]
	cached[i] = prompt
	f.running[i]++
	milliseconds := f.slow[i] * (0.1*float64(uncached) + answer*(8+float64(f.running[i])))
	took := time.Duration(milliseconds * float64(time.Millisecond))
	f.after(took, func() {
		f.running[i]--
		f.total += took
		f.policy.Learn(router.Outcome{
			ID: id, Target: c[i].Target, PromptTokens: prompt, OutputTokens: answer, Total: took, End: router.Completed,
		})
		done()
	})
}

// clients lets so many clients send requests one after another: of sessions of
// three to twelve turns with pauses of a second on average, or single ones.
func (f *fleet) clients(n int, sessions bool) {
	names := 0
	var next func()
	next = func() {
		if !sessions {
			f.request(router.Session{}, 1000, next)
			return
		}
		names++
		name, turns := fmt.Sprint("session ", names), 3+f.random.IntN(10)
		var turn func(int)
		turn = func(i int) {
			f.request(router.Session{ID: name, Final: i == turns}, 1000+500*i, func() {
				if i == turns {
					next()
					return
				}
				f.after(time.Duration(f.random.ExpFloat64()*float64(time.Second)), func() { turn(i + 1) })
			})
		}
		turn(1)
	}
	for range n {
		next()
	}
}

// serve goes on until so many more requests have been placed.
func (f *fleet) serve(n int) {
	for until := len(f.picks) + n; len(f.picks) < until; {
		e := heap.Pop(&f.ahead).(event)
		f.now = e.at
		e.do()
	}
}

// share is what a worker has had of the last n requests, against the mean of the
// others.
func (f *fleet) share(worker, n int) float64 {
	own := 0
	for _, i := range f.picks[len(f.picks)-n:] {
		if i == worker {
			own++
		}
	}
	return 3 * float64(own) / float64(n-own)
}

var loads = []struct {
	clients  int
	sessions bool
}{{1, false}, {8, false}, {32, false}, {2, true}, {8, true}, {32, true}, {64, true}}

// One of four workers becomes three times slower: after 200 requests it gets less
// than half of what the others get. When it is cured, it gets its part again.
func TestSlowWorker(t *testing.T) {
	for _, load := range loads {
		for seed := uint64(1); seed <= 3; seed++ {
			t.Run(fmt.Sprintf("%d clients, sessions %v, seed %d", load.clients, load.sessions, seed), func(t *testing.T) {
				f := newFleet(t, seed)
				f.clients(load.clients, load.sessions)
				f.serve(1000)
				if s := f.share(2, 500); s < 0.6 || s > 1.5 {
					t.Errorf("a worker like others gets %.2f of what they get", s)
				}
				f.slow[2] = 3
				f.serve(200)
				f.serve(200)
				if s := f.share(2, 200); s >= 0.5 {
					t.Errorf("after 200 requests the slow one gets %.2f of what the others get, want less than half", s)
				}
				f.slow[2] = 1
				f.serve(2000)
				f.serve(500)
				if s := f.share(2, 500); s < 0.7 {
					t.Errorf("when it is cured it gets %.2f of what the others get, want its part", s)
				}
			})
		}
	}
}

// Workers that have left do not keep others from being seen to recover.
func TestCureAmongTheDeparted(t *testing.T) {
	for _, load := range loads[:2] {
		f := newFleet(t, 1)
		for n := range 1000 {
			gone := []router.Candidate{{Target: kv.Target{Worker: uint64(1000 + n)}, BlockSize: 16}}
			id := fmt.Sprint("gone ", n)
			if _, err := f.policy.Pick(context.Background(), &router.Query{ID: id, Tokens: make([]uint32, 1000)}, gone); err != nil {
				t.Fatal(err)
			}
			f.policy.Learn(router.Outcome{ID: id, Target: gone[0].Target, OutputTokens: answer, Total: time.Second, End: router.Completed})
		}
		f.now += time.Hour
		f.clients(load.clients, load.sessions)
		f.serve(1000)
		f.slow[2] = 3
		f.serve(400)
		if s := f.share(2, 200); s >= 0.5 {
			t.Errorf("%+v: the slow one gets %.2f of what the others get, want less than half", load, s)
		}
		f.slow[2] = 1
		f.serve(2500)
		if s := f.share(2, 500); s < 0.7 {
			t.Errorf("%+v: when it is cured it gets %.2f of what the others get, want its part", load, s)
		}
	}
}

// A worker that has always been slow is known to be, which it is not by the
// letter of the rules.
func TestAlwaysSlow(t *testing.T) {
	for _, literal := range []bool{false, true} {
		f := newFleet(t, 1, func(c *thompson.Config) { c.Literal = literal })
		f.slow[2] = 3
		f.clients(8, true)
		f.serve(200)
		f.serve(600)
		if s := f.share(2, 600); s < 0.5 == literal {
			t.Errorf("literal %v: it gets %.2f of what the others get", literal, s)
		}
	}
}

// Sessions stay where their cache is, though not at any price, and requests are
// answered sooner for it than by the letter of the rules.
func TestSessionsStay(t *testing.T) {
	var mean [2]time.Duration
	for i, literal := range []bool{false, true} {
		f := newFleet(t, 1, func(c *thompson.Config) { c.Literal = literal })
		f.clients(32, true)
		f.serve(3000)
		s := f.policy.Stats()
		mean[i] = f.total / time.Duration(s.Reward.Count())
		if stay := float64(s.Sticky) / float64(s.Sticky+s.Switches); !literal && stay < 0.75 {
			t.Errorf("%.2f of the requests stay where their session is, want at least 0.75", stay)
		}
	}
	if mean[0] >= mean[1] {
		t.Errorf("a request takes %v, and by the letter %v, want less", mean[0], mean[1])
	}
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{4, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p, err := thompson.New(thompson.Default())
			if err != nil {
				b.Fatal(err)
			}
			c := make([]router.Candidate, n)
			for i := range c {
				c[i] = router.Candidate{Target: kv.Target{Worker: uint64(i + 1)}, BlockSize: 16, TotalBlocks: 8192}
			}
			q := &router.Query{ID: "r", Tokens: make([]uint32, 4096), Session: router.Session{ID: "s"}}
			b.ReportAllocs()
			for b.Loop() {
				i, err := p.Pick(context.Background(), q, c)
				if err != nil {
					b.Fatal(err)
				}
				p.Learn(router.Outcome{ID: "r", Target: c[i].Target, Total: time.Second, OutputTokens: 100, End: router.Completed})
			}
		})
	}
}
