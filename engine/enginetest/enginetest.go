// Package enginetest is the contract of an engine as tests: what every worker
// owes to those who call it, whatever computes behind it.
//
// The one idea: an engine is judged from outside, by its own card. A case that
// needs a feature which the card lacks, or a hook which the [Subject] lacks, is
// left out by name, and the list of names left out is part of the test, so that
// nothing is lost unnoticed. What few engines have, and what engines of another kind
// have, is left out by the card without a word.
package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Subject is an engine under test.
type Subject struct {
	// New returns a fresh engine, which is ready or will be soon. It arranges
	// by t.Cleanup for whatever ends it. The engine has room for 64 requests of
	// 500 tokens at once.
	New func(t *testing.T) engine.Engine
	// Slow is like New, but the engine runs one request at a time and takes a
	// few milliseconds for each token.
	Slow func(t *testing.T) engine.Engine
	// Restart kills an engine under its streams and starts it again.
	Restart func(e engine.Engine)
	// Drain makes an engine refuse what is new.
	Drain func(e engine.Engine)
	// Lose, while on, loses what the engine tells of its caches, on the way to who
	// reads it.
	Lose func(e engine.Engine, on bool)
	// Cut breaks all connections to an engine, which can be reached again at once.
	Cut func(e engine.Engine)
	// Full is like Slow, but the engine admits two requests and refuses a third.
	Full func(t *testing.T) engine.Engine
	// Legs returns an engine that computes prompts, and one that goes on from
	// there with what the other's answer hands over. They give the ids that
	// New's engines give.
	Legs func(t *testing.T) (prefill, decode engine.Engine)
	// Meeting is like Legs for engines whose legs run at once.
	Meeting func(t *testing.T) (prefill, decode engine.Engine)
	// Prompt returns n ids that the engine accepts; another seed makes another
	// prompt from the first id on. Nil: ids from 100 to 899.
	Prompt func(seed uint64, n int) []uint32
	// Virtual runs each case in a bubble of testing/synctest. It suits engines
	// that live in this process and use no sockets.
	Virtual bool
	// Skips names the cases that are to be left out, in order.
	Skips []string

	marks uint64 // requests made for their events alone
}

// test is one case of the contract.
type test struct {
	name  string // begins with the number of the case in the contract
	needs engine.Features
	hook  string                  // names of hooks, divided by spaces
	in    engine.Input            // that the engine must take; empty: that of the contract
	when  func(*engine.Card) bool // what else its card must say; nil: nothing
	rare  bool                    // of what few engines have: it is left out without being named
	run   func(t *testing.T, s *Subject)
}

// Run runs the whole contract.
func Run(t *testing.T, s Subject) { s.run(t, tests, engine.InputTokens) }

// run runs tests of engines that take this form of input, unless a test says another.
func (s Subject) run(t *testing.T, tests []test, in engine.Input) {
	if s.Prompt == nil {
		s.Prompt = defaultPrompt
	}
	var card *engine.Card
	learn := func(t *testing.T) { card = ready(t, s.New(t)).Card }
	if s.bubble(t, "card", learn); card == nil && !t.Failed() {
		s.within(t, learn) // of all these tests, -run wants others
	}
	var skipped []string
	for _, c := range tests {
		if of := cmp.Or(c.in, in); of != anything && !card.Accept(of) {
			continue
		}
		if !s.can(&c, card) {
			if !c.rare {
				skipped = append(skipped, c.name)
			}
			continue
		}
		s.bubble(t, c.name, func(t *testing.T) { c.run(t, &s) })
	}
	if !slices.Equal(skipped, s.Skips) {
		t.Errorf("left out %q, the subject says %q", skipped, s.Skips)
	}
}

func (s *Subject) bubble(t *testing.T, name string, run func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { s.within(t, run) })
}

// within runs a part of a test in the time that the subject lives in.
func (s *Subject) within(t *testing.T, run func(t *testing.T)) {
	if s.Virtual {
		synctest.Test(t, run)
		return
	}
	run(t)
}

func (s *Subject) can(c *test, card *engine.Card) bool {
	for _, f := range c.needs {
		if !card.Features.Has(f) {
			return false
		}
	}
	if c.when != nil && !c.when(card) {
		return false
	}
	has := map[string]bool{
		"slow": s.Slow != nil, "restart": s.Restart != nil, "drain": s.Drain != nil, "lose": s.Lose != nil, "cut": s.Cut != nil,
		"full": s.Full != nil, "legs": s.Legs != nil, "meeting": s.Meeting != nil,
	}
	for hook, there := range has {
		if !there && slices.Contains(strings.Fields(c.hook), hook) {
			return false
		}
	}
	return true
}

func defaultPrompt(seed uint64, n int) []uint32 {
	ids := make([]uint32, n)
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range ids {
		x = x*6364136223846793005 + 1442695040888963407
		ids[i] = 100 + uint32(x>>33)%800
	}
	return ids
}

// request asks for n tokens after a prompt, whatever they are.
func (s *Subject) request(seed uint64, prompt, n int) *engine.Request {
	return &engine.Request{
		ID:       fmt.Sprintf("test-%d-0", seed),
		TokenIDs: s.Prompt(seed, prompt),
		Stop:     engine.Stop{MaxTokens: n},
	}
}

// ready waits until the engine takes requests and returns its status.
func ready(t *testing.T, e engine.Engine) engine.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for st, err := range e.Card(ctx) {
		if err != nil {
			t.Fatalf("card: %v", err)
		}
		if st.State == engine.Ready {
			return st
		}
	}
	t.Fatal("not ready within 5 s")
	return engine.Status{}
}

// answer is a whole stream, which has kept the rules of streams.
type answer struct {
	ids    []uint32
	deltas []engine.Delta
	last   engine.Delta // the terminal one
	err    error
}

// collect reads a stream to its end, and fails the test where a rule that holds
// for every stream is broken.
func collect(ctx context.Context, t *testing.T, e engine.Engine, r *engine.Request) (a answer) {
	t.Helper()
	ended := false
	for d, err := range e.Generate(ctx, r) {
		if ended {
			t.Errorf("%+v, %v after the end", d, err)
		}
		if err != nil {
			if !zero(d) {
				t.Errorf("an error with a delta: %+v", d)
			}
			a.err, ended = err, true
			continue
		}
		if len(d.TokenIDs) > 0 && d.Text != "" {
			t.Errorf("ids and text together: %+v", d)
		}
		if r.Logprobs != nil && len(d.Logprobs) != len(d.TokenIDs) {
			t.Errorf("%d log probabilities for %d ids", len(d.Logprobs), len(d.TokenIDs))
		}
		a.ids = append(a.ids, d.TokenIDs...)
		a.deltas = append(a.deltas, d)
		if d.Finish != engine.Running {
			a.last, ended = d, true
			if d.Usage == nil {
				t.Errorf("the terminal delta has no usage: %+v", d)
				a.last.Usage = &engine.Usage{}
			}
		}
	}
	if !ended {
		t.Error("the stream ended without a terminal delta or an error")
	}
	return a
}

func zero(d engine.Delta) bool {
	return d.TokenIDs == nil && d.Text == "" && d.Logprobs == nil && d.PromptLogprobs == nil && d.Finish == "" && d.Usage == nil
}

// generate is collect for requests that must succeed.
func generate(t *testing.T, e engine.Engine, r *engine.Request) answer {
	t.Helper()
	a := collect(context.Background(), t, e, r)
	if a.err != nil {
		t.Fatalf("generate: %v", a.err)
	}
	return a
}

// loadNow returns one reading.
func loadNow(t *testing.T, e engine.Engine) engine.Load {
	t.Helper()
	for l, err := range e.Load(context.Background()) {
		if err != nil {
			t.Fatalf("load: %v", err)
		}
		return l
	}
	t.Fatal("no load")
	return engine.Load{}
}

// awaitLoad waits until the sum over the ranks is as wanted.
func awaitLoad(t *testing.T, e engine.Engine, within time.Duration, what string, is func(running, waiting int64) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for l, err := range e.Load(ctx) {
		if err != nil {
			t.Fatalf("load: %v", err)
		}
		var running, waiting int64
		for _, r := range l.Ranks {
			running += r.Running
			waiting += r.Waiting
		}
		if is(running, waiting) {
			return
		}
	}
	t.Fatalf("%s: not within %v, load is %+v", what, within, loadNow(t, e))
}

func idle(running, waiting int64) bool { return running == 0 && waiting == 0 }

// soon fails the test if since is longer ago than a source may take to end:
// 20 ms of its own, and in real time as much as a busy machine may add.
func (s *Subject) soon(t *testing.T, what string, since time.Time) {
	t.Helper()
	limit := 20 * time.Millisecond
	if !s.Virtual {
		limit += 230 * time.Millisecond
	}
	if d := time.Since(since); d > limit {
		t.Errorf("%s took %v, want at most %v", what, d, limit)
	}
}

// view folds events into the set of blocks they leave.
type view map[kv.EngineHash]kv.LocalHash

// has says whether there is a block with this content.
func (v view) has(l kv.LocalHash) bool {
	for _, have := range v {
		if have == l {
			return true
		}
	}
	return false
}

func (v view) apply(t *testing.T, b kv.Batch) {
	t.Helper()
	if b.Gap != "" {
		clear(v)
	}
	for _, e := range b.Events {
		switch e.Kind {
		case kv.Stored:
			if _, ok := v[e.Parent]; e.HasParent && !ok {
				t.Errorf("stored below %x, which is not there", e.Parent)
			}
			for _, block := range e.Blocks {
				v[block.Engine] = block.Local
			}
		case kv.Removed:
			for _, block := range e.Blocks {
				if _, ok := v[block.Engine]; !ok {
					t.Errorf("removed %x, which is not there", block.Engine)
				}
				delete(v, block.Engine)
			}
		case kv.Cleared:
			clear(v)
		}
	}
}
