package tree_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/tree"
)

// size gives a request its tokens.
func size(r *trace.Record, input, cached, output uint64) *trace.Record {
	r.Request.InputTokens, r.Request.CachedTokens, r.Request.OutputTokens = &input, &cached, &output
	return r
}

func TestTotals(t *testing.T) {
	var s tree.Stats
	silent := turn("b", "s", "", 300, 50)
	silent.Request.Finish = &trace.Finish{BackendReason: "error: gone"}
	parallel := size(turn("c", "s", "", 320, 30), 50, 60, 7) // an engine that tells too much
	failed := size(turn("x", "", "", 0, 10), 10, 0, 1)
	failed.Request.Dynago = &trace.Dynago{Error: "overload"}
	first := size(turn("a", "s", "", 0, 100, "t=bash"), 100, 80, 20)
	first.Request.TTFT, first.Request.KVHitRate = new(40.0), new(0.5)
	first.Request.Worker = &trace.Worker{PrefillWorkerID: new(uint64(7))}
	kid := size(turn("k", "kid", "s", 110, 40), 40, 0, 3)
	kid.Agent.Compaction = new(trace.Compaction)
	for _, r := range []*trace.Record{
		parallel, silent, first, kid, failed, turn("a", "s", "", 0, 100),
		event(trace.ToolStart, "s", "t", 100, nil),
		event(trace.ToolEnd, "s", "t", 180, func(t *trace.Tool) { t.Duration = new(80.0) }),
		event(trace.ToolError, "s", "u", 200, nil),
		event(trace.ToolStart, "s", "v", 210, nil), event(trace.ToolStart, "kid", "v", 215, nil),
		event(trace.ToolEnd, "s", "v", 240, nil), event(trace.ToolEnd, "s", "v", 290, nil), // the second one began, who knows when
	} {
		s.Add(r)
	}
	chains := s.Chains()
	if len(chains) != 2 || chains[0].ID != "s" || chains[1].ID != "kid" || chains[1].ParentID != "s" {
		t.Fatalf("chains %+v", chains)
	}
	lead := chains[0]
	for _, tc := range []struct {
		what      string
		got, want any
	}{
		{"requests", s.Requests, 5},
		{"of no agent", s.Alone.Requests, 1},
		{"twice", s.Duplicates, 1},
		{"failed", s.Failed, 2},
		{"compactions", s.Compactions, 1},
		{"compactions of the lead", lead.Compactions, 0},
		// 100 + 50 + 40 + 10, and 4 that the hashes of one tell.
		{"input", s.Input, uint64(204)},
		{"told", s.Told, uint64(200)},
		{"cached", s.Cached, uint64(130)},
		{"output", s.Output, uint64(31)},
		{"output of the lead", lead.Output, uint64(27)},
		{"tool calls", s.ToolCalls, 1},
		{"tool events", s.ToolEvents, 4},
		{"tool errors", lead.ToolErrors, 1},
		{"pauses", s.Pause.N, 1},
		{"pause", lead.Pause.Percentile(50), 200.0},
		{"tool time", lead.Tool.Max, 80.0},
		{"tool time from a start", lead.Tool.Min, 30.0},
		{"tools with a time", s.Tool.N, 2},
		{"first token", s.TTFT.Max, 40.0},
		{"largest prompt", s.Size.Max, 100.0},
		{"span", s.Last.Sub(s.First).Milliseconds(), int64(350)},
		{"workers", fmt.Sprint(s.Workers), "map[0:4 7:1]"},
		{"endings", fmt.Sprint(s.Finish), "map[error:2 tool_calls:1 unknown:2]"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %v, want %v", tc.what, tc.got, tc.want)
		}
	}
	share, known := s.HitShare()
	if !known || math.Abs(share-130.0/200) > 1e-12 {
		t.Errorf("hit share %v", share)
	}
	ratio, known := s.ReadWrite()
	if !known || math.Abs(ratio-130.0/70) > 1e-12 {
		t.Errorf("read/write %v", ratio)
	}
	expected, known := s.ExpectedShare()
	if !known || expected != 0.5 {
		t.Errorf("expected %v", expected)
	}
	var nothing tree.Stats
	if _, known := nothing.HitShare(); known || len(nothing.Chains()) > 0 {
		t.Error("of nothing something is known")
	}
	if _, known := nothing.ReadWrite(); known {
		t.Error("of nothing a ratio is known")
	}
}

// Pauses that are counted are those that the tree shows.
func TestPausesAreThoseOfTheTree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s tree.Stats
		var list []*trace.Record
		seen := map[string]bool{}
		for i := range rapid.IntRange(0, 20).Draw(rt, "turns") {
			var calls []string
			if rapid.Bool().Draw(rt, "asks") {
				calls = []string{fmt.Sprint("t", i)}
			}
			chain := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "chain")
			at, took := rapid.IntRange(0, 2000).Draw(rt, "at"), rapid.IntRange(0, 300).Draw(rt, "took")
			// Which of two that ran at the very same time is the later one, ids say, and
			// they are not held.
			if when := fmt.Sprint(chain, at, took); !seen[when] {
				seen[when] = true
				list = append(list, turn(fmt.Sprint(i), chain, "", at, took, calls...))
			}
		}
		var want []float64
		for _, session := range build(fresh(list)...).Sessions {
			for _, turn := range session.Turns {
				if len(turn.Tools) > 0 && turn.Tools[0].Duration > 0 {
					want = append(want, float64(turn.Tools[0].Duration.Milliseconds()))
				}
			}
		}
		for _, r := range list {
			s.Add(r)
		}
		s.Chains()
		sum := 0.0
		for _, ms := range want {
			sum += ms
		}
		if s.Pause.N != len(want) || s.Pause.Sum != sum {
			rt.Fatalf("%d pauses of %v ms, want %v", s.Pause.N, s.Pause.Sum, want)
		}
	})
}

// A spread is that of a sorted list: exactly, as long as there are few, and within half a
// percent afterwards.
func TestSpread(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1e6), 1, 200).Draw(rt, "values")
		times := rapid.SampledFrom([]int{1, 100}).Draw(rt, "times")
		var s tree.Spread
		var all []float64
		for i := range times * len(values) {
			s.Add(values[i%len(values)])
			all = append(all, values[i%len(values)])
		}
		s.Add(math.NaN())
		s.Add(-1)
		s.Add(math.Inf(1))
		slices.Sort(all)
		within := 0.0
		if len(all) > 4096 {
			within = 0.005
		}
		for _, p := range []float64{0, 1, 50, 90, 99, 100} {
			want := all[max(0, int(math.Ceil(p/100*float64(len(all))))-1)]
			if got := s.Percentile(p); math.Abs(got-want) > within*want {
				rt.Fatalf("p%v of %d values is %v, want %v", p, len(all), got, want)
			}
		}
		if s.N != len(all) || s.Min != all[0] || s.Max != all[len(all)-1] || s.Mean() < all[0]*0.999999 || s.Mean() > s.Max*1.000001 {
			rt.Fatalf("%d values, mean %v, max %v", s.N, s.Mean(), s.Max)
		}
	})
	var nothing tree.Spread
	if nothing.Percentile(50) != 0 || nothing.Mean() != 0 {
		t.Error("of nothing there is a percentile")
	}
}

func BenchmarkStats(b *testing.B) {
	var s tree.Stats
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Add(size(turn(fmt.Sprint(i), fmt.Sprint("s", i%1000), "", i, 5, "t"), 1000, 900, 30))
	}
}
