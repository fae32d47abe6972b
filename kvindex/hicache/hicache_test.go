package hicache_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex/hicache"
	"pgregory.net/rapid"
)

// The pages of the tokens 1 to 8 in fours.
const (
	first  = "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72"
	second = "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6"
)

var eight = []uint32{1, 2, 3, 4, 5, 6, 7, 8}

func stored(keys ...string) (events []hicache.Event) {
	for _, k := range keys {
		events = append(events, hicache.Event{Stored: true, Key: k})
	}
	return events
}

func check(t testing.TB, x *hicache.Index, tokens []uint32, pageSize int, want ...kv.Span) {
	t.Helper()
	got, err := x.Check(context.Background(), tokens, pageSize)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("found %v (%v), want %v", got, err, want)
	}
}

// A page is there when all objects are that it is stored as.
func TestLayouts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		layout hicache.Layout
		keys   []string // of the first page, without its name
	}{
		{"one rank", hicache.Layout{}, []string{"_0_k", "_0_v"}},
		{"tensor-parallel", hicache.Layout{TP: 2}, []string{"_0_k", "_0_v", "_1_k", "_1_v"}},
		{"pipeline-parallel", hicache.Layout{PP: 2}, []string{"_0_0_k", "_0_0_v", "_0_1_k", "_0_1_v"}},
		{"both", hicache.Layout{TP: 2, PP: 2}, []string{"_0_0_k", "_0_0_v", "_1_0_k", "_1_0_v", "_0_1_k", "_0_1_v", "_1_1_k", "_1_1_v"}},
		{"heads split", hicache.Layout{TP: 1, SplitHeads: true, LCM: 2}, []string{"_0_k", "_0_v", "_1_k", "_1_v"}},
		{"heads split, without LCM", hicache.Layout{TP: 2, SplitHeads: true}, []string{"_0_k", "_0_v", "_1_k", "_1_v"}},
		{"LCM without split heads", hicache.Layout{TP: 1, LCM: 4}, []string{"_0_k", "_0_v"}},
		{"MLA", hicache.Layout{MLA: true, TP: 8}, []string{"__k"}},
		{"MLA, pipeline-parallel", hicache.Layout{MLA: true, TP: 8, PP: 2}, []string{"_0_k", "_1_k"}},
		{"with a tag", hicache.Layout{Tag: "blue"}, []string{"_0_k", "_0_v"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.layout.Backend, tc.layout.PageSize = "mooncake", 4
			name := first
			if tc.layout.Tag != "" {
				name = tc.layout.Tag + "_" + first
			}
			x := &hicache.Index{}
			if err := x.Join(1, tc.layout); err != nil {
				t.Fatal(err)
			}
			for i, suffix := range tc.keys {
				check(t, x, eight, 4)
				x.Apply(uint64(i), stored(name+suffix))
			}
			check(t, x, eight, 4, kv.Span{Start: 0, End: 1})
			check(t, x, eight[:3], 4)
			check(t, x, eight, 2) // blocks are not pages
			for i, suffix := range tc.keys {
				n := uint64(len(tc.keys) + 2*i)
				x.Apply(n, []hicache.Event{{Key: name + suffix}})
				check(t, x, eight, 4)
				x.Apply(n+1, stored(name+suffix))
				check(t, x, eight, 4, kv.Span{Start: 0, End: 1})
			}
		})
	}
}

func TestEagle(t *testing.T) {
	x := &hicache.Index{}
	if err := x.Join(1, hicache.Layout{Backend: "mooncake", PageSize: 4, MLA: true, Eagle: true}); err != nil {
		t.Fatal(err)
	}
	for i, page := range kv.AppendPageHashes(nil, eight, 4, true) {
		x.Apply(uint64(i), stored(page.String()+"__k"))
	}
	check(t, x, eight, 4, kv.Span{Start: 0, End: 1})
	check(t, x, eight[:4], 4)
}

// While workers disagree nothing is found, and another layout starts afresh.
func TestWorkersMustAgree(t *testing.T) {
	x := &hicache.Index{}
	plain := hicache.Layout{Backend: "mooncake", PageSize: 4, MLA: true}
	found := kv.Span{Start: 0, End: 2}
	x.Apply(1, stored(first+"__k", second+"__k"))
	check(t, x, eight, 4) // nobody has joined
	for _, worker := range []uint64{1, 2} {
		if err := x.Join(worker, plain); err != nil {
			t.Fatal(err)
		}
		check(t, x, eight, 4, found)
	}
	for _, tc := range []struct {
		layout hicache.Layout
		text   string
	}{
		{hicache.Layout{Backend: "mooncake", PageSize: 8, MLA: true}, "want the same"},
		{hicache.Layout{Backend: "file", PageSize: 4, MLA: true}, `backend "file"`},
		{hicache.Layout{Backend: "mooncake", MLA: true}, "page size 0"},
		{hicache.Layout{Backend: "mooncake", PageSize: 4, TP: 5000}, "at most 4096"},
		{hicache.Layout{Backend: "mooncake", PageSize: 4, TP: 64, PP: 64}, "at most 4096"},
		{hicache.Layout{Backend: "mooncake", PageSize: 4, TP: -1}, "at most 4096"},
		{hicache.Layout{Backend: "mooncake", PageSize: 4, PP: 1 << 62, TP: 1 << 62}, "at most 4096"},
	} {
		if err := x.Join(3, tc.layout); err == nil || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%+v: %v, want … %s …", tc.layout, err, tc.text)
		}
		check(t, x, eight, 4)
	}
	if err := x.Leave(3); err != nil {
		t.Fatal(err)
	}
	check(t, x, eight, 4, found)
	x.Leave(1)
	x.Leave(2)
	check(t, x, eight, 4)
	if err := x.Join(4, plain); err != nil {
		t.Fatal(err)
	}
	check(t, x, eight, 4, found)
	wide := plain
	wide.PP = 2
	if err := x.Join(4, wide); err != nil {
		t.Fatal(err)
	}
	if s := x.Stats(); s.Keys != 0 || s.Layouts != 1 {
		t.Errorf("%+v", s)
	}
}

func TestFaults(t *testing.T) {
	x := &hicache.Index{}
	if err := x.Join(1, hicache.Layout{Backend: "mooncake", PageSize: 4, MLA: true}); err != nil {
		t.Fatal(err)
	}
	found := kv.Span{Start: 0, End: 1}
	x.Apply(7, append(stored(first+"__k"), hicache.Event{Stored: true, Key: second + "__k", Tenant: "blue"}))
	check(t, x, eight, 4, found)
	x.Apply(7, []hicache.Event{{Key: first + "__k"}}) // again
	x.Apply(3, []hicache.Event{{Key: first + "__k"}})
	x.Apply(8, []hicache.Event{{Key: first + "__k", Tenant: "blue"}, {Stored: true, Key: "default", Tenant: "default"}})
	check(t, x, eight, 4, found)
	if s := x.Stats(); s.Keys != 2 || s.Foreign != 2 || s.Repeated != 2 || s.Gaps != 0 {
		t.Errorf("%+v", s)
	}
	x.Apply(10, stored(second+"__k")) // 9 is missing
	check(t, x, eight, 4, kv.Span{Start: 1, End: 2})
	x.Restart()
	check(t, x, eight, 4)
	x.Apply(2, stored(first+"__k"))
	check(t, x, eight, 4, found)
	if s := x.Stats(); s.Gaps != 1 || s.Keys != 1 {
		t.Errorf("%+v", s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.Check(ctx, eight, 4); err == nil {
		t.Error("who left was answered")
	}
}

// A store with more objects than are remembered is not remembered at all.
func TestBound(t *testing.T) {
	x := &hicache.Index{}
	for n := range uint64(101) {
		events := make([]hicache.Event, hicache.MostKeys/100)
		for i := range events {
			events[i] = hicache.Event{Stored: true, Key: fmt.Sprint(n, "/", i)}
		}
		x.Apply(n, events)
		if s := x.Stats(); n == 99 && (s.Keys != hicache.MostKeys || s.Overflows != 0) {
			t.Errorf("full: %+v", s)
		}
	}
	if s := x.Stats(); s.Keys != hicache.MostKeys/100-1 || s.Overflows != 1 {
		t.Errorf("%+v", s)
	}
}

// Whatever comes and goes: a page is found when a list of names has all of its
// objects.
func TestIndexIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := &hicache.Index{}
		if err := x.Join(1, hicache.Layout{Backend: "mooncake", PageSize: 2}); err != nil {
			t.Fatal(err)
		}
		tokens := rapid.SliceOfN(rapid.Uint32Range(0, 2), 0, 12).Draw(t, "tokens")
		pages := kv.AppendPageHashes(nil, tokens, 2, false)
		names := map[string]bool{}
		number := uint64(5)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if rapid.IntRange(0, 20).Draw(t, "gap") == 0 {
				number++
				clear(names)
			}
			number++
			var events []hicache.Event
			for range rapid.IntRange(0, 3).Draw(t, "events") {
				if len(pages) == 0 {
					continue
				}
				key := rapid.SampledFrom(pages).Draw(t, "page").String() + rapid.SampledFrom([]string{"_0_k", "_0_v"}).Draw(t, "part")
				come := rapid.IntRange(0, 3).Draw(t, "come") > 0
				if names[key] = true; !come {
					delete(names, key)
				}
				events = append(events, hicache.Event{Stored: come, Key: key})
			}
			x.Apply(number, events)
		}
		var want []bool
		for _, p := range pages {
			want = append(want, names[p.String()+"_0_k"] && names[p.String()+"_0_v"])
		}
		spans, err := x.Check(context.Background(), tokens, 2)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]bool, len(pages))
		end := -1
		for _, s := range spans {
			if s.Start <= end || s.End <= s.Start {
				t.Fatalf("ranges %v", spans)
			}
			end = s.End
			for i := s.Start; i < s.End; i++ {
				got[i] = true
			}
		}
		if !slices.Equal(got, want) && len(want) > 0 {
			t.Fatalf("found %v, want %v", got, want)
		}
	})
}

func Example() {
	var x hicache.Index
	if err := x.Join(1, hicache.Layout{Backend: "mooncake", PageSize: 4, MLA: true}); err != nil {
		fmt.Println(err)
	}
	x.Apply(1, []hicache.Event{{Stored: true, Key: second + "__k"}})
	spans, _ := x.Check(context.Background(), []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}, 4)
	fmt.Println(spans)
	// Output: [{1 2}]
}
