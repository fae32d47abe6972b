package agenttrace_test

import (
	"crypto/sha256"
	"fmt"
	"iter"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/sim/agenttrace"
	"github.com/dynago/dynago/sim/trace"
)

func collect(t testing.TB, requests iter.Seq2[trace.Request, error]) []trace.Request {
	t.Helper()
	var all []trace.Request
	for r, err := range requests {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// few is a workload that a test can write out.
func few() agenttrace.Config {
	c := agenttrace.Default()
	c.Leads = 8
	return c
}

// Figures of different days are of the same requests.
func TestSameEachTime(t *testing.T) {
	digest := sha256.New()
	for _, r := range collect(t, agenttrace.Default().Requests()) {
		fmt.Fprintln(digest, r.ID, r.Session, r.Parent, r.Final, r.At, r.After, r.Delay, r.Prompt, r.Answer, r.Thinking, r.Tool)
	}
	const want = "ba4f13725c05829decd862a9bd64c845f9e10802bd51d66cc34852ec237f8ff9"
	if got := fmt.Sprintf("%x", digest.Sum(nil)); got != want {
		t.Errorf("the default workload has digest\n%s, want\n%s", got, want)
	}
}

// Agents ask caches for what they are told to, and the requests stay the same.
func TestAsk(t *testing.T) {
	c := few()
	plain := collect(t, c.Requests())
	c.Pinned, c.PinTTL, c.Tell, c.Foresee = 0.25, time.Minute, true, true
	asking := collect(t, c.Requests())
	pinned, compacted, next := map[string]bool{}, 0, map[string]time.Duration{}
	for i := range asking {
		r := &asking[i]
		if len(r.KV.Pins) > 0 {
			pinned[r.Session] = true
			if p := r.KV.Pins[0]; p != (kv.Pin{UpTo: uint32(r.Prompt.Len()), TTL: time.Minute}) || r.Final {
				t.Errorf("%s pins %+v of %d tokens", r.ID, p, r.Prompt.Len())
			}
		}
		if r.KV.EvictSession != r.Final {
			t.Errorf("%s, which is the last one: %v, ends its session: %v", r.ID, r.Final, r.KV.EvictSession)
		}
		if r.KV.Compacted {
			compacted++
			if !strings.HasSuffix(r.After[0], "compaction") {
				t.Errorf("%s does not begin with a summary", r.ID)
			}
		}
		if want := next[r.Session]; r.Parent == "" && want > 0 && r.Delay != want {
			t.Errorf("%s comes after %v, and %v was foreseen", r.ID, r.Delay, want)
		}
		if next[r.Session] = r.KV.NextIn; r.KV.NextIn < 0 {
			t.Errorf("%s foresees %v", r.ID, r.KV.NextIn)
		}
		r.KV = kv.Directives{}
	}
	if len(pinned) != 2 || !pinned["lead 3"] || !pinned["lead 7"] || compacted != c.Leads {
		t.Errorf("%v pin, want leads 3 and 7; %d compactions, want one of each lead", pinned, compacted)
	}
	if diff := cmp.Diff(plain, asking); diff != "" {
		t.Errorf("what is asked has changed the requests:\n%s", diff)
	}
}

func TestStatistics(t *testing.T) {
	c := agenttrace.Default()
	c.Leads = 24
	s := agenttrace.Analyse(collect(t, c.Requests()))
	t.Logf("\n%s", s)
	for _, f := range []struct {
		what           string
		got, low, high float64
	}{
		{"leads", float64(s.Leads), 24, 24},
		{"turns of a lead, with the one that compacts", float64(s.LeadTurns) / 24, 29, 35},
		{"turns of a sub-agent", float64(s.SubTurns) / float64(s.SubAgents), 1.9, 2.1},
		{"sub-agents of a lead", float64(s.SubAgents) / 24, 9, 14},
		{"compactions", float64(s.Compactions), 24, 24},
		{"tokens before a compaction", s.LastFull, 174_990, 175_010},
		{"tokens after it", s.Compacted, 40_000, 40_000},
		{"seconds of a mean pause", s.MeanPause.Seconds(), 9, 10.5},
		{"seconds of the longest", s.MaxPause.Seconds(), 30, 30},
		{"thinking", s.Thinking, 0.395, 0.405},
		{"prompts of leads that were there", s.LeadReuse, 0.90, 0.95},
		{"prompts of sub-agents that were there", s.SubReuse, 0.85, 0.95},
		{"seconds between the first lead and the last", s.Span.Seconds(), 150, 350},
	} {
		if f.got < f.low || f.got > f.high {
			t.Errorf("%s: %.4g, want %.4g to %.4g", f.what, f.got, f.low, f.high)
		}
	}
}

// What must hold of each request, whatever is drawn.
func TestShape(t *testing.T) {
	c := few()
	w := collect(t, c.Requests())
	if err := trace.Check(w); err != nil {
		t.Fatal(err)
	}
	turns := map[string]int{}
	at := map[string]trace.Request{}
	tools := map[uint64]bool{}
	for _, r := range w {
		for _, id := range r.After {
			if _, ok := at[id]; !ok {
				t.Fatalf("%q comes before %q, which it waits for", r.ID, id)
			}
		}
		at[r.ID] = r
		tools[r.Prompt[0].Stream] = true
		if r.Prompt[0].Len != uint32(c.Tools) {
			t.Errorf("%q begins with %d tokens of tools", r.ID, r.Prompt[0].Len)
		}
		if !strings.HasSuffix(r.ID, "compaction") {
			turns[r.Session]++
		}
		if r.Delay != 0 && (r.Delay < c.MinPause || r.Delay > c.MaxPause) {
			t.Errorf("%q comes %v after what it waits for", r.ID, r.Delay)
		}
		if n := r.Prompt.Len(); n > c.Full+10 {
			t.Errorf("%q has a prompt of %d tokens", r.ID, n)
		}
		// The turn before is where the prompt continues, but for its thinking.
		previous, ok := at[last(r)]
		if !ok || previous.Session != r.Session || strings.HasSuffix(previous.ID, "compaction") {
			continue
		}
		if n := len(previous.Prompt); !slices.Equal(r.Prompt[:n], previous.Prompt) {
			t.Errorf("%q does not begin with %q", r.ID, previous.ID)
		}
		kept, answer := r.Prompt[len(previous.Prompt)], previous.Answer[0]
		if thinking := math.Round(float64(answer.Len) * c.Thinking); kept.Stream != answer.Stream || kept.From != uint32(thinking) || kept.From+kept.Len != answer.Len {
			t.Errorf("%q shows %v of the answer %v", r.ID, kept, answer)
		}
	}
	for session, n := range turns {
		low, high := c.MinTurns, c.MaxTurns
		if strings.Contains(session, "agent") {
			low, high = c.MinSubTurns, c.MaxSubTurns
		}
		if n < low || n > high {
			t.Errorf("%s has %d turns, want %d to %d", session, n, low, high)
		}
	}
	if len(tools) != c.Harnesses {
		t.Errorf("%d sets of tools, want %d", len(tools), c.Harnesses)
	}
}

func last(r trace.Request) string {
	if len(r.After) == 1 {
		return r.After[0]
	}
	return ""
}

// A template that shows the thinking lets a prompt begin with all that was there
// before it.
func TestKeepThinking(t *testing.T) {
	c := few()
	c.KeepThinking = true
	w := collect(t, c.Requests())
	s := agenttrace.Analyse(w)
	dropped := agenttrace.Analyse(collect(t, few().Requests()))
	if s.Thinking != 0 || s.LeadReuse <= dropped.LeadReuse {
		t.Errorf("with thinking kept %.3f of it is left out and %.4f of the prompts were there before, against %.4f without", s.Thinking, s.LeadReuse, dropped.LeadReuse)
	}
}

// How many leads there are and when they come does not change what one does.
func TestLeadsAreTheirOwn(t *testing.T) {
	c := few()
	all := collect(t, c.Requests())
	c.Leads, c.Rate = 3, 7
	some := collect(t, c.Requests())
	for i, r := range some {
		r.At, all[i].At = 0, 0
		if fmt.Sprint(r) != fmt.Sprint(all[i]) {
			t.Fatalf("request %d is\n%v among three leads and\n%v among eight", i, r, all[i])
		}
	}
}

func TestCheck(t *testing.T) {
	for want, change := range map[string]func(*agenttrace.Config){
		"leads":          func(c *agenttrace.Config) { c.Leads = 0 },
		"rate":           func(c *agenttrace.Config) { c.Rate = math.NaN() },
		"turns":          func(c *agenttrace.Config) { c.MaxTurns = 3 },
		"team":           func(c *agenttrace.Config) { c.Team = 0 },
		"thinking":       func(c *agenttrace.Config) { c.Thinking = 1 },
		"pauses":         func(c *agenttrace.Config) { c.MaxPause = time.Second },
		"compacted":      func(c *agenttrace.Config) { c.Compacted = 32_000 },
		"full":           func(c *agenttrace.Config) { c.Full = 40_000 },
		"chance of sub-": func(c *agenttrace.Config) { c.Spawn = 2 },
		"pinned":         func(c *agenttrace.Config) { c.Pinned = -0.5 },
		"time of pins":   func(c *agenttrace.Config) { c.Pinned = 0.5 },
	} {
		c := agenttrace.Default()
		change(&c)
		var got error
		for _, err := range c.Requests() {
			got = err
		}
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("%v, want an error with %q", got, want)
		}
	}
}

// The first requests of a lead, as a trace that others can read.
func ExampleConfig_Requests() {
	c := agenttrace.Default()
	c.Leads = 1
	n := 0
	for r, err := range c.Requests() {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		if n++; n > 3 {
			break
		}
		fmt.Printf("%s: %d tokens, then %d\n", r.ID, r.Prompt.Len(), r.Answer.Len())
	}
	// Output:
	// lead 0, turn 0: 33034 tokens, then 384
	// lead 0, agent 0, turn 0: 24507 tokens, then 107
	// lead 0, agent 0, turn 1: 38281 tokens, then 315
}
