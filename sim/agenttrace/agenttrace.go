// Package agenttrace makes workloads shaped like those of agents: a lead that
// calls tools for many turns, sub-agents that it sends out and waits for, pauses
// while tools run, and a history that grows until it is compacted.
//
// The one idea: what agents share is decided by how their harness lays out a
// prompt. Its tools come first and are the same for all, then the system prompt
// of the kind of agent, then what only this one has; each turn puts the answer
// and the results of tools behind, and nothing before them changes. So almost all
// of a prompt was computed before, somewhere, and it matters where.
//
//	lead   tools | system | task | answer | results | answer | results …
//	agent  tools | its system | task | answer | results …
package agenttrace

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/sim/trace"
)

// Config says what agents do. Start from [Default].
type Config struct {
	Leads int
	Rate  float64 // leads that begin a second, independent of each other
	Seed  uint64

	Harnesses int // kinds of harness, each with tools and system prompts of its own
	Tools     int // tokens that describe the tools of a harness
	System    int // tokens of a lead's system prompt
	Kinds     int // of sub-agents that a harness has
	SubSystem int // tokens of the system prompt of one kind

	MinTurns, MaxTurns       int // of a lead
	MinSubTurns, MaxSubTurns int // of a sub-agent

	// Spawn is the chance that a lead's turn sends out sub-agents instead of
	// calling tools, and Team how many at most go at a time.
	Spawn float64
	Team  int

	Answer   int     // median tokens of an answer; log-normal
	Thinking float64 // share of an answer that is thinking
	// KeepThinking says that the template shows the thinking of earlier turns.
	// Otherwise it is left out of the next prompt, and what was generated behind
	// it is computed again.
	KeepThinking bool

	// Pauses while tools run are log-normal: one in forty would be below
	// MinPause or above MaxPause each, and takes just that.
	MinPause, MaxPause time.Duration

	// Each lead is compacted once, when its prompt has grown to Full tokens and
	// two thirds of its turns are done; it goes on with one of Compacted. The
	// results of tools are as long as that takes.
	Full, Compacted int

	// What agents ask of caches; nothing by default. Pinned is the share of leads,
	// evenly spread, that let each of their prompts stay for PinTTL after the answer.
	// Tell lets last requests end their session, and those that begin with a summary
	// say so; Foresee lets requests say how long their tools will take.
	Pinned        float64
	PinTTL        time.Duration
	Tell, Foresee bool
}

// Default returns the agents that the project's figures are taken with.
func Default() Config {
	return Config{
		Leads: 100, Rate: 0.1, Seed: 42,
		Harnesses: 3, Tools: 20_000, System: 12_000, Kinds: 3, SubSystem: 4_000,
		MinTurns: 20, MaxTurns: 40, MinSubTurns: 1, MaxSubTurns: 3,
		Spawn: 0.15, Team: 4,
		Answer: 350, Thinking: 0.4,
		MinPause: 2 * time.Second, MaxPause: 30 * time.Second,
		Full: 175_000, Compacted: 40_000,
	}
}

// Check returns an error that names the first parameter that cannot be.
func (c *Config) Check() error {
	head := c.Tools + c.System
	for _, p := range []struct {
		name string
		ok   bool
		got  any
		want string
	}{
		{"leads", c.Leads >= 1, c.Leads, "1 or more"},
		{"rate", c.Rate > 0 && c.Rate <= 1e6, c.Rate, "more than 0 leads a second"},
		{"harnesses", c.Harnesses >= 1, c.Harnesses, "1 or more"},
		{"kinds", c.Kinds >= 1, c.Kinds, "1 or more"},
		{"tools", c.Tools >= 1, c.Tools, "1 or more tokens"},
		{"system prompt", c.System >= 1, c.System, "1 or more tokens"},
		{"system prompt of sub-agents", c.SubSystem >= 1, c.SubSystem, "1 or more tokens"},
		{"turns", c.MinTurns >= 4 && c.MaxTurns >= c.MinTurns, [2]int{c.MinTurns, c.MaxTurns}, "from 4 or more to as many"},
		{"turns of sub-agents", c.MinSubTurns >= 1 && c.MaxSubTurns >= c.MinSubTurns, [2]int{c.MinSubTurns, c.MaxSubTurns}, "from 1 or more to as many"},
		{"chance of sub-agents", c.Spawn >= 0 && c.Spawn <= 1, c.Spawn, "0 to 1"},
		{"team", c.Team >= 1, c.Team, "1 or more"},
		{"answer", c.Answer >= 1, c.Answer, "1 or more tokens"},
		{"thinking", c.Thinking >= 0 && c.Thinking < 1, c.Thinking, "0 to less than 1"},
		{"pauses", c.MinPause > 0 && c.MaxPause >= c.MinPause, [2]time.Duration{c.MinPause, c.MaxPause}, "from more than 0 to as much"},
		{"compacted", c.Compacted > head+taskTokens, c.Compacted, fmt.Sprintf("more than the %d tokens that a prompt begins with", head+taskTokens)},
		{"full", c.Full > c.Compacted, c.Full, "more than compacted"},
		{"pinned", c.Pinned >= 0 && c.Pinned <= 1, c.Pinned, "0 to 1"},
		{"time of pins", c.PinTTL > 0 || c.Pinned == 0, c.PinTTL, "more than 0"},
	} {
		if !p.ok {
			return fmt.Errorf("agent trace: %s: got %v, want %s", p.name, p.got, p.want)
		}
	}
	return nil
}

const (
	taskTokens      = 800 // median of what a user, or a lead, asks for
	summariseTokens = 400 // of what asks for a summary
)

// Requests yields the workload, one lead with its sub-agents after the other in
// the order in which the leads begin, or the error of Check. A request comes
// behind those that it waits for.
func (c Config) Requests() iter.Seq2[trace.Request, error] {
	return func(yield func(trace.Request, error) bool) {
		if err := c.Check(); err != nil {
			yield(trace.Request{}, err)
			return
		}
		arrivals := rand.New(rand.NewPCG(c.Seed, 0))
		var at time.Duration
		for n := range c.Leads {
			l := &lead{cfg: &c, n: n, rand: rand.New(rand.NewPCG(c.Seed, uint64(n)+1)), yield: yield}
			if !l.run(at) {
				return
			}
			gap := math.Round(1000 * arrivals.ExpFloat64() / c.Rate)
			at = min(at+time.Duration(min(gap, float64(latest/time.Millisecond)))*time.Millisecond, latest)
		}
	}
}

// latest is when leads begin at the latest, however few there are in a second.
const latest = 90 * 365 * 24 * time.Hour

// lead is one lead being made. Its numbers are its own: how many leads there are
// and when they begin does not change what one does.
type lead struct {
	cfg   *Config
	n     int
	rand  *rand.Rand
	yield func(trace.Request, error) bool

	harness int
	agents  int // sent out so far
}

// run yields the lead's requests, and says whether more are wanted.
func (l *lead) run(at time.Duration) bool {
	c := l.cfg
	l.harness = l.rand.IntN(c.Harnesses)
	turns := between(l.rand, c.MinTurns, c.MaxTurns)
	name := fmt.Sprintf("lead %d", l.n)
	begin := trace.Text{l.tools(), piece(fmt.Sprintf("harness %d: system", l.harness), c.System)}
	r := trace.Request{Session: name, At: at, Prompt: append(slices.Clone(begin), piece(name+": task", l.logNormal(taskTokens, 0.6)))}
	full := turns * between(l.rand, 60, 75) / 100
	sizes := l.sizes(r.Prompt.Len(), turns, full)
	for turn := 0; ; turn++ {
		r.ID = fmt.Sprintf("%s, turn %d", name, turn)
		r.Answer = l.answer(r.ID)
		if r.Final = turn == turns-1; r.Final {
			return l.hand(r)
		}
		pause := l.spawnsOrPauses()
		r.KV.NextIn = 0
		if c.Foresee {
			r.KV.NextIn = pause
		}
		if !l.hand(r) {
			return false
		}
		r.KV.Compacted = false
		results, ok := l.results(&r, sizes[turn], pause)
		if !ok {
			return false
		}
		l.next(&r, results)
		if turn == full-1 && !l.compact(&r, begin) {
			return false
		}
	}
}

// sizes returns how many tokens the prompt has after each turn: from begin up to
// Full when it is compacted, before turn full, and from Compacted on as fast as
// before, though never over Full again.
func (l *lead) sizes(begin, turns, full int) []int {
	steps := make([]float64, turns)
	sum := 0.0
	for i := range steps {
		steps[i] = math.Exp(0.5 * l.rand.NormFloat64())
		if i < full {
			sum += steps[i]
		}
	}
	most := float64(l.cfg.Full - summariseTokens)
	scale := (most - float64(begin)) / sum
	sizes := make([]int, turns)
	size := float64(begin)
	for i := range sizes {
		if i == full {
			size = float64(l.cfg.Compacted)
		}
		size = min(size+steps[i]*scale, most)
		sizes[i] = int(math.Round(size))
	}
	return sizes
}

// results is what comes back to a turn, and when.
type results struct {
	text  trace.Text
	after []string
	delay time.Duration
}

// next lets r be the turn that results come to.
func (l *lead) next(r *trace.Request, got results) {
	r.Prompt = append(append(r.Prompt, l.shown(r.Answer)...), got.text...)
	r.After, r.Delay, r.Tool = got.after, got.delay, true
}

// compact asks for a summary of everything before r, and lets r be the turn that
// goes on with that.
func (l *lead) compact(r *trace.Request, begin trace.Text) bool {
	rest := l.cfg.Compacted - begin.Len()
	r.ID = r.Session + ", compaction"
	r.Prompt = append(r.Prompt, piece(r.Session+": summarise", summariseTokens))
	r.Answer = trace.Text{piece(r.ID+": answer", rest*3/4)}
	r.KV.NextIn = 0
	if !l.hand(*r) {
		return false
	}
	r.KV.Compacted = l.cfg.Tell
	// Beside the summary a harness attaches anew what it needs at hand.
	r.Prompt = append(slices.Clone(begin), r.Answer[0], piece(r.Session+": attached", rest-r.Answer.Len()))
	r.After, r.Delay, r.Tool = []string{r.ID}, 0, false
	return true
}

// spawnsOrPauses returns how long the tools of a turn take, or 0 if it sends out
// sub-agents instead.
func (l *lead) spawnsOrPauses() time.Duration {
	if l.rand.Float64() < l.cfg.Spawn {
		return 0
	}
	return l.pause()
}

// results makes what comes back to a turn, as much as lets the prompt grow to
// size: the results of tools, after a pause, or without one besides those of
// sub-agents, whose requests it yields.
func (l *lead) results(r *trace.Request, size int, pause time.Duration) (got results, ok bool) {
	c := l.cfg
	if pause == 0 {
		for range between(l.rand, 1, c.Team) {
			last, ok := l.subAgent(r)
			if !ok {
				return got, false
			}
			got.after = append(got.after, last.ID)
			got.text = append(got.text, l.shown(last.Answer)...)
		}
	} else {
		got.after, got.delay = []string{r.ID}, pause
	}
	tokens := size - r.Prompt.Len() - l.shown(r.Answer).Len() - got.text.Len()
	got.text = append(got.text, piece(r.ID+": results", max(tokens, 1)))
	return got, true
}

// subAgent yields the requests of a sub-agent that turn r has sent out, and
// returns its last one.
func (l *lead) subAgent(r *trace.Request) (trace.Request, bool) {
	c := l.cfg
	kind := l.rand.IntN(c.Kinds)
	name := fmt.Sprintf("%s, agent %d", r.Session, l.agents)
	l.agents++
	turns := between(l.rand, c.MinSubTurns, c.MaxSubTurns)
	a := trace.Request{
		Session: name, Parent: r.Session, At: r.At, After: []string{r.ID},
		Prompt: trace.Text{l.tools(), piece(fmt.Sprintf("harness %d: system of agent %d", l.harness, kind), c.SubSystem), piece(name+": task", l.logNormal(taskTokens, 0.6))},
	}
	for turn := range turns {
		a.ID = fmt.Sprintf("%s, turn %d", name, turn)
		a.Answer = l.answer(a.ID)
		a.Final = turn == turns-1
		if !l.hand(a) {
			return a, false
		}
		if !a.Final {
			l.next(&a, results{trace.Text{piece(a.ID+": results", l.logNormal(3_000, 0.8))}, []string{a.ID}, l.pause()})
		}
	}
	return a, true
}

// hand yields a request that nobody's later appending changes, with what it asks of
// caches.
func (l *lead) hand(r trace.Request) bool {
	c := l.cfg
	r.Prompt = slices.Clip(r.Prompt)
	if !c.KeepThinking {
		r.Thinking = int(l.thinking(r.Answer[0]))
	}
	r.KV.EvictSession = c.Tell && r.Final
	// Evenly spread: with a fifth of them every fifth.
	pins := math.Floor(float64(l.n+1)*c.Pinned) > math.Floor(float64(l.n)*c.Pinned)
	if pins && r.Parent == "" && !r.Final {
		r.KV.Pins = []kv.Pin{{UpTo: uint32(r.Prompt.Len()), TTL: c.PinTTL}}
	}
	return l.yield(r, nil)
}

// tools is what the prompts of a harness begin with.
func (l *lead) tools() trace.Piece {
	return piece(fmt.Sprintf("harness %d: tools", l.harness), l.cfg.Tools)
}

func (l *lead) answer(id string) trace.Text {
	return trace.Text{piece(id+": answer", min(l.logNormal(l.cfg.Answer, 0.7), 20*l.cfg.Answer))}
}

// shown is what the next prompt has of an answer.
func (l *lead) shown(answer trace.Text) trace.Text {
	if l.cfg.KeepThinking {
		return answer
	}
	p := answer[0]
	p.From = l.thinking(p)
	p.Len -= p.From
	if p.Len == 0 {
		return nil
	}
	return trace.Text{p}
}

// thinking returns how many tokens an answer begins with that are reasoning.
func (l *lead) thinking(answer trace.Piece) uint32 {
	return uint32(math.Round(float64(answer.Len) * l.cfg.Thinking))
}

func (l *lead) pause() time.Duration {
	least, most := math.Log(l.cfg.MinPause.Seconds()), math.Log(l.cfg.MaxPause.Seconds())
	const deviations = 1.96 // beyond which one in forty lies
	pause := time.Duration(math.Exp((least+most)/2+(most-least)/2/deviations*l.rand.NormFloat64()) * float64(time.Second))
	return min(max(pause, l.cfg.MinPause), l.cfg.MaxPause).Round(time.Millisecond)
}

// logNormal draws a number of tokens, at least 1.
func (l *lead) logNormal(median int, deviation float64) int {
	return max(1, int(math.Round(float64(median)*math.Exp(deviation*l.rand.NormFloat64()))))
}

// piece is the first tokens of the stream of a name.
func piece(name string, tokens int) trace.Piece {
	return trace.Piece{Stream: trace.Named(name), Len: uint32(tokens)}
}

// between draws a number from low to high.
func between(r *rand.Rand, low, high int) int { return low + r.IntN(high-low+1) }
