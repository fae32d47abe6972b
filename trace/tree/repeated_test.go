package tree_test

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/tree"
)

// ended tells of a tool that has ended, with all times.
func ended(chain, id, class string, from, to int) *trace.Record {
	return event(trace.ToolEnd, chain, id, to, func(t *trace.Tool) {
		t.Class, t.Started, t.Ended, t.Duration = class, new(uint64(epoch+from)), new(uint64(epoch+to)), new(float64(to-from))
	})
}

// Models number the calls of each answer anew, and harnesses give ids twice: each tool and
// each result belongs to a call of its own.
func TestIDsThatComeTwice(t *testing.T) {
	for _, tc := range []struct {
		name    string
		records []*trace.Record
		want    string
	}{
		{"calls that are numbered anew", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=ls", "call_1=cat"), ended("s", "call_0", "ls", 110, 150), ended("s", "call_1", "cat", 120, 160),
			bringing(turn("b", "s", "", 200, 100, "call_0=go"), "call_0", "call_1"), ended("s", "call_0", "go", 310, 390),
			bringing(turn("c", "s", "", 400, 100), "call_0"),
		}, `
s
  a@0-100
    - call_0 ls@110+40ms answered by b
    - call_1 cat@120+40ms answered by b
  b@200-300
    - call_0 go@310+80ms answered by c
  c@400-500
`},
		{"calls of which nobody tells", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=ls"), bringing(turn("b", "s", "", 200, 100, "call_0=go"), "call_0"),
			bringing(turn("c", "s", "", 450, 100, "call_0=rm"), "call_0"), turn("d", "s", "", 600, 1),
		}, `
s
  a@0-100
    - call_0 ls@100+100ms inferred answered by b
  b@200-300
    - call_0 go@300+150ms inferred answered by c
  c@450-550
    - call_0 rm@550+50ms inferred
  d@600-601
`},
		{"the first of two was told of", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=ls"), ended("s", "call_0", "ls", 110, 150), bringing(turn("b", "s", "", 200, 100, "call_0=go"), "call_0"),
			bringing(turn("c", "s", "", 400, 1), "call_0"),
		}, `
s
  a@0-100
    - call_0 ls@110+40ms answered by b
  b@200-300
    - call_0 go@300+100ms inferred answered by c
  c@400-401
`},
		{"the second of two was told of", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=ls"), bringing(turn("b", "s", "", 200, 100, "call_0=go"), "call_0"), ended("s", "call_0", "go", 310, 390),
			bringing(turn("c", "s", "", 400, 1), "call_0"),
		}, `
s
  a@0-100
    - call_0 ls@100+100ms inferred answered by b
  b@200-300
    - call_0 go@310+80ms answered by c
  c@400-401
`},
		{"twice in one answer", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=ls", "call_0=cat", "call_0=cat"),
			ended("s", "call_0", "cat", 110, 150), ended("s", "call_0", "ls", 120, 150), bringing(turn("b", "s", "", 200, 1), "call_0", "call_0", "call_0"),
			bringing(turn("again", "s", "", 300, 1), "call_0", "call_0", "call_0"),
		}, `
s
  a@0-100
    - call_0 cat@100+100ms inferred answered by b
    - call_0 cat@110+40ms answered by b
    - call_0 ls@120+30ms answered by b
  b@200-201
  again@300-301
`},
		{"told as starts and ends", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=x"), event(trace.ToolStart, "s", "call_0", 110, nil), event(trace.ToolEnd, "s", "call_0", 150, nil),
			turn("b", "s", "", 200, 100, "call_0=x"), event(trace.ToolStart, "s", "call_0", 310, nil), event(trace.ToolError, "s", "call_0", 390, nil),
			turn("c", "s", "", 400, 100, "call_0=x"), event(trace.ToolStart, "s", "call_0", 510, nil),
		}, `
s
  a@0-100
    - call_0 x@110+40ms
  b@200-300
    - call_0 x@310+80ms failed
  c@400-500
    - call_0 x@500+0s inferred
    - call_0 x@510+0s running
`},
		{"side by side, by the starts that they tell", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=x", "call_0=x"),
			event(trace.ToolStart, "s", "call_0", 110, nil), event(trace.ToolStart, "s", "call_0", 120, nil), ended("s", "call_0", "x", 110, 200),
		}, `
s
  a@0-100
    - call_0 x@100+0s inferred
    - call_0 x@110+90ms
    - call_0 x@120+0s running
`},
		{"side by side, and they end together", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=ls", "call_0=cat"), ended("s", "call_0", "ls", 110, 200), ended("s", "call_0", "cat", 120, 200),
			ended("s", "call_0", "cat", 120, 200),
		}, `
s
  a@0-100
    - call_0 ls@110+90ms
    - call_0 cat@120+80ms
`},
		{"told of twice", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=x"), event(trace.ToolError, "s", "call_0", 120, nil), ended("s", "call_0", "x", 130, 150),
			bringing(turn("b", "s", "", 200, 100, "call_0=x"), "call_0"), ended("s", "call_0", "x", 310, 350), event(trace.ToolError, "s", "call_0", 360, nil),
			bringing(turn("c", "s", "", 400, 1), "call_0"),
		}, `
s
  a@0-100
    - call_0 x@120+0s failed answered by b
    - call_0 x@130+20ms answered by b
  b@200-300
    - call_0 x@310+40ms answered by c
    - call_0 x@360+0s failed answered by c
  c@400-401
`},
		{"a harness that tries again", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=x"), turn("a2", "s", "", 150, 50, "call_0=x"), bringing(turn("b", "s", "", 300, 100, "call_0=x"), "call_0"),
			bringing(turn("b2", "s", "", 410, 90, "call_0=x"), "call_0"), bringing(turn("c", "s", "", 600, 1), "call_0"),
		}, `
s
  a@0-100
    - call_0 x@100+50ms inferred
  a2@150-200
    - call_0 x@200+100ms inferred answered by b
  b@300-400
    - call_0 x@400+10ms inferred answered by b2
  b2@410-500
    - call_0 x@500+100ms inferred answered by c
  c@600-601
`},
		{"a result from before the recording", []*trace.Record{
			bringing(turn("a", "s", "", 0, 100, "call_0=x"), "call_0"), bringing(turn("b", "s", "", 200, 1), "call_0"),
		}, `
s
  a@0-100 unasked call_0
    - call_0 x@100+100ms inferred answered by b
  b@200-201
`},
		{"turns side by side", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=x"), turn("title", "s", "", 50, 500, "call_0=y"), ended("s", "call_0", "z", 110, 150),
			bringing(turn("b", "s", "", 200, 100), "call_0"), bringing(turn("c", "s", "", 600, 1), "call_0"),
		}, `
s
  a@0-100
    - call_0 z@110+40ms answered by b
  title@50-550
    - call_0 y@550+50ms inferred answered by c
  b@200-300
  c@600-601
`},
		{"tools that begin before their answer has ended", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=x"), ended("s", "call_0", "x", 90, 150), bringing(turn("b", "s", "", 200, 100, "call_0=x"), "call_0"),
			ended("s", "call_0", "x", 290, 350), bringing(turn("c", "s", "", 400, 1), "call_0"),
		}, `
s
  a@0-100
    - call_0 x@90+60ms answered by b
  b@200-300
    - call_0 x@290+60ms answered by c
  c@400-401
`},
		{"a tool before the turn that has asked for it", []*trace.Record{turn("a", "s", "", 0, 100, "call_0=x"), ended("s", "call_0", "x", -10, 50)}, `
s
  a@0-100
    - call_0 x@-10+60ms
`},
		{"the same in another chain", []*trace.Record{
			turn("a", "s", "", 0, 100, "call_0=x"), turn("k", "kid", "s", 10, 100, "call_0=y"), ended("kid", "call_0", "y", 120, 130), ended("s", "call_0", "x", 110, 150),
			bringing(turn("k2", "kid", "s", 140, 1), "call_0"), bringing(turn("b", "s", "", 200, 1), "call_0"),
		}, `
s
  a@0-100
    - call_0 x@110+40ms answered by b
    kid
      k@10-110
        - call_0 y@120+10ms answered by k2
      k2@140-141
  b@200-201
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := gocmp.Diff(strings.TrimPrefix(tc.want, "\n"), draw(build(tc.records...))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// What agents that take turns do comes out as they did it, however few ids they have for
// their calls, and whatever harnesses tell of them.
func TestFewIDs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var list []*trace.Record
		want := map[string]string{} // turn and tool → how long it ran, and who has the result
		at, asked := 0, []string(nil)
		for i := range rapid.IntRange(1, 12).Draw(rt, "turns") {
			var calls, ids []string
			for k := range rapid.IntRange(0, 3).Draw(rt, "calls") {
				ids = append(ids, fmt.Sprint("call_", k*rapid.IntRange(0, 1).Draw(rt, "repeats")))
				calls = append(calls, fmt.Sprintf("%s=tool%d", ids[k], k))
			}
			name := fmt.Sprint("turn", i)
			list = append(list, bringing(turn(name, "s", "", at, 50, calls...), asked...))
			for k := range asked {
				want[fmt.Sprint("turn", i-1, " tool", k)] += name
			}
			at += 100
			for k, id := range ids {
				took := rapid.IntRange(1, 40).Draw(rt, "took")
				told := rapid.Bool().Draw(rt, "told")
				if told {
					list = append(list, ended("s", id, fmt.Sprint("tool", k), at, at+took))
				} else {
					took = 100 // until the next turn
				}
				want[fmt.Sprint(name, " tool", k)] = fmt.Sprint(took, told)
			}
			asked, at = ids, at+50
		}
		got := map[string]string{}
		for _, turn := range build(rapid.Permutation(list).Draw(rt, "order")...).Sessions[0].Turns {
			for _, u := range turn.Tools {
				what := turn.Request.RequestID + " " + u.Class
				if _, twice := got[what]; twice {
					rt.Fatalf("%s is there twice", what)
				}
				took := u.Duration.Milliseconds()
				if u.Inferred() && u.Answered == nil {
					took = 100
				}
				got[what] = fmt.Sprint(took, !u.Inferred())
				if u.Answered != nil {
					got[what] += u.Answered.Request.RequestID
				}
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			rt.Fatalf("-want +got\n%s", diff)
		}
	})
}

// Totals count each tool once, with its own start.
func TestTotalsOfIDsThatComeTwice(t *testing.T) {
	var s tree.Stats
	for _, r := range []*trace.Record{
		event(trace.ToolStart, "s", "call_0", 100, nil), event(trace.ToolEnd, "s", "call_0", 110, nil), event(trace.ToolEnd, "s", "call_0", 110, nil),
		event(trace.ToolStart, "s", "call_0", 200, nil), event(trace.ToolStart, "s", "call_0", 205, nil),
		event(trace.ToolEnd, "s", "call_0", 225, nil), event(trace.ToolEnd, "s", "call_0", 240, nil),
		ended("s", "call_0", "ls", 300, 400), ended("s", "call_0", "cat", 350, 400),
	} {
		s.Add(r)
	}
	if s.ToolEvents != 5 || s.Duplicates != 1 || s.Tool.N != 5 || s.Tool.Sum != 10+20+40+100+50 {
		t.Errorf("%d tools, %d twice, %d with times of %v ms in all", s.ToolEvents, s.Duplicates, s.Tool.N, s.Tool.Sum)
	}
}
