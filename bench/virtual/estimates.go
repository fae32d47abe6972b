package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/dynago/dynago/bench/agents"
	"github.com/dynago/dynago/bench/stats"
	"github.com/dynago/dynago/internal/estimate"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/thompson"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/agenttrace"
	"github.com/dynago/dynago/sim/trace"
)

// craft is a tool of agents whose calls differ as those of harnesses do: how long the
// answers are that call it, how long it takes, how much it returns, and what is most
// often called next. Tokens are medians, and so are times.
type craft struct {
	name           string
	answer, result int
	takes          time.Duration
	next           int
}

var crafts = []craft{
	{"search", 90, 1500, 800 * time.Millisecond, 1},
	{"read", 120, 4000, 200 * time.Millisecond, 2},
	{"edit", 900, 150, 300 * time.Millisecond, 4},
	{"write", 3500, 60, 200 * time.Millisecond, 4},
	{"test", 200, 2500, 25 * time.Second, 0},
	{"ask", 500, 200, 90 * time.Second, 3},
}

const (
	craftHabit = 0.7 // how often the next call is the usual one
	craftTurns = 25
	craftBegin = 16_000 // tools and system text
)

// crafted is a workload, and which tool the answer of each request calls.
type crafted struct {
	requests []trace.Request
	tools    map[string]string
}

// craftsmen are so many agents, as many of which begin in a second on average.
func craftsmen(few int, rate float64) (w crafted) {
	piece := func(name string, n int) trace.Piece { return trace.Piece{Stream: trace.Named(name), Len: uint32(n)} }
	w.tools = map[string]string{}
	arrivals := rand.New(rand.NewPCG(7, 0))
	var at float64
	for n := range few {
		random := rand.New(rand.NewPCG(7, uint64(n)+1))
		vary := func(median float64, by float64) float64 { return median * math.Exp(by*random.NormFloat64()) }
		name := fmt.Sprintf("agent %d", n)
		r := trace.Request{
			Session: name, At: time.Duration(at * float64(time.Second)).Round(time.Millisecond),
			Prompt: trace.Text{piece("tools and system", craftBegin), piece(name+": task", 1+int(vary(500, 0.5)))},
		}
		tool := 0
		for turn := range craftTurns {
			if tool = crafts[tool].next; random.Float64() >= craftHabit {
				tool = random.IntN(len(crafts))
			}
			c := &crafts[tool]
			r.ID = fmt.Sprintf("%s, turn %d", name, turn)
			r.Final = turn == craftTurns-1
			answer := piece(r.ID+": answer", 1+int(vary(float64(c.answer), 0.4)))
			r.Answer = trace.Text{answer}
			w.requests = append(w.requests, r)
			w.tools[r.ID] = c.name
			r.Prompt = append(r.Prompt[:len(r.Prompt):len(r.Prompt)], answer, piece(r.ID+": result", 1+int(vary(float64(c.result), 0.5))))
			r.After, r.Tool = []string{r.ID}, true
			r.Delay = time.Duration(vary(c.takes.Seconds(), 0.4) * float64(time.Second)).Round(time.Millisecond)
		}
		at += arrivals.ExpFloat64() / rate
	}
	return w
}

// foretold says by whom it is told how long answers and pauses are.
type foretold string

// By nobody, by what was learned of the requests before, or by the truth.
const (
	untold  foretold = "nobody"
	learned foretold = "learned"
	known   foretold = "oracle"
)

// teller tells of a workload's requests, and learns from them.
type teller struct {
	by           foretold
	tokens       bool // tells of answers, else of pauses
	tools        map[string]string
	before, next map[string]*trace.Request
	book         *estimate.Book
	told         map[string]estimate.Estimate
	err          estimate.Errors
}

func newTeller(w crafted, by foretold, tokens bool) *teller {
	t := &teller{
		by: by, tokens: tokens, tools: w.tools, book: estimate.New(estimate.DefaultKeys),
		before: map[string]*trace.Request{}, next: map[string]*trace.Request{}, told: map[string]estimate.Estimate{},
	}
	for i := range w.requests {
		r := &w.requests[i]
		t.before[r.ID] = r
		if len(r.After) == 1 && r.Delay > 0 {
			t.next[r.After[0]] = r
		}
	}
	return t
}

// key is what is known of a request. That of a pause is known when the answer is.
func (t *teller) key(r *trace.Request) estimate.Key {
	k := estimate.Key{Model: "sim", Agent: "lead", Trigger: "user"}
	if r.Parent != "" {
		k.Agent = "sub"
	}
	if r.Tool {
		k.Trigger = "tool"
	}
	if !t.tokens {
		k.Trigger, k.Tool = "", t.tools[r.ID]
	} else if len(r.After) > 0 {
		k.Tool = t.tools[r.After[0]]
	}
	return k
}

// expect is what the simulation asks as a request comes.
func (t *teller) expect(r *trace.Request) (tokens uint32, next time.Duration) {
	if !t.tokens && len(r.After) == 1 && r.Delay > 0 {
		t.came(t.before[r.After[0]], uint32(r.Delay.Milliseconds()))
	}
	var e estimate.Estimate
	switch t.by {
	case known:
		if e.Median = uint32(r.Answer.Len()); !t.tokens {
			if n := t.next[r.ID]; n != nil {
				e.Low = uint32(n.Delay.Milliseconds())
			}
		}
	case learned:
		ok := false
		if e, ok = t.book.Of(t.key(r)); ok {
			t.told[r.ID] = e
		}
	}
	if t.tokens {
		return e.Median, 0
	}
	return 0, time.Duration(e.Low) * time.Millisecond
}

// came learns what a request came to.
func (t *teller) came(r *trace.Request, n uint32) {
	if e, ok := t.told[r.ID]; ok {
		t.err.Add(e, n)
	}
	t.book.Observe(t.key(r), n)
}

// ended is told of each request that has ended.
func (t *teller) ended(r *sim.Record) {
	if t.tokens {
		t.came(t.before[r.ID], uint32(r.Output))
	}
}

// estimating is what it is worth to know how long answers and tools take.
type estimating struct{ Runs []estimateRun }

// estimateRun is what came of one workload.
type estimateRun struct {
	Workload, Mode string
	By             foretold
	Tokens         bool // of answers, else the times of tools
	Requests       int
	TTFT, TTFTTail float64 // milliseconds, median and 99 of 100
	E2E            float64 // mean, milliseconds
	Hit, Device    float64 // shares of the prompts' tokens that were cached, and on the device
	// Error is by how much estimates were off, of what came, and Above how many came to
	// more than the high quantile said.
	Error, Above float64
}

// tracked are the ways to route that look at how long answers will be.
var tracked = []mode{
	tuned("kv, output tracked", func(t *router.Tuning) { t.TrackOutputBlocks = true }),
	{"thompson", func(clock *sim.Clock) (router.Config, error) {
		c := thompson.Default()
		c.Seed, c.Now = 1, clock.Now
		policy, err := thompson.New(c)
		t := router.DefaultTuning()
		t.TrackOutputBlocks = true
		return router.Config{Policy: policy, Tuning: &t}, err
	}},
}

// estimates replays workloads with lengths of answers told by nobody, learned, and known,
// and then the same with the times of tools, where what has left the device comes back.
func estimates(short bool) (any, error) {
	few, leads, calls := 60, 10, 1000
	if short {
		few, leads, calls = 24, 6, 300
	}
	c := agenttrace.Default()
	c.Leads, c.Rate, c.KeepThinking = leads, 0.8*0.075, true
	reading, err := collect(c.Requests())
	if err != nil {
		return nil, err
	}
	talk, err := recorded("conversation")
	if err != nil {
		return nil, err
	}
	trace.Speed(talk, 0.8*3.4)
	talk = talk[:calls]
	var e estimating
	for _, k := range []struct {
		name string
		w    crafted
	}{{"tools", craftsmen(few, 0.7)}, {"agents", crafted{requests: reading}}, {"conversation", crafted{requests: talk}}} {
		for _, m := range tracked {
			if err := e.run(newFleet(4, "roofline"), k.name, m, k.w, true); err != nil {
				return nil, err
			}
		}
	}
	tiers := newFleet(1, "roofline")
	tiers.engine.NumGPUBlocks, tiers.engine.HostBlocks = 6_000, 200_000
	c.Leads, c.Rate = leads/3, 0.8*0.075/4
	if reading, err = collect(c.Requests()); err != nil {
		return nil, err
	}
	for _, k := range []struct {
		name string
		w    crafted
	}{{"tools", craftsmen(few/3, 0.12)}, {"agents", crafted{requests: reading}}} {
		if err := e.run(tiers, k.name, plain(router.KV), k.w, false); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// run replays a workload once for each who tells.
func (e *estimating) run(f fleet, name string, m mode, w crafted, tokens bool) error {
	for _, by := range []foretold{untold, learned, known} {
		t := newTeller(w, by, tokens)
		f.expect, f.ended = t.expect, t.ended
		report, records, err := f.replay(m, w.requests)
		if err != nil {
			return fmt.Errorf("%s, told by %s: %w", name, by, err)
		}
		ttft, _ := agents.Waits(outcomes(records), func(string) bool { return true })
		run := estimateRun{
			Workload: name, Mode: m.name, By: by, Tokens: tokens, Requests: len(records),
			TTFT: stats.Median(ttft), TTFTTail: ttft[len(ttft)*99/100], E2E: report.E2E.Mean, Hit: report.FirstReused,
		}
		input, device := 0, 0
		for _, r := range records {
			input, device = input+r.Input, device+r.From[0]
		}
		run.Device = float64(device) / float64(input)
		if t.err.Count > 0 {
			run.Error, run.Above = t.err.Off/t.err.Came, float64(t.err.Above)/float64(t.err.Count)
		}
		e.Runs = append(e.Runs, run)
	}
	return nil
}
