package tree_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/tree"
)

// epoch is the unix time, in milliseconds, from which tests count.
const epoch = 1790000000000

func turn(id, chain, parent string, at, took int, calls ...string) *trace.Record {
	r := &trace.Record{Schema: trace.Schema, EventType: trace.RequestEnd, EventTime: uint64(epoch + at + took), Request: &trace.Request{
		RequestID: id, Received: new(uint64(epoch + at)), TotalTime: new(float64(took)),
		Replay: &trace.Replay{BlockSize: 4, InputLength: 4, Hashes: []uint64{1}},
	}}
	if chain != "" {
		r.Agent = &trace.AgentContext{SessionID: chain, ParentSessionID: parent}
	}
	if len(calls) > 0 {
		r.Request.Finish = &trace.Finish{Reason: "tool_calls"}
		for i, call := range calls {
			id, name, _ := strings.Cut(call, "=")
			r.Request.Finish.ToolCalls = append(r.Request.Finish.ToolCalls, trace.ToolCall{Index: uint32(i), ID: id, Name: name})
		}
	}
	return r
}

// bringing adds the results of tools to a turn.
func bringing(r *trace.Record, ids ...string) *trace.Record {
	r.Request.Dynago = &trace.Dynago{ToolResults: ids}
	return r
}

func event(kind, chain, id string, at int, change func(*trace.Tool)) *trace.Record {
	r := &trace.Record{
		Schema: trace.Schema, EventType: kind, EventTime: uint64(epoch + at), Source: trace.SourceHarness,
		Agent: &trace.AgentContext{SessionID: chain}, Tool: &trace.Tool{ID: id, Class: "x"},
	}
	if change != nil {
		change(r.Tool)
	}
	return r
}

// Before an engine that answers at once a chain has several turns in a millisecond. They
// stand as their rows do, whatever their ids and durations are.
func TestTurnsOfOneMillisecond(t *testing.T) {
	var b tree.Builder
	var s tree.Stats
	for _, r := range []func() *trace.Record{
		func() *trace.Record { return turn("z", "a", "", 0, 1, "x=read") },
		func() *trace.Record { return turn("y", "a", "", 0, 0) },
		func() *trace.Record { return turn("b", "a", "", 5, 0) },
		func() *trace.Record { return turn("first", "a", "", -1, 9) },
	} {
		b.Add(r())
		s.Add(r())
	}
	var order []string
	for _, turn := range b.Tree().Sessions[0].Turns {
		order = append(order, turn.Request.RequestID)
	}
	if want := []string{"first", "z", "y", "b"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
	s.Chains()
	if s.Pause.N != 0 {
		t.Errorf("%d pauses; the turn after that with a tool began before its end", s.Pause.N)
	}
}

// draw writes a tree as indented lines.
func draw(t *tree.Tree) string {
	var b strings.Builder
	since := func(at time.Time) int64 { return at.UnixMilli() - epoch }
	flags := func(all map[string]bool) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if all[name] {
				b.WriteString(name)
			}
		}
	}
	tool := func(in string, u *tree.Tool) {
		fmt.Fprintf(&b, "%s- %s %s@%d+%v", in, u.ID, u.Class, since(u.Start), u.Duration)
		flags(map[string]bool{" inferred": u.Inferred(), " running": u.Running(), " failed": u.Failed()})
		if u.Answered != nil {
			fmt.Fprintf(&b, " answered by %s", u.Answered.Request.RequestID)
		}
		b.WriteString("\n")
	}
	var chain func(in string, c *tree.Chain)
	chain = func(in string, c *tree.Chain) {
		fmt.Fprintf(&b, "%s%s", in, cmp.Or(c.ID, "alone"))
		flags(map[string]bool{" missing": c.Missing, " disputed": c.Disputed, " of " + c.ParentID: c.Parent == nil && c.ParentID != ""})
		b.WriteString("\n")
		for _, t := range c.Turns {
			fmt.Fprintf(&b, "%s  %s@%d-%d", in, t.Request.RequestID, since(t.Start), since(t.End))
			if len(t.Unasked) > 0 {
				fmt.Fprintf(&b, " unasked %s", strings.Join(t.Unasked, " "))
			}
			b.WriteString("\n")
			for _, u := range t.Tools {
				tool(in+"    ", u)
			}
			for _, child := range t.Children {
				chain(in+"    ", child)
			}
		}
		for _, u := range c.Tools {
			tool(in+"  ", u)
		}
		for _, child := range c.Children {
			if child.Opened == nil {
				chain(in+"  ", child)
			}
		}
	}
	for _, s := range t.Sessions {
		chain("", s)
	}
	if len(t.Alone.Turns) > 0 {
		chain("", t.Alone)
	}
	return b.String()
}

func build(records ...*trace.Record) *tree.Tree {
	var b tree.Builder
	for _, r := range records {
		b.Add(r)
	}
	return b.Tree()
}

func TestTree(t *testing.T) {
	for _, tc := range []struct {
		name    string
		records []*trace.Record
		want    string
	}{
		{"nothing", nil, ""},
		{"turns in disorder", []*trace.Record{turn("b", "s", "", 200, 50), turn("a", "s", "", 0, 100), turn("c", "s", "", 200, 70)}, `
s
  a@0-100
  b@200-250
  c@200-270
`},
		{"sub-agents", []*trace.Record{
			turn("k1", "kid", "s", 130, 50), turn("g1", "grandkid", "kid", 140, 5), turn("a", "s", "", 0, 100), turn("b", "s", "", 200, 50),
			turn("e1", "early", "s", -10, 5), turn("k2", "kid", "s", 220, 50), turn("d", "other", "", 300, 1),
		}, `
s
  a@0-100
    kid
      k1@130-180
        grandkid
          g1@140-145
      k2@220-270
  b@200-250
  early
    e1@-10--5
other
  d@300-301
`},
		{"a sub-agent that begins with a turn", []*trace.Record{turn("a", "s", "", 0, 100), turn("b", "s", "", 200, 50), turn("k", "kid", "s", 200, 5)}, `
s
  a@0-100
  b@200-250
    kid
      k@200-205
`},
		{"a parent of which nothing was recorded", []*trace.Record{turn("a", "s", "gone", 10, 1), turn("b", "t", "gone", 0, 1)}, `
gone missing
  t
    b@0-1
  s
    a@10-11
`},
		{"parents that are their own", []*trace.Record{turn("a", "s", "s", 0, 1), turn("b", "t", "u", 5, 1), turn("c", "u", "t", 7, 1)}, `
s
  a@0-1
u disputed of t
  c@7-8
  t
    b@5-6
`},
		{"two parents", []*trace.Record{turn("a", "s", "p", 0, 1), turn("b", "s", "q", 5, 1), turn("c", "p", "", -5, 1)}, `
p
  c@-5--4
    s disputed
      a@0-1
      b@5-6
`},
		{"recorded twice", []*trace.Record{turn("a", "s", "", 0, 1), turn("a", "s", "", 0, 1), event(trace.ToolEnd, "s", "t", 3, nil), event(trace.ToolEnd, "s", "t", 3, nil)}, `
s
  a@0-1
    - t x@3+0s
`},
		{"of no agent", []*trace.Record{turn("b", "", "", 5, 1), turn("a", "", "", 0, 1)}, `
alone
  a@0-1
  b@5-6
`},
		{"inferred tools", []*trace.Record{
			turn("a", "s", "", 0, 100, "t1=bash", "t2=grep"), turn("b", "s", "", 300, 100, "t3="), turn("c", "s", "", 350, 100, "=last"),
			event(trace.ToolEnd, "s", "t1", 150, func(t *trace.Tool) { t.Duration = new(20.0) }), event(trace.ToolEnd, "other", "t2", 150, nil),
		}, `
s
  a@0-100
    - t2 grep@100+200ms inferred
    - t1 x@130+20ms
  b@300-400
    - t3 @400+0s inferred
  c@350-450
    -  last@450+0s inferred
other
  - t2 x@150+0s
`},
		{"results", []*trace.Record{
			turn("a", "s", "", 0, 100, "t1=bash", "t2=grep", "t3=run", "t4=ls"), turn("title", "s", "", 110, 5), bringing(turn("b", "s", "", 300, 100, "t5=bash"), "t1", "gone"),
			bringing(turn("c", "s", "", 350, 100), "t2", "t1"), bringing(turn("d", "s", "", 500, 100), "t5", "t1", "t3"),
			event(trace.ToolEnd, "s", "t3", 150, func(t *trace.Tool) { t.Duration = new(20.0) }),
			bringing(turn("k", "kid", "s", 600, 1), "t1"), bringing(turn("x", "", "", 0, 1, "t1=bash"), "t1"),
		}, `
s
  a@0-100
    - t1 bash@100+200ms inferred answered by b
    - t2 grep@100+250ms inferred answered by c
    - t4 ls@100+10ms inferred
    - t3 x@130+20ms answered by d
  title@110-115
  b@300-400 unasked gone
    - t5 bash@400+100ms inferred answered by d
  c@350-450
  d@500-600
    kid
      k@600-601 unasked t1
alone
  x@0-1
    - t1 bash@1+0s inferred
`},
		{"when tools ran", []*trace.Record{
			turn("a", "s", "", 0, 10),
			event(trace.ToolEnd, "s", "both", 100, func(t *trace.Tool) {
				t.Started, t.Ended, t.Duration = new(uint64(epoch+20)), new(uint64(epoch+60)), new(5.0)
			}),
			event(trace.ToolEnd, "s", "backwards", 101, func(t *trace.Tool) {
				t.Started, t.Ended, t.Duration = new(uint64(epoch+60)), new(uint64(epoch+20)), new(5.0)
			}),
			event(trace.ToolEnd, "s", "started", 102, func(t *trace.Tool) { t.Started, t.Duration = new(uint64(epoch+21)), new(5.0) }),
			event(trace.ToolEnd, "s", "ended", 103, func(t *trace.Tool) { t.Ended, t.Duration = new(uint64(epoch+90)), new(5.0) }),
			event(trace.ToolStart, "s", "matched", 25, nil), event(trace.ToolStart, "s", "matched", 30, nil), event(trace.ToolError, "s", "matched", 104, nil),
			event(trace.ToolStart, "s", "running", 31, nil),
			event(trace.ToolEnd, "s", "unknown", 105, func(t *trace.Tool) { t.Status, t.Duration = "error", new(-1.0) }),
			event(trace.ToolEnd, "s", "before", -5, nil),
		}, `
s
  a@0-10
    - both x@20+40ms
    - started x@21+5ms
    - matched x@25+0s running
    - matched x@30+74ms failed
    - running x@31+0s running
    - backwards x@60+5ms
    - ended x@85+5ms
    - unknown x@105+0s failed
  - before x@-5+0s
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := gocmp.Diff(strings.TrimPrefix(tc.want, "\n"), draw(build(tc.records...))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// The names of trajectories count where a record has them.
func TestTrajectories(t *testing.T) {
	body := turn("a", "run-7", "", 0, 1)
	body.Agent.SessionTypeID, body.Agent.TrajectoryID = "coding", "lead"
	child := turn("b", "run-7", "", 5, 1)
	child.Agent.TrajectoryID, child.Agent.ParentTrajectoryID = "kid", "lead"
	got := build(body, child)
	if s := got.Sessions; len(s) != 1 || s[0].ID != "lead" || s[0].Run != "run-7" || s[0].Type != "coding" || s[0].Turns[0].Children[0].ID != "kid" {
		t.Errorf("%s", draw(got))
	}
	var kin tree.Kin
	kin.Add(body)
	kin.Add(child)
	if of := kin.Of("run-7"); len(of) != 2 || !of["lead"] || !of["kid"] {
		t.Errorf("chains of the run: %v", of)
	}
}

// When a record does not say how long a request took, the times that it has say it.
func TestTimes(t *testing.T) {
	for _, tc := range []struct {
		change func(*trace.Record)
		want   string
	}{
		{func(r *trace.Record) {}, "0-100"},
		{func(r *trace.Record) { r.Request.TotalTime = nil; r.EventTime = epoch + 70 }, "0-70"},
		{func(r *trace.Record) { r.Request.TotalTime = new(-1.0); r.EventTime = epoch - 70 }, "0-0"},
		{func(r *trace.Record) { r.Request.Received = nil }, "100-200"},
		{func(r *trace.Record) { r.Request.TotalTime = new(math.NaN()); r.EventTime = epoch + 3 }, "0-3"},
		{func(r *trace.Record) { r.Request.Received, r.EventTime = nil, math.MaxUint64 }, "251612300799999-251612300800099"},
	} {
		r := turn("a", "s", "", 0, 100)
		tc.change(r)
		if got := draw(build(r)); got != "s\n  a@"+tc.want+"\n" {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
}

// Hashes are not held, and what only they tell is kept.
func TestPromptOfReplay(t *testing.T) {
	r := build(turn("a", "s", "", 0, 1)).Sessions[0].Turns[0].Request
	if r.Replay != nil || r.InputTokens == nil || *r.InputTokens != 4 {
		t.Errorf("%+v", r)
	}
}

// anything draws records of few chains, in which parents, ids and times clash.
func anything(t *rapid.T) []*trace.Record {
	name := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"})
	var list []*trace.Record
	for range rapid.IntRange(0, 30).Draw(t, "records") {
		chain, parent := name.Draw(t, "chain"), name.Draw(t, "parent")
		at := rapid.IntRange(-1000, 1000).Draw(t, "at")
		id := fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "id"))
		if chain != "" && rapid.Bool().Draw(t, "tool") {
			kind := rapid.SampledFrom([]string{trace.ToolStart, trace.ToolEnd, trace.ToolError}).Draw(t, "kind")
			list = append(list, event(kind, chain, id, at, nil))
			continue
		}
		var calls []string
		for range rapid.IntRange(0, 2).Draw(t, "calls") {
			calls = append(calls, fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "call"), "=n"))
		}
		list = append(list, turn(id, chain, parent, at, rapid.IntRange(0, 500).Draw(t, "took"), calls...))
	}
	return list
}

// Whatever records say, each request and each tool is in the tree once, chains are below
// one parent and in no circle, and turns are in order.
func TestNothingIsLeftOut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		list := anything(rt)
		requests, ends := map[string]bool{}, map[string]bool{}
		for _, r := range list {
			switch {
			case r.EventType == trace.RequestEnd:
				requests[r.Request.RequestID] = true
			case r.EventType != trace.ToolStart:
				ends[fmt.Sprint(r.Agent.Chain(), r.Tool.ID, r.EventType, r.EventTime)] = true
			}
		}
		got := build(list...)
		chains, turns, tools := map[*tree.Chain]bool{}, 0, 0
		visit := func(c *tree.Chain) {
			if chains[c] {
				rt.Fatalf("chain %q is there twice", c.ID)
			}
			chains[c] = true
			all := slices.Clone(c.Tools)
			for i, turn := range c.Turns {
				turns++
				delete(requests, turn.Request.RequestID)
				if turn.Chain != c || i > 0 && (c.Turns[i-1].Next != turn || turn.Start.Before(c.Turns[i-1].Start)) {
					rt.Fatalf("turn %q is out of order", turn.Request.RequestID)
				}
				for _, child := range turn.Children {
					if child.Parent != c || child.Opened != turn || !slices.Contains(c.Children, child) {
						rt.Fatalf("chain %q is below %q, and should not be", child.ID, c.ID)
					}
				}
				for _, u := range turn.Tools {
					if u.Turn != turn {
						rt.Fatalf("tool %q is below a turn that is not its own", u.ID)
					}
				}
				all = append(all, turn.Tools...)
			}
			for _, u := range all {
				if u.Duration < 0 {
					rt.Fatalf("tool %q took %v", u.ID, u.Duration)
				}
				if !u.Inferred() && !u.Running() {
					tools++
				}
			}
		}
		for _, s := range got.Sessions {
			if s.Parent != nil {
				rt.Fatalf("session %q has a parent", s.ID)
			}
			s.Walk(visit)
		}
		visit(got.Alone)
		n := 0
		for _, r := range list {
			if r.EventType == trace.RequestEnd {
				n++
			}
		}
		if len(requests) > 0 || tools != len(ends) {
			rt.Fatalf("requests %v are left out, and there are %d tools, want %d:\n%s", requests, tools, len(ends), draw(got))
		}
		// The order in which records come changes nothing but which of two that contradict
		// each other counts.
		if agree(list) {
			if again := draw(build(rapid.Permutation(fresh(list)).Draw(rt, "order")...)); again != draw(build(fresh(list)...)) {
				rt.Fatalf("in another order:\n%s\nwas\n%s", again, draw(got))
			}
		}
	})
}

// fresh returns records as they were before a builder had them.
func fresh(list []*trace.Record) []*trace.Record {
	again := make([]*trace.Record, len(list))
	for i, r := range list {
		c := *r
		if r.Request != nil {
			request := *r.Request
			c.Request = &request
		}
		again[i] = &c
	}
	return again
}

// agree says whether no two records contradict each other.
func agree(list []*trace.Record) bool {
	ids, parents, starts := map[string]bool{}, map[string]string{}, map[int64]bool{}
	for _, r := range list {
		id := ""
		if r.Agent != nil {
			id = r.Agent.Chain()
			if p := r.Agent.ParentChain(); p != "" {
				if known := parents[id]; known != "" && known != p || p >= id {
					return false
				}
				parents[id] = p
			}
		}
		key := fmt.Sprint(id, r.RequestID(), r.EventType)
		if r.Tool != nil {
			key += r.Tool.ID
		} else {
			key = r.RequestID()
		}
		at := int64(r.EventTime)
		if r.Request != nil {
			at = int64(*r.Request.Received)
		}
		if ids[key] || starts[at] {
			return false
		}
		ids[key], starts[at] = true, true
	}
	return true
}

// A part of a trace is what the whole has of it.
func TestPart(t *testing.T) {
	list := []*trace.Record{
		turn("a", "s", "", 0, 100), turn("k", "kid", "s", 130, 50), turn("g", "grandkid", "kid", 140, 5),
		turn("o", "other", "", 300, 1), turn("x", "", "", 0, 1), event(trace.ToolEnd, "kid", "t", 170, nil),
	}
	var kin tree.Kin
	for _, r := range list {
		kin.Add(r)
	}
	part := func(wanted map[string]bool) string {
		b := tree.Builder{Only: func(chain string) bool { return wanted[chain] }}
		for _, r := range fresh(list) {
			b.Add(r)
		}
		return draw(b.Tree())
	}
	if got, want := part(kin.Of("kid")), "kid of s\n  k@130-180\n    - t x@170+0s\n    grandkid\n      g@140-145\n"; got != want {
		t.Errorf("%s", gocmp.Diff(want, got))
	}
	if of := kin.Of("nobody"); len(of) > 0 {
		t.Errorf("of nobody: %v", of)
	}
	first, more := kin.Roots(1)
	if got := part(first); more != 1 || !strings.HasPrefix(got, "s\n") || strings.Contains(got, "other") || !strings.Contains(got, "grandkid") {
		t.Errorf("the first session, and %d more:\n%s", more, got)
	}
	all, more := kin.Roots(10)
	all[""] = true
	if got := part(all); more != 0 || got != draw(build(fresh(list)...)) {
		t.Errorf("all sessions, and %d more:\n%s", more, got)
	}
}

// However chains name their parents, all of them are below the roots.
func TestRoots(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var kin tree.Kin
		names := map[string]bool{}
		for _, r := range anything(rt) {
			kin.Add(r)
			if r.Agent != nil {
				names[r.Agent.Chain()] = true
			}
		}
		all, more := kin.Roots(100)
		for name := range names {
			if !all[name] || more != 0 {
				rt.Fatalf("%q is below no root: %v, %d more", name, all, more)
			}
		}
		some, more := kin.Roots(1)
		if len(names) > 0 && len(some) == 0 || more == 0 && len(some) != len(all) {
			rt.Fatalf("below the first root: %v of %v, %d more", some, all, more)
		}
	})
}
