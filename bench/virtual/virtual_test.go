package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/internal/estimate"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/trace"
)

func TestRefusals(t *testing.T) {
	for args, want := range map[string]string{
		"":                              "want place, routing, queue, workflow, pins, subagents, foresight or estimates",
		"races":                         `"races"`,
		"routing -workload tides":       `"tides": want conversation, synthetic, agents, one-prefix, long-answers`,
		"routing -short -timing guess":  "timing_model",
		"queue -load heavy":             "invalid value",
		"workflow -short -unknown=true": "unknown",
	} {
		if err := run(strings.Fields(args), new(strings.Builder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", args, err, want)
		}
	}
}

func TestPlacementIsThePublishedOne(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"place"}, &out); err != nil {
		t.Fatal(err)
	}
	var p placement
	if err := json.Unmarshal([]byte(out.String()), &p); err != nil {
		t.Fatal(err)
	}
	if p.Cells != 36 || p.Off != 0 || p.Worst == 0 || p.Worst > 0.001 {
		t.Errorf("%+v, want 36 cells of which none is off", p)
	}
}

// A fleet keeps up unless waits grow as time passes.
func TestSustained(t *testing.T) {
	const n = 300
	w := make([]trace.Request, n)
	for i := range w {
		w[i] = trace.Request{ID: fmt.Sprint(i), At: time.Duration(i) * time.Second}
	}
	for name, tt := range map[string]struct {
		ttft func(at float64) float64 // seconds
		want bool
	}{
		"always the same":      {func(float64) float64 { return 2 }, true},
		"a slow start":         {func(at float64) float64 { return max(0.3, 60-at) }, true},
		"from the start":       {func(at float64) float64 { return 0.3 + 0.1*at }, false},
		"from the middle on":   {func(at float64) float64 { return 0.3 + max(0, 0.1*(at-150)) }, false},
		"a little up and down": {func(at float64) float64 { return 1 + 0.2*math.Sin(at) }, true},
	} {
		var records []*sim.Record
		for i := range w {
			at := w[i].At
			records = append(records, &sim.Record{ID: w[i].ID, Arrived: at, First: at + time.Duration(tt.ttft(at.Seconds())*float64(time.Second))})
		}
		// What follows others comes later, and does not count.
		late := w[n-1].At + time.Minute
		for range n {
			records = append(records, &sim.Record{Arrived: late, First: late + time.Hour})
		}
		if got := sustained(w, records); got != tt.want {
			t.Errorf("%s: sustained is %v", name, got)
		}
	}
}

// Priorities help those who have them where memory is short and engines heed them:
// the router, which holds back only prompts, has none to hold back.
func TestPrioritiesHelp(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"workflow", "-short"}, &out); err != nil {
		t.Fatal(err)
	}
	var all []pressure
	if err := json.Unmarshal([]byte(out.String()), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != len(pressed)+3 {
		t.Fatalf("%d outcomes, want one for each of %d sizes, one of plain engines and two with pauses", len(all), len(pressed))
	}
	for _, p := range all {
		high := p.Tiers[0]
		helped := high.P50 < 0.95*high.FCFS50
		if want := p.Blocks < 640 && !p.Plain; high.Tier != "high" || helped != want {
			t.Errorf("caches of %d blocks, plain engines %v, pauses of %v: %+v, want less for tier high: %v", p.Blocks, p.Plain, p.Pause, high, want)
		}
	}
}

// Where more comes than can be done, the router alone puts first who is in a hurry.
func TestRouterPutsFirst(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"queue", "-short", "-load", "1.25"}, &out); err != nil {
		t.Fatal(err)
	}
	var q queueing
	if err := json.Unmarshal([]byte(out.String()), &q); err != nil {
		t.Fatal(err)
	}
	for _, tier := range q.Tiers {
		if first := tier.Tier == "strict" || tier.Tier == "high"; first && tier.P50 > 0.2*tier.FCFS50 || tier.Longest > q.Bound {
			t.Errorf("%+v, want a fifth for those in a hurry, and nobody to wait for more than %.0f s", tier, q.Bound)
		}
	}
}

// What is pinned is there after a pause, and others hardly pay for it.
func TestPinsHold(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"pins", "-short"}, &out); err != nil {
		t.Fatal(err)
	}
	var p pinned
	if err := json.Unmarshal([]byte(out.String()), &p); err != nil {
		t.Fatal(err)
	}
	lru, pins := p.Runs[0], p.Runs[2]
	if p.Pinned == 0 || pins.Pauses == 0 || pins.Present < 0.99 || pins.AgainPinned > lru.AgainPinned/3 || pins.HitOthers < lru.HitOthers-0.05 {
		t.Errorf("%+v", p)
	}
}

// With a store that all share the prefix of sub-agents is computed once.
func TestSubAgentsShare(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"subagents"}, &out); err != nil {
		t.Fatal(err)
	}
	var s sharing
	if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
		t.Fatal(err)
	}
	want := map[string][2]float64{ // prefills without the store and with it
		"together, after their parent":          {4, 1},
		"two seconds apart":                     {4, 1},
		"together, and cold":                    {4, 4},
		"together, after their parent, by cost": {1, 1},
	}
	for _, r := range s.Runs {
		i := 0
		if r.Store {
			i = 1
		}
		if got := r.Prefills; got != want[r.Begin][i] {
			t.Errorf("%s, with a store: %v: %v prefills, want %v", r.Begin, r.Store, got, want[r.Begin][i])
		}
	}
}

// What is computed ahead is used, and later turns are answered sooner for it.
func TestForesightHelps(t *testing.T) {
	for timing, times := range map[string]float64{"polynomial": 1.4, "roofline": 2.5} {
		var out strings.Builder
		if err := run([]string{"foresight", "-short", "-timing", timing}, &out); err != nil {
			t.Fatal(err)
		}
		var f foreseeing
		if err := json.Unmarshal([]byte(out.String()), &f); err != nil {
			t.Fatal(err)
		}
		writing, reading := f.Runs[0], f.Runs[1]
		if writing.TTFTWithout < times*writing.TTFT || reading.TTFTWithout < reading.TTFT {
			t.Errorf("%s: %+v", timing, f)
		}
		for _, r := range f.Runs {
			if r.Used*10 < r.Ahead*9 || r.Ahead == 0 || r.Foreseen < r.Requests*9/10 {
				t.Errorf("%s: %+v", timing, r)
			}
		}
	}
}

// A prompt that is computed ahead ends with the last whole block of the answer without
// its thinking.
func TestAhead(t *testing.T) {
	r := trace.Request{
		ID: "a", Session: "s", Thinking: 5,
		Prompt: trace.Text{{Stream: 1, Len: 30}, {Stream: 2, Len: 3}}, Answer: trace.Text{{Stream: 3, Len: 20}},
	}
	for block, want := range map[int]trace.Text{
		1:  {{Stream: 1, Len: 30}, {Stream: 2, Len: 3}, {Stream: 3, From: 5, Len: 15}},
		16: {{Stream: 1, Len: 30}, {Stream: 2, Len: 3}, {Stream: 3, From: 5, Len: 15}},
		40: {{Stream: 1, Len: 30}, {Stream: 2, Len: 3}, {Stream: 3, From: 5, Len: 7}},
		32: {{Stream: 1, Len: 30}, {Stream: 2, Len: 2}},
		30: {{Stream: 1, Len: 30}},
	} {
		if got := ahead(&r, block); !slices.Equal(got.Prompt, want) || got.Session != "s" || !slices.Equal(got.After, []string{"a"}) {
			t.Errorf("blocks of %d: %+v, want %v", block, got, want)
		}
	}
	if r.Prompt[1].Len != 3 || r.Answer[0].Len != 20 {
		t.Errorf("the turn itself became %+v", r)
	}
}

// What is learned of answers is of use for telling tools apart, and every request is
// answered whoever tells; the truth is never off.
func TestEstimates(t *testing.T) {
	var out strings.Builder
	if err := run([]string{"estimates", "-short"}, &out); err != nil {
		t.Fatal(err)
	}
	var e estimating
	if err := json.Unmarshal([]byte(out.String()), &e); err != nil {
		t.Fatal(err)
	}
	if len(e.Runs) != 3*(3*len(tracked)+2) {
		t.Fatalf("%d runs", len(e.Runs))
	}
	for _, r := range e.Runs {
		switch {
		case r.By != learned && r.Error != 0:
			t.Errorf("%+v: nothing was estimated, and yet it was off", r)
		case r.By == learned && (r.Error == 0 || r.Error > 0.8):
			t.Errorf("%+v: want estimates that are off by less than 0.8 of what comes", r)
		case r.Device == 0 || r.Device > r.Hit+1e-9:
			t.Errorf("%+v: want something cached, and no more on the device than in all", r)
		}
	}
}

// One who tells knows of a request only what was known when it came: of its answer what
// answers behind the same tool were, of its pause what the tool that it calls has taken.
func TestTeller(t *testing.T) {
	w := craftsmen(40, 1)
	for _, tokens := range []bool{true, false} {
		tell := newTeller(w, learned, tokens)
		for i := range w.requests {
			r := &w.requests[i]
			answer, pause := tell.expect(r)
			if tokens && pause != 0 || !tokens && answer != 0 {
				t.Fatalf("%s: told %d tokens and %v", r.ID, answer, pause)
			}
			tell.ended(&sim.Record{ID: r.ID, Output: r.Answer.Len()})
		}
		of := func(tool string) uint32 {
			k := estimate.Key{Model: "sim", Agent: "lead", Trigger: "tool", Tool: tool}
			if !tokens {
				k.Trigger = ""
			}
			e, _ := tell.book.Of(k)
			return e.Median
		}
		// The usual call behind an edit is a test, behind a question a file is written.
		short, long := of("edit"), of("ask")
		if !tokens {
			short, long = of("read"), of("ask")
		}
		if short == 0 || long < 3*short {
			t.Errorf("tokens %t: %d and %d are expected, want the second to be much more", tokens, short, long)
		}
	}
}
