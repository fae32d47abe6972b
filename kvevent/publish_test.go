package kvevent_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvindex"
)

func newRankPublisher(t testing.TB, c kvevent.PublisherConfig) *kvevent.Publisher {
	t.Helper()
	p, err := kvevent.NewPublisher(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func block(n int) kv.Block { return kv.Block{Engine: kv.EngineHash(n), Local: kv.LocalHash(n + 100)} }

// chain stores blocks after a parent, 0 for none; gone removes them.
func chain(tier kv.Tier, parent int, blocks ...int) kv.Event {
	e := kv.Event{Kind: kv.Stored, Tier: tier, Parent: kv.EngineHash(parent), HasParent: parent != 0}
	for _, n := range blocks {
		e.Blocks = append(e.Blocks, block(n))
	}
	return e
}

func gone(tier kv.Tier, blocks ...int) kv.Event {
	e := kv.Event{Kind: kv.Removed, Tier: tier}
	for _, n := range blocks {
		e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(n)})
	}
	return e
}

var emptied = kv.Event{Kind: kv.Cleared}

// show writes events so that a person can read them: 3 +device 7>8,9 is the
// third event and stores 8 and 9 after 7.
func show(messages [][]kvevent.RouterEvent) string {
	var out []string
	for _, m := range messages {
		for _, e := range m {
			out = append(out, showEvent(e))
		}
	}
	return strings.Join(out, "; ")
}

func showEvent(e kvevent.RouterEvent) string {
	var keys []string
	for _, b := range e.Event.Blocks {
		keys = append(keys, fmt.Sprint(uint64(b.Engine)))
	}
	blocks := strings.Join(keys, ",")
	switch {
	case e.Event.Kind == kv.Cleared:
		return fmt.Sprintf("%d !", e.ID)
	case e.Event.Kind == kv.Removed:
		return fmt.Sprintf("%d -%v %s", e.ID, e.Event.Tier, blocks)
	case e.Event.HasParent:
		return fmt.Sprintf("%d +%v %d>%s", e.ID, e.Event.Tier, uint64(e.Event.Parent), blocks)
	}
	return fmt.Sprintf("%d +%v %s", e.ID, e.Event.Tier, blocks)
}

func TestPublisherMerges(t *testing.T) {
	device, host := kv.TierDevice, kv.TierHost
	long := make([]int, 130)
	for i := range long {
		long[i] = i + 1
	}
	for _, c := range []struct {
		name   string
		config kvevent.PublisherConfig
		lists  [][]kv.Event
		want   string
	}{
		{"stores that continue", kvevent.PublisherConfig{}, [][]kv.Event{{chain(device, 0, 1), chain(device, 1, 2, 3), chain(device, 2, 4)}}, "1 +device 1,2,3; 2 +device 2>4"},
		{"stores from the root", kvevent.PublisherConfig{}, [][]kv.Event{{chain(device, 0, 1), chain(device, 0, 2)}}, "1 +device 1; 2 +device 2"},
		{"removals", kvevent.PublisherConfig{}, [][]kv.Event{{gone(device, 1), gone(device, 2), gone(host, 3)}}, "1 -device 1,2; 2 -host_pinned 3"},
		{"kinds and tiers", kvevent.PublisherConfig{}, [][]kv.Event{{chain(device, 0, 1), chain(host, 1, 2), gone(device, 1), emptied, gone(device, 1)}}, "1 +device 1; 2 +host_pinned 1>2; 3 -device 1; 4 !; 5 -device 1"},
		{"two lists", kvevent.PublisherConfig{}, [][]kv.Event{{chain(device, 0, 1)}, {chain(device, 1, 2)}}, "1 +device 1; 2 +device 1>2"},
		{"two lists in time", kvevent.PublisherConfig{Wait: time.Second}, [][]kv.Event{{chain(device, 0, 1)}, {chain(device, 1, 2)}, {emptied}}, "1 +device 1,2; 2 !"},
		{"never a part of an event", kvevent.PublisherConfig{Wait: time.Second}, [][]kv.Event{{chain(device, 0, long...), chain(device, 130, 200)}, {gone(device, 1)}}, "1 +device " + commas(long) + "; 2 +device 130>200"},

		{"copies", kvevent.PublisherConfig{Raw: true}, [][]kv.Event{{chain(device, 0, 1, 2)}, {chain(device, 0, 1)}, {gone(device, 1, 2)}, {gone(device, 1, 9)}}, "1 +device 1,2; 2 +device 1; 3 -device 2; 4 -device 1,9"},
		{"copies by tier", kvevent.PublisherConfig{Raw: true}, [][]kv.Event{{chain(device, 0, 1)}, {chain(host, 0, 1)}, {gone(device, 1)}}, "1 +device 1; 2 +host_pinned 1; 3 -device 1"},
		{"no number for nothing", kvevent.PublisherConfig{Raw: true}, [][]kv.Event{{chain(device, 0, 1)}, {chain(device, 0, 1)}, {gone(device, 1)}, {chain(device, 1, 2)}}, "1 +device 1; 2 +device 1; 3 +device 1>2"},
		{"copies are cleared", kvevent.PublisherConfig{Raw: true}, [][]kv.Event{{chain(device, 0, 1)}, {chain(device, 0, 1)}, {emptied}, {chain(device, 0, 1)}, {gone(device, 1)}}, "1 +device 1; 2 +device 1; 3 !; 4 +device 1; 5 -device 1"},
		{"no copies", kvevent.PublisherConfig{}, [][]kv.Event{{chain(device, 0, 1)}, {chain(device, 0, 1)}, {gone(device, 1)}}, "1 +device 1; 2 +device 1; 3 -device 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newRankPublisher(t, c.config)
			var out [][]kvevent.RouterEvent
			for _, l := range c.lists {
				out = append(out, p.Publish(time.Unix(0, 0), l)...)
			}
			if got := show(out); got != c.want {
				t.Errorf("published\n  %s, want\n  %s", got, c.want)
			}
		})
	}
}

func commas(n []int) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(n), " ", ","), "[]") }

func TestPublisherWaits(t *testing.T) {
	p := newRankPublisher(t, kvevent.PublisherConfig{Worker: 7, Rank: 3, Wait: time.Second})
	now := time.Unix(100, 0)
	if _, ok := p.Deadline(); ok {
		t.Error("a deadline for nothing")
	}
	p.Publish(now, []kv.Event{chain(kv.TierDevice, 0, 1)})
	at, ok := p.Deadline()
	if !ok || at != now.Add(time.Second) {
		t.Errorf("deadline %v, %t", at, ok)
	}
	if out := p.Tick(now.Add(time.Second - 1)); out != nil {
		t.Errorf("too soon: %s", show(out))
	}
	out := p.Tick(at)
	if show(out) != "1 +device 1" || out[0][0].Worker != 7 || out[0][0].Rank != 3 {
		t.Errorf("published %+v", out)
	}
	if out := p.Tick(at.Add(time.Hour)); out != nil {
		t.Errorf("published again: %s", show(out))
	}
	for _, wait := range []time.Duration{-1, 15*time.Second + 1} {
		if _, err := kvevent.NewPublisher(kvevent.PublisherConfig{Wait: wait}); err == nil {
			t.Errorf("may wait %v", wait)
		}
	}
}

func TestPublisherMessages(t *testing.T) {
	p := newRankPublisher(t, kvevent.PublisherConfig{})
	var events []kv.Event
	for i := range 130 {
		events = append(events, chain(kv.TierDevice, 0, i+1))
	}
	if out := p.Publish(time.Time{}, events); len(out) != 2 || len(out[0]) != 128 || len(out[1]) != 2 {
		t.Errorf("%d messages", len(out))
	}
	big := make([]int, 5000)
	for i := range big {
		big[i] = i + 1
	}
	out := p.Publish(time.Time{}, []kv.Event{chain(kv.TierDevice, 0, big...), chain(kv.TierHost, 0, big...), gone(kv.TierDevice, 1)})
	if len(out) != 2 || len(out[0]) != 1 || len(out[1]) != 2 {
		t.Errorf("%d messages", len(out))
	}
}

// A gap is all that can be said of what a source has lost.
func TestPublisherTakes(t *testing.T) {
	p := newRankPublisher(t, kvevent.PublisherConfig{})
	out := p.Take(time.Time{}, kv.Batch{Events: []kv.Event{chain(kv.TierDevice, 0, 1)}})
	out = append(out, p.Take(time.Time{}, kv.Batch{Gap: kv.GapLost})...)
	out = append(out, p.Take(time.Time{}, kv.Batch{Snapshot: kv.SnapshotPart, Events: []kv.Event{chain(kv.TierDevice, 0, 2)}})...)
	out = append(out, p.Take(time.Time{}, kv.Batch{Snapshot: kv.SnapshotEnd})...)
	if got, want := show(out), "1 +device 1; 2 !; 3 +device 2"; got != want {
		t.Errorf("published %s, want %s", got, want)
	}
}

func TestPublisherAnswers(t *testing.T) {
	p := newRankPublisher(t, kvevent.PublisherConfig{Worker: 7, Rank: 1})
	check := func(name string, q kvevent.Recovery, kind kvevent.AnswerKind, first string, n int, last uint64) {
		t.Helper()
		a := p.Answer(q)
		got := ""
		if len(a.Events) > 0 {
			got = showEvent(a.Events[0])
		}
		if a.Kind != kind || got != first || len(a.Events) != n || a.Last != last || a.Worker != 7 || a.Rank != 1 {
			t.Errorf("%s: %v, %d events from %q, last %d; want %v, %d from %q, %d", name, a.Kind, len(a.Events), got, a.Last, kind, n, first, last)
		}
	}
	check("nothing yet", kvevent.Recovery{}, kvevent.AnswerDump, "", 0, 0)
	check("nothing yet, and some asked for", kvevent.Recovery{From: 5}, kvevent.AnswerDump, "", 0, 0)
	for i := range 1500 {
		p.Publish(time.Time{}, []kv.Event{chain(kv.TierDevice, 0, i%3+1)})
	}
	check("one event", kvevent.Recovery{From: 1490, To: 1490}, kvevent.AnswerEvents, "1490 +device 2", 11, 1500)
	check("the end before the beginning", kvevent.Recovery{From: 9, To: 8}, kvevent.AnswerInvalid, "", 0, 1500)
	check("everything", kvevent.Recovery{}, kvevent.AnswerDump, "0 +device 1", 3, 1500)
	check("not there yet", kvevent.Recovery{From: 1501}, kvevent.AnswerTooNew, "", 0, 1500)
	check("no longer there", kvevent.Recovery{From: 476}, kvevent.AnswerDump, "0 +device 1", 3, 1500)
	check("the oldest", kvevent.Recovery{From: 477, To: 480}, kvevent.AnswerEvents, "477 +device 3", 1024, 1500)
	check("the newest", kvevent.Recovery{From: 1500}, kvevent.AnswerEvents, "1500 +device 3", 1, 1500)

	// A dump is continued for a while by what has happened since.
	p.Publish(time.Time{}, []kv.Event{gone(kv.TierDevice, 2)})
	a := p.Answer(kvevent.Recovery{})
	if got, want := show([][]kvevent.RouterEvent{a.Events}), "0 +device 1; 1 +device 2; 2 +device 3; 3 -device 2"; got != want || a.Last != 1501 {
		t.Errorf("dump %s, last %d, want %s", got, a.Last, want)
	}
	for range 512 {
		p.Publish(time.Time{}, []kv.Event{gone(kv.TierDevice, 2)})
	}
	check("made anew", kvevent.Recovery{}, kvevent.AnswerDump, "0 +device 1", 2, 2013)
	p.Publish(time.Time{}, []kv.Event{emptied})
	check("cleared", kvevent.Recovery{}, kvevent.AnswerDump, "", 0, 2014)
	p.Publish(time.Time{}, []kv.Event{chain(kv.TierDevice, 0, 5)})
	check("before a clear", kvevent.Recovery{From: 1500}, kvevent.AnswerEvents, "2014 !", 2, 2015)
}

// A rank that holds more than can be remembered is not told wrongly.
func TestPublisherBound(t *testing.T) {
	p := newRankPublisher(t, kvevent.PublisherConfig{Raw: true, MaxBlocks: 2})
	publish := func(want string, events ...kv.Event) {
		t.Helper()
		if got := show(p.Publish(time.Time{}, events)); got != want {
			t.Errorf("published %s, want %s", got, want)
		}
	}
	publish("1 +device 1,2", chain(kv.TierDevice, 0, 1, 2))
	if a := p.Answer(kvevent.Recovery{}); a.Kind != kvevent.AnswerDump || len(a.Events) != 1 {
		t.Errorf("answer %+v", a)
	}
	publish("2 +device 2>3", chain(kv.TierDevice, 2, 3))
	publish("3 +device 2>3", chain(kv.TierDevice, 2, 3))
	publish("4 -device 3", gone(kv.TierDevice, 3)) // whose copies are not counted
	if a := p.Answer(kvevent.Recovery{}); a.Kind != kvevent.AnswerDumpFailed || len(a.Events) != 0 || a.Last != 4 {
		t.Errorf("answer %+v", a)
	}
	if a := p.Answer(kvevent.Recovery{From: 2}); a.Kind != kvevent.AnswerEvents || len(a.Events) != 3 {
		t.Errorf("answer %+v", a)
	}
	publish("5 !; 6 +device 1", emptied, chain(kv.TierDevice, 0, 1))
	if a := p.Answer(kvevent.Recovery{}); a.Kind != kvevent.AnswerDump || len(a.Events) != 1 {
		t.Errorf("answer %+v", a)
	}
}

// tree draws events of a worker that stores chains, on any tier, and removes
// blocks also from their midst.
func tree(draw func(n int) int) kv.Event {
	tier := kv.Tier(draw(3))
	switch draw(8) {
	case 0, 1, 2:
		var blocks []int
		for range 1 + draw(3) {
			blocks = append(blocks, 1+draw(12))
		}
		slices.Sort(blocks)
		return gone(tier, slices.Compact(blocks)...)
	case 3:
		if draw(4) == 0 {
			return emptied
		}
	}
	// A block's parent is always the one of half its number.
	n := 1 + draw(12)
	blocks := []int{n}
	for n = 2*n + draw(2); n <= 12 && draw(2) == 0; n = 2*n + draw(2) {
		blocks = append(blocks, n)
	}
	return chain(tier, blocks[0]/2, blocks...)
}

// scores is what an index answers for every prefix there can be.
func scores(x *kvindex.Index) string {
	var b strings.Builder
	for n := 1; n <= 12; n++ {
		var local []kv.LocalHash
		for m := n; m > 0; m /= 2 {
			local = append(local, block(m).Local)
		}
		slices.Reverse(local)
		var m kvindex.Matches
		x.Match(local, &m)
		fmt.Fprintln(&b, n, m.Found)
	}
	return b.String()
}

// A dump loaded into an empty index gives the scores of the index that was told
// everything as it happened, on every tier, also after more has happened.
func TestDumpReproducesScores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
		p, err := kvevent.NewPublisher(kvevent.PublisherConfig{})
		if err != nil {
			t.Fatal(err)
		}
		target := kv.Target{Worker: 1}
		live := kvindex.New()
		happen := func(steps int, on ...*kvindex.Index) {
			for range steps {
				for _, m := range p.Publish(time.Time{}, []kv.Event{tree(draw)}) {
					for _, e := range m {
						for _, x := range on {
							_ = x.Apply(target, e.Event)
						}
					}
				}
			}
		}
		happen(draw(40), live)
		for range 3 {
			loaded := kvindex.New()
			for _, e := range p.Answer(kvevent.Recovery{}).Events {
				_ = loaded.Apply(target, e.Event)
			}
			if got, want := scores(loaded), scores(live); got != want {
				t.Fatalf("from a dump\n%s, as it happened\n%s", got, want)
			}
			happen(draw(10), live, loaded)
			if got, want := scores(loaded), scores(live); got != want {
				t.Fatalf("from a dump and after more\n%s, as it happened\n%s", got, want)
			}
		}
	})
}

func BenchmarkPublisher(b *testing.B) {
	draw := rand.New(rand.NewPCG(1, 1)).IntN
	events := make([]kv.Event, 1024)
	for i := range events {
		events[i] = tree(draw)
	}
	p := newRankPublisher(b, kvevent.PublisherConfig{Raw: true})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.Publish(time.Time{}, events[i%1024:i%1024+1])
	}
}
